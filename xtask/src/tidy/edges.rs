//! The allowed dependencies between crates: they point inward, and `domain` reaches no crate that does I/O.

use std::path::Path;

use serde_json::Value;

use super::finding::Finding;
use super::manifests::line_of;

const DOMAIN: &str = "crates/domain/Cargo.toml";

/// The workspace crates that each crate may use. A crate that is not listed may use none.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "recado-server",
        &[
            "recado-api",
            "recado-cli",
            "recado-postgres",
            "recado-redis",
            "recado-gateways",
            "recado-domain",
        ],
    ),
    ("recado-api", &["recado-domain"]),
    ("recado-cli", &["recado-gateways", "recado-domain"]),
    ("recado-postgres", &["recado-domain", "recado-schema"]),
    ("recado-redis", &["recado-domain"]),
    ("recado-gateways", &["recado-domain"]),
    ("recado-fuzz", &["recado-api", "recado-gateways", "recado-domain"]),
    ("recado-bench", &["recado-testkit"]),
    ("xtask", &["recado-testkit"]),
];

/// Crates that the crates of `ALLOWED` may use in their tests, and no crate of the product otherwise.
const FOR_TESTS: &[&str] = &["recado-simulators", "recado-testkit"];

/// Crates that `domain` must not reach: exact names, and families by prefix.
const UNREACHABLE: &[&str] = &["reqwest", "redis", "rand", "sqlx"];
const UNREACHABLE_FAMILIES: &[&str] = &["tokio", "actix", "diesel", "deadpool", "hyper"];

/// A package of the workspace and what it depends on.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    manifest: String,
    /// Text of the manifest, used to find line numbers. Empty if it cannot be read.
    text: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    development: bool,
}

/// Parses the output of `cargo metadata --no-deps`.
pub(super) fn packages(metadata: &Value, root: &Path) -> Vec<Package> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let array = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let dependency = |d: &Value| Dependency {
        name: text(d, "name"),
        development: text(d, "kind") == "dev",
    };
    let package = |p: &Value| {
        let path = text(p, "manifest_path");
        let relative = Path::new(&path)
            .strip_prefix(root)
            .map(|path| path.display().to_string());
        Package {
            name: text(p, "name"),
            manifest: relative.unwrap_or_else(|_| path.clone()),
            text: std::fs::read_to_string(&path).unwrap_or_default(),
            dependencies: array(p, "dependencies").iter().map(dependency).collect(),
        }
    };
    array(metadata, "packages").iter().map(package).collect()
}

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let members: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| members.contains(&d.name.as_str()))
        {
            if !allowed(&package.name, &dependency.name, dependency.development) {
                let line = line_of(&package.text, &dependency.name);
                let message = format!("{} must not depend on {}", package.name, dependency.name);
                findings.push(Finding::new(&package.manifest, line, message));
            }
        }
    }
    findings
}

fn allowed(from: &str, to: &str, development: bool) -> bool {
    let Some((_, inward)) = ALLOWED.iter().find(|(name, _)| *name == from) else {
        // `domain` may enable its own features for its tests. Simulators and testkit use no workspace crate.
        return development && from == to;
    };
    inward.contains(&to) || (development && (to == from || FOR_TESTS.contains(&to)))
}

/// Returns every forbidden crate in `cargo tree -p recado-domain`.
pub(super) fn domain_reach(tree: &str) -> Vec<Finding> {
    let mut names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    names.dedup();
    let forbidden = |name: &&&str| {
        UNREACHABLE.contains(*name) || UNREACHABLE_FAMILIES.iter().any(|family| name.starts_with(family))
    };
    let message = |name: &&str| Finding::new(DOMAIN, 1, format!("recado-domain must not reach {name} (cargo tree)"));
    names.iter().filter(forbidden).map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn crate_dependencies_point_inward() {
        assert!(allowed("recado-server", "recado-postgres", false));
        assert!(allowed("recado-server", "recado-api", false));
        assert!(allowed("recado-postgres", "recado-domain", false));
        assert!(!allowed("recado-api", "recado-postgres", true));
        assert!(!allowed("recado-domain", "recado-postgres", false));
        assert!(!allowed("recado-domain", "recado-postgres", true));
        assert!(!allowed("recado-postgres", "recado-redis", false));
        assert!(!allowed("recado-gateways", "recado-server", false));
    }

    #[test]
    fn simulators_are_used_only_in_tests() {
        assert!(allowed("recado-server", "recado-simulators", true));
        assert!(!allowed("recado-server", "recado-simulators", false));
        assert!(!allowed("recado-domain", "recado-simulators", true));
        assert!(!allowed("recado-simulators", "recado-domain", false));
        assert!(!allowed("recado-simulators", "recado-domain", true));
        assert!(!allowed("xtask", "recado-domain", false));
    }

    #[test]
    fn testkit_is_used_by_tools_and_in_tests() {
        assert!(allowed("xtask", "recado-testkit", false));
        assert!(allowed("recado-bench", "recado-testkit", false));
        assert!(allowed("recado-server", "recado-testkit", true));
        assert!(!allowed("recado-server", "recado-testkit", false));
        assert!(!allowed("recado-domain", "recado-testkit", true));
        assert!(!allowed("recado-testkit", "recado-postgres", false));
        assert!(!allowed("recado-server", "recado-bench", true));
    }

    #[test]
    fn crate_may_use_itself_as_dev_dependency() {
        assert!(allowed("recado-postgres", "recado-postgres", true));
        assert!(allowed("recado-domain", "recado-domain", true));
    }

    #[test]
    fn forbidden_dependency_is_found_in_metadata() {
        let metadata = json!({ "packages": [
            { "name": "recado-domain", "manifest_path": "/r/crates/domain/Cargo.toml", "dependencies": [
                { "name": "serde", "kind": null }, { "name": "recado-redis", "kind": null } ] },
            { "name": "recado-redis", "manifest_path": "/r/crates/redis/Cargo.toml", "dependencies": [
                { "name": "recado-domain", "kind": null }, { "name": "recado-simulators", "kind": "dev" } ] },
            { "name": "recado-simulators", "manifest_path": "/r/crates/simulators/Cargo.toml", "dependencies": [] },
        ] });
        let findings = check(&packages(&metadata, Path::new("/r")));
        let expected = Finding::new(DOMAIN, 1, "recado-domain must not depend on recado-redis");
        assert_eq!(findings, [expected]);
    }

    #[test]
    fn domain_reaches_no_runtime() {
        let tree = "recado-domain v0.1.0 (/r)\nserde v1.0.0\nrandom-words v1.0.0\nserde v1.0.0 (*)\n";
        assert!(domain_reach(tree).is_empty());
        let found = domain_reach("recado-domain v0.1.0\ntokio-util v0.7.0\nrand v0.10.0\nrand v0.10.0 (*)\n");
        assert_eq!(found.len(), 2);
        assert!(found[1].message.contains("tokio-util"));
    }
}
