//! Rules for Rust files: length of files and functions, module docs, ignored tests and `ctid`.

use super::finding::Finding;
use super::tokens::{functions, is_readable, tokens};

const FILE: usize = 500;
/// `cargo xtask schema` writes it.
const GENERATED: &str = "crates/schema/src/tables.rs";
const FUNCTION: usize = 70;
/// A route parses its request, calls one use case and maps the result. Anything longer is logic that belongs elsewhere.
const ROUTE: usize = 25;
const ROUTES: &str = "crates/api/src/routes";

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") && !path.ends_with("build.rs") {
        findings.push(Finding::new(path, 1, "does not begin with module docs (//!)"));
    }
    if !is_readable(text) {
        findings.push(Finding::new(path, 1, "cannot be read as Rust, so no rule is checked"));
    }
    let lines = text.lines().count();
    if lines > FILE && is_source(path) && path != GENERATED {
        findings.push(Finding::new(
            path,
            FILE + 1,
            format!("{lines} lines, more than {FILE}: split the file"),
        ));
    }
    let limit = if path.starts_with(ROUTES) { ROUTE } else { FUNCTION };
    for function in functions(&tokens(text))
        .into_iter()
        .filter(|function| function.lines > limit)
    {
        let message = format!(
            "function {} has {} lines, more than {limit}",
            function.name, function.lines
        );
        findings.push(Finding::new(path, function.line, message));
    }
    // Clippy refuses todo!, unimplemented! and dbg!.
    let ignored = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.trim_start().starts_with("#[ignore"));
    for (line, _) in ignored.filter(|(_, line)| !names_stress_suite(line)) {
        findings.push(Finding::new(
            path,
            line,
            "an ignored test must name the stress suite that runs it",
        ));
    }
    findings.extend(ctid_uses(path, text));
    findings
}

/// A `ctid` is unique within one heap only. In a partitioned table it also identifies rows of other accounts.
fn ctid_uses(path: &str, text: &str) -> Vec<Finding> {
    if !path.starts_with("crates/postgres/src/") {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let named = lines.filter(|(_, line)| contains_word(&line.to_lowercase(), "ctid"));
    named
        .map(|(at, _)| {
            Finding::new(
                path,
                at + 1,
                "ctid identifies no row of a partitioned table: use the primary key",
            )
        })
        .collect()
}

/// Whether the file is below a `src`. Integration tests may be longer.
fn is_source(path: &str) -> bool {
    path.starts_with("xtask/src/") || (path.starts_with("crates/") && path.split('/').nth(2) == Some("src"))
}

/// Whether the line ignores a test and names the stress suite that runs it.
fn names_stress_suite(line: &str) -> bool {
    line.trim_start().starts_with("#[ignore = \"") && line.contains(": cargo xtask stress ")
}

/// Whether the line contains `word`, but not as the end of a longer word.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|head| head.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("//! Docs.\nfn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    #[test]
    fn long_function_is_found() {
        assert_eq!(check("crates/a/src/b.rs", &function(70)), []);
        let found = check("crates/a/src/b.rs", &function(71));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
        assert_eq!(check("crates/api/src/routes/team.rs", &function(25)), []);
        assert_eq!(check("crates/api/src/routes/team.rs", &function(26)).len(), 1);
    }

    #[test]
    fn files_have_a_limit() {
        let text = |lines: usize| "//! Docs.\n".repeat(lines);
        assert_eq!(check("crates/a/src/b.rs", &text(500)), []);
        assert_eq!(check("crates/a/src/b.rs", &text(501)).len(), 1);
        assert_eq!(check("xtask/src/b.rs", &text(501)).len(), 1);
        assert_eq!(check("crates/a/tests/b.rs", &text(501)), []);
    }

    #[test]
    fn file_without_module_docs_is_found() {
        assert_eq!(check("crates/a/src/b.rs", "fn main() {}\n").len(), 1);
        assert_eq!(check("crates/a/build.rs", "fn main() {}\n"), []);
    }

    #[test]
    fn ctid_is_found_in_sql_of_stores() {
        let text =
            "//! Docs.\nconst A: &str = \"DELETE FROM t WHERE CTID = $1\";\nconst B: &str = \"a direct_ctid\";\n";
        let found = check("crates/postgres/src/a.rs", text);
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
        assert_eq!(check("crates/postgres/tests/it/a.rs", text), []);
    }

    #[test]
    fn ignored_test_without_a_stress_suite_is_found() {
        let found = check(
            "crates/a/src/b.rs",
            "//! x\n#[ignore = \"x\"]\nfn a() {}\n#[ignore]\nfn b() {}\n",
        );
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 4]);
        let ignored = "//! x\n#[ignore = \"measures time: cargo xtask stress timing\"]\nfn a() {}\n";
        assert_eq!(check("crates/a/src/b.rs", ignored), []);
    }
}
