//! Checks that a crate's manifest inherits from the workspace: lints, package data, and the version of every
//! dependency.

use super::Finding;

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut section = String::new();
    let mut inherited: Vec<&str> = Vec::new();
    let mut lints = false;
    for (number, line) in entries(text) {
        if let Some(name) = line.strip_prefix('[') {
            name.trim_matches(['[', ']']).clone_into(&mut section);
            if is_dependency_table(&section) {
                findings.push(Finding::new(
                    path,
                    number,
                    "write the dependency in one line, with workspace = true",
                ));
            }
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .map_or((line.as_str(), ""), |(key, value)| (key.trim(), value.trim()));
        match section.as_str() {
            "package" => inherited.extend(INHERITED.iter().filter(|name| key == format!("{name}.workspace"))),
            "lints" => lints |= key == "workspace" && value == "true",
            other if is_dependencies(other) && !from_workspace(key, value) => {
                let message = format!("{key} does not take its version from the workspace (workspace = true)");
                findings.push(Finding::new(path, number, message));
            }
            _ => {}
        }
    }
    for name in INHERITED.iter().filter(|name| !inherited.contains(name)) {
        findings.push(Finding::new(path, 1, format!("{name}.workspace = true is missing")));
    }
    if !lints {
        findings.push(Finding::new(path, 1, "[lints] workspace = true is missing"));
    }
    findings
}

fn from_workspace(key: &str, value: &str) -> bool {
    let spaceless: String = value.chars().filter(|c| !c.is_whitespace()).collect();
    (key.ends_with(".workspace") && value == "true")
        || (spaceless.contains("workspace=true") && !spaceless.contains("version="))
}

/// `dependencies`, `dev-dependencies`, `build-dependencies`, also of a target.
fn is_dependencies(section: &str) -> bool {
    section.ends_with("dependencies")
}

/// `[dependencies.name]`.
fn is_dependency_table(section: &str) -> bool {
    section.contains("dependencies.")
}

/// The lines of a manifest without comments, each number with its line; an array over many lines counts as one.
fn entries(text: &str) -> Vec<(usize, String)> {
    let mut entries: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        match entries.last_mut() {
            Some((_, last)) if open => last.push_str(line),
            _ => entries.push((at + 1, line.to_owned())),
        }
        let last = entries.last().map_or("", |(_, last)| last);
        open = last.matches(['[', '{']).count() > last.matches([']', '}']).count();
    }
    entries
}

/// A `#` inside a string is part of it.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let end = line.find(|c| {
        quoted ^= c == '"';
        c == '#' && !quoted
    });
    end.and_then(|end| line.get(..end)).unwrap_or(line)
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
        assert_eq!(
            check(
                "x",
                &GOOD.replace("workspace = true, features", "version = \"1\", features")
            )
            .len(),
            1
        );
        assert_eq!(
            check(
                "x",
                &GOOD.replace("[lints]", "[dev-dependencies]\nx = { path = \"../x\" }\n[lints]")
            )
            .len(),
            1
        );
        assert_eq!(
            check(
                "x",
                &GOOD.replace("[lints]", "[dependencies.x]\nworkspace = true\n[lints]")
            )
            .len(),
            1
        );
    }
}
