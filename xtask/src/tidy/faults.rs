//! Checks docs/faults.md: every fault has one row, every named test runs in the gate, and every number of a row is the
//! value of a constant of its tests.

use std::path::Path;

use super::finding::Finding;
use super::tokens::{self, Token};

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
        let quoted = check_references(line, source, &mut finding);
        let row = line.strip_prefix("| ").and_then(|rest| rest.split_once(" | "));
        if let Some((name, cells)) = row.filter(|(name, _)| name.starts_with('F')) {
            rows.push(name.to_owned());
            if !cells.contains(".rs::") && !cells.contains("Refused:") {
                finding(format!("{name} must name a test or a refusal"));
            }
            for number in numbers(cells) {
                if !quoted.contains(&number) {
                    finding(format!(
                        "{name} says {number}: quote the constant behind its test, as `NAME = {number}`"
                    ));
                }
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

/// Checks the tests that a line names, and the constants that it quotes behind them: `a/b.rs::test`, `NAME = 5`.
/// Returns the numbers of the constants.
fn check_references(
    line: &str,
    source: &dyn Fn(&str) -> Option<String>,
    finding: &mut dyn FnMut(String),
) -> Vec<String> {
    let mut quoted = Vec::new();
    let mut last: Option<(&str, Vec<Token>)> = None;
    for code in line.split('`').skip(1).step_by(2) {
        if let Some((file, test)) = code.split_once(".rs::") {
            let Some(text) = source(&format!("{file}.rs")) else {
                finding(format!("there is no crates/{file}.rs"));
                continue;
            };
            let tokens = tokens::tokens(&text);
            match tokens::test_functions(&tokens).iter().find(|found| found.name == test) {
                None => finding(format!("{file}.rs has no test {test}")),
                Some(found) if found.ignored => finding(format!("{file}.rs::{test} is ignored")),
                Some(_) => {}
            }
            last = Some((file, tokens));
        } else if let Some((name, value)) = code.split_once(" = ") {
            let Some((file, tokens)) = &last else {
                finding(format!("`{code}` must follow the test that it is taken from"));
                continue;
            };
            match tokens::constants(tokens, name).as_slice() {
                [found] if quoted_value(found).as_deref() == Some(value) => {
                    quoted.extend(value.split(' ').next().map(str::to_owned));
                }
                [found] => finding(format!("{file}.rs has {name} = {}, not {value}", found.concat())),
                found => finding(format!("{file}.rs has {} constants {name}", found.len())),
            }
        }
    }
    quoted
}

/// A constant's value as the page quotes it: a number, a time (`2 s`, `50 ms`) or a size (`8 MiB`).
fn quoted_value(value: &[&str]) -> Option<String> {
    let plain = |number: &str| {
        let digits = number.replace('_', "");
        digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)
    };
    match value {
        [number] => plain(number),
        ["Duration", "::", "from_secs", "(", number, ")"] => Some(format!("{} s", plain(number)?)),
        ["Duration", "::", "from_millis", "(", number, ")"] => Some(format!("{} ms", plain(number)?)),
        [number, "*", "1024", "*", "1024"] => Some(format!("{} MiB", plain(number)?)),
        ["1024", "*", "1024"] => Some("1 MiB".to_owned()),
        _ => None,
    }
}

/// The numbers outside of code spans, without the commas between thousands. Names such as F40 are not numbers.
fn numbers(text: &str) -> Vec<String> {
    let prose = text.split('`').step_by(2);
    let words = prose.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != ','));
    let digits = words.map(|word| word.replace(',', ""));
    digits
        .filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "const CLIENTS: usize = 1_500;\nconst BOUND: Duration = Duration::from_secs(2);\n\
        const GROWTH: u64 = 8 * 1024 * 1024;\n#[test]\nfn good() {\n    const A: u8 = 1;\n}\n\
        #[test]\nfn other() {\n    const A: u8 = 2;\n}\n\
        #[tokio::test]\n#[ignore = \"slow: cargo xtask stress x\"]\nasync fn slow() {}\nfn helper() {}\n";

    fn source(file: &str) -> Option<String> {
        (file == "a/b.rs").then(|| SOURCE.to_owned())
    }

    /// A page without findings, with this row of F07.
    fn page(row: &str) -> String {
        let line = |name: &String| match name.as_str() {
            "F07" => format!("| F07 | {row} |\n"),
            _ => format!("| {name} | what | `a/b.rs::good` |\n"),
        };
        names().iter().map(line).collect()
    }

    #[test]
    fn fault_rows_must_name_tests_that_run() {
        let found = |test: &str| check_page(&page(&format!("what | {test}")), &source).len();
        assert_eq!(found("`a/b.rs::good`"), 0);
        for test in ["`a/b.rs::gone`", "`a/gone.rs::good`", "nothing"] {
            assert_eq!(found(test), 1, "{test}");
        }
        assert_eq!(found("`a/b.rs::helper`"), 1, "not a test");
        assert_eq!(found("`a/b.rs::slow`"), 1, "ignored");
        let twice = page("what | `a/b.rs::good`").replacen("| F07", "| F06", 1);
        assert_eq!(check_page(&twice, &source).len(), 2);
        assert_eq!(check_page("", &source).len(), names().len());
    }

    #[test]
    fn numbers_of_fault_rows_must_be_those_of_the_tests() {
        let found = |row: &str| check_page(&page(row), &source).len();
        let quotes = "`a/b.rs::good` (`CLIENTS = 1500`, `BOUND = 2 s`, `GROWTH = 8 MiB`)";
        assert_eq!(found(&format!("1,500 clients in 2 s, 8 MiB, `503`, F40 | {quotes}")), 0);
        assert_eq!(found("500 clients | `a/b.rs::good`"), 1, "without a constant");
        assert_eq!(found(&format!("1,500 clients in 3 s | {quotes}")), 1, "another number");
        for wrong in ["CLIENTS = 500", "CLIENTS = 1500 s", "BOUND = 2", "GONE = 5", "A = 1"] {
            assert_eq!(found(&format!("what | `a/b.rs::good` (`{wrong}`)")), 1, "{wrong}");
        }
        assert_eq!(found("`CLIENTS = 1500` | `a/b.rs::good`"), 1, "before its test");
    }
}
