//! Checks that a crate's manifest inherits from the workspace: lints, package data, and the version of every
//! dependency.

use toml::{Table, Value};

use super::finding::Finding;

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::new(path, 1, error.to_string())],
    };
    let mut findings = Vec::new();
    for name in INHERITED {
        if !inherits(manifest.get("package").and_then(|package| package.get(name))) {
            findings.push(Finding::new(path, 1, format!("{name}.workspace = true is missing")));
        }
    }
    if !inherits(manifest.get("lints")) {
        findings.push(Finding::new(path, 1, "[lints] workspace = true is missing"));
    }
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let sections = tables.chain([&manifest]).flatten();
    for (_, section) in sections.filter(|(name, _)| name.ends_with("dependencies")) {
        for (name, dependency) in section.as_table().into_iter().flatten() {
            if !inherits(Some(dependency)) {
                let message = format!("{name} does not take its version from the workspace (workspace = true)");
                findings.push(Finding::new(path, line_of(text, name), message));
            }
        }
    }
    findings
}

fn inherits(value: Option<&Value>) -> bool {
    let workspace = value.and_then(|value| value.get("workspace"));
    workspace.and_then(Value::as_bool) == Some(true)
}

/// The line of a manifest that begins with a name.
pub(super) fn line_of(manifest: &str, name: &str) -> usize {
    let named = |line: &str| line.trim_start().starts_with(name);
    manifest.lines().position(named).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]
name = \"x\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true

[dependencies]
serde.workspace = true # with a comment
uuid = { workspace = true, features = [
    \"v4\", # one
    \"v7\",
] }

[lints]
workspace = true
";

    #[test]
    fn complete_manifest_has_no_findings() {
        assert_eq!(check("x", GOOD), []);
    }

    #[test]
    fn manifest_omission_is_found() {
        for name in INHERITED {
            let text = GOOD.replace(&format!("\n{name}.workspace = true"), &format!("\n{name} = \"1\""));
            assert_eq!(check("x", &text).len(), 1, "{name}");
        }
        assert_eq!(check("x", &GOOD.replace("[lints]", "[other]")).len(), 1);
    }

    #[test]
    fn manifest_with_own_version_is_found() {
        let found = check("x", &GOOD.replace("serde.workspace = true", "serde = \"1\""));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [10]);
        let dev = "[dev-dependencies]\nx = { path = \"../x\" }\n[lints]";
        assert_eq!(check("x", &GOOD.replace("[lints]", dev)).len(), 1);
        let target = "[target.'cfg(unix)'.dependencies]\nx = \"1\"\n[lints]";
        assert_eq!(check("x", &GOOD.replace("[lints]", target)).len(), 1);
        let table = "[dependencies.x]\nworkspace = true\n[lints]";
        assert_eq!(check("x", &GOOD.replace("[lints]", table)), []);
        assert_eq!(check("x", "[package").len(), 1);
    }
}
