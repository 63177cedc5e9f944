//! Checks the entries at the top of the repository, that a crate's README names all of its modules, and that the index
//! of the decisions lists all of them.

use super::finding::Finding;

const TOP: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "crates",
    "migrations",
    "xtask",
    "docs",
    "README.md",
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

/// The crates whose README must name all modules.
const MAPPED: &[&str] = &["domain", "gateways", "postgres", "server", "testkit"];

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
        .map(|name| Finding::new(file, 1, format!("does not describe the module `{name}`")))
        .collect()
}

/// The index of the decisions.
const DECISIONS: &str = "docs/decisions/README.md";

/// Decisions that their index does not link to.
pub(super) fn unlisted(file: &str, text: &str, files: &[String]) -> Vec<Finding> {
    if file != DECISIONS {
        return Vec::new();
    }
    let beside = files.iter().filter_map(|file| file.strip_prefix("docs/decisions/"));
    let missing = beside.filter(|name| *name != "README.md" && !text.contains(&format!("]({name})")));
    missing
        .map(|name| Finding::new(file, 1, format!("does not list {name}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_missing_in_the_readme_is_found() {
        let files =
            ["lib.rs", "pool.rs", "mail/mod.rs", "mail/queue.rs", "sql.rs"].map(|f| format!("crates/postgres/src/{f}"));
        let found = unmapped("crates/postgres/README.md", "`pool` and `src/sql.rs`", &files);
        let only = "does not describe the module `mail`";
        assert_eq!(found, [Finding::new("crates/postgres/README.md", 1, only)]);
        assert_eq!(unmapped("crates/redis/README.md", "", &files), []);
        assert_eq!(unmapped("docs/README.md", "", &files), []);
    }

    #[test]
    fn decision_missing_in_the_index_is_found() {
        let files = [
            "docs/decisions/README.md",
            "docs/decisions/0001-a.md",
            "docs/decisions/0002-b.md",
        ]
        .map(str::to_owned);
        let found = unlisted(DECISIONS, "- [1. A](0001-a.md)", &files);
        assert_eq!(found, [Finding::new(DECISIONS, 1, "does not list 0002-b.md")]);
        assert_eq!(unlisted("docs/faults.md", "", &files), []);
    }

    #[test]
    fn unexpected_top_level_entry_is_found_once() {
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
