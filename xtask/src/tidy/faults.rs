//! Checks docs/faults.md: every fault has one row, and every named test exists.

use std::path::Path;

use super::finding::Finding;

const PAGE: &str = "docs/faults.md";

/// The ids of all faults.
fn names() -> Vec<String> {
    let whole = (1..40).map(|number| format!("F{number:02}"));
    let parts = ('a'..='h').map(|part| format!("F40{part}"));
    whole.chain(parts).collect()
}

pub(super) fn check(root: &Path) -> Vec<Finding> {
    let page = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let source = |file: &str| std::fs::read_to_string(root.join("crates").join(file)).ok();
    check_page(&page, &source)
}

fn check_page(page: &str, source: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let mut finding = |message: String| findings.push(Finding::new(PAGE, at + 1, message));
        let row = line.strip_prefix("| ").and_then(|rest| rest.split_once(" | "));
        if let Some((name, cells)) = row.filter(|(name, _)| name.starts_with('F')) {
            rows.push(name.to_owned());
            if !cells.contains(".rs::") && !cells.contains("Refused:") {
                finding(format!("{name} must name a test or a refusal"));
            }
        }
        // Every code span (text between backticks).
        for code in line.split('`').skip(1).step_by(2) {
            let Some((file, test)) = code.split_once(".rs::") else {
                continue;
            };
            let Some(text) = source(&format!("{file}.rs")) else {
                finding(format!("there is no crates/{file}.rs"));
                continue;
            };
            if !text.contains(&format!("fn {test}(")) {
                finding(format!("{file}.rs has no test {test}"));
            }
        }
    }
    for name in names() {
        if rows.iter().filter(|row| **row == name).count() != 1 {
            findings.push(Finding::new(PAGE, 1, format!("{name} must have exactly one row")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_rows_must_name_existing_tests() {
        let source = |file: &str| (file == "a/b.rs").then(|| "fn good() {}\n".to_owned());
        let row = |name: &String| format!("| {name} | what | `a/b.rs::good` |\n");
        let page: String = names().iter().map(row).collect();
        assert_eq!(check_page(&page, &source), []);
        let found = |change: &str| check_page(&page.replacen("a/b.rs::good", change, 1), &source).len();
        assert_eq!(found("a/b.rs::gone"), 1);
        assert_eq!(found("a/gone.rs::good"), 1);
        assert_eq!(found("nothing"), 1);
        assert_eq!(check_page(&page.replacen("| F07", "| F06", 1), &source).len(), 2);
        assert_eq!(check_page("", &source).len(), names().len());
    }
}
