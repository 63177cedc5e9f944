//! What may lie at the top of the repository: one place for each kind of thing. And that the map of a crate shows all of
//! its modules.

use super::Finding;

const TOP: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "crates",
    "migrations",
    "xtask",
    "docs",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];

pub(super) fn check(files: &[String]) -> Vec<Finding> {
    let mut tops: Vec<&str> = files.iter().filter_map(|file| file.split('/').next()).collect();
    tops.sort_unstable();
    tops.dedup();
    let strays = tops
        .into_iter()
        .filter(|top| !top.starts_with('.') && !TOP.contains(top));
    strays
        .map(|top| Finding::new(top, 1, "does not belong at the top of the repository"))
        .collect()
}

/// The crates whose README is a map of their modules.
const MAPPED: &[&str] = &["domain", "gateways", "postgres", "server"];

/// Modules that the README of their crate does not name.
pub(super) fn unmapped(file: &str, text: &str, files: &[String]) -> Vec<Finding> {
    let Some(folder) = file.strip_suffix("README.md") else {
        return Vec::new();
    };
    if !MAPPED.iter().any(|name| folder == format!("crates/{name}/")) {
        return Vec::new();
    }
    let sources = format!("{folder}src/");
    let below = files.iter().filter_map(|file| file.strip_prefix(sources.as_str()));
    let mut modules: Vec<&str> = below.filter_map(|path| path.split(['/', '.']).next()).collect();
    modules.sort_unstable();
    modules.dedup();
    let shown = |name: &str| text.contains(&format!("`{name}`")) || text.contains(&format!("`src/{name}"));
    let missing = modules.into_iter().filter(|name| *name != "lib" && !shown(name));
    missing
        .map(|name| Finding::new(file, 1, format!("does not say what the module `{name}` is")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_no_map_shows_is_found() {
        let files =
            ["lib.rs", "pool.rs", "mail/mod.rs", "mail/queue.rs", "sql.rs"].map(|f| format!("crates/postgres/src/{f}"));
        let found = unmapped("crates/postgres/README.md", "`pool` and `src/sql.rs`", &files);
        let only = "does not say what the module `mail` is";
        assert_eq!(found, [Finding::new("crates/postgres/README.md", 1, only)]);
        assert_eq!(unmapped("crates/redis/README.md", "", &files), []);
        assert_eq!(unmapped("docs/README.md", "", &files), []);
    }

    #[test]
    fn strays_are_found_once() {
        let files = [
            "Cargo.toml",
            ".ci/run",
            "crates/a/b.rs",
            "notes/a.md",
            "notes/b.md",
            "x.sh",
        ];
        let findings = check(&files.map(str::to_owned));
        assert_eq!(
            findings.iter().map(|found| found.path.as_str()).collect::<Vec<_>>(),
            ["notes", "x.sh"]
        );
    }
}
