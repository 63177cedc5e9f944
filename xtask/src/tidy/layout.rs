//! What may lie at the top of the repository: one place for each kind of thing.

use super::Finding;

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

#[cfg(test)]
mod tests {
    use super::*;

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
