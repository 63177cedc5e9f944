//! Rules for every SQL file under `migrations`, and for the statements of the stores.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::tokens::{strings, tokens, without_tests};

/// What no migration may contain, and why.
const FORBIDDEN: &[(&str, &str)] = &[
    (
        "CREATE TRIGGER",
        "a trigger acts unseen: the statement that needs the effect names it",
    ),
    (
        "SECURITY DEFINER",
        "row-level security does not bind such a function: the platform runs the statement",
    ),
    (
        "ON DELETE SET NULL",
        "the deletion clears the column by a statement: Citus refuses the action",
    ),
];

/// `text` is a file under `migrations`.
pub(super) fn check_migration(path: &str, text: &str) -> Vec<Finding> {
    if !path.starts_with("migrations/") || path == "migrations/schema.sql" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let stored: BTreeSet<&str> = text
        .split("set_storage('")
        .skip(1)
        .filter_map(|rest| rest.split('\'').next())
        .collect();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split("--").next().unwrap_or_default();
        for (phrase, reason) in FORBIDDEN {
            if content.to_uppercase().contains(phrase) {
                findings.push(Finding::new(path, line, format!("{phrase}: {reason}")));
            }
        }
        if let Some(table) =
            created_table(content).filter(|table| !stored.contains(table) && !is_partitioned(text, table))
        {
            let message = format!("{table} has no storage class: SELECT set_storage('{table}', ...)");
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

const STORES: &str = "crates/postgres/src/";
/// `cargo xtask schema` writes it.
const GENERATED: &str = "crates/schema/src/tables.rs";
/// A longer statement is a file of its own, which has a row in the table of plan tests.
const STATEMENT: usize = 12;
const VERBS: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];

/// `text` is a Rust file.
pub(super) fn check_statements(path: &str, text: &str) -> Vec<Finding> {
    if !path.starts_with(STORES) || path == GENERATED {
        return Vec::new();
    }
    let (tokens, _) = without_tests(tokens(text));
    let statements = strings(&tokens).filter(|literal| {
        let mut words = literal.text.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| VERBS.contains(&word))
    });
    let problems = statements.filter_map(|literal| Some((literal.line, statement_problem(&literal.text)?)));
    problems
        .map(|(line, problem)| Finding::new(path, line, problem))
        .collect()
}

fn statement_problem(text: &str) -> Option<String> {
    let lines = text.trim_matches(['"', '\n', ' ']).lines().count();
    if lines > STATEMENT {
        return Some(format!(
            "statement of {lines} lines, more than {STATEMENT}: move it into a .sql file beside the module"
        ));
    }
    chooses_in_subquery(text).then(|| {
        "rows are chosen by IN (SELECT ... SKIP LOCKED), which may run for every row and exceed its limit: choose them \
         in a WITH ... AS MATERIALIZED"
            .to_owned()
    })
}

/// Whether a subquery after `IN` locks some rows that no other transaction has locked. The planner may execute it again
/// for every row of the outer statement, and each time it finds other rows.
fn chooses_in_subquery(text: &str) -> bool {
    let words = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace("( SELECT", "(SELECT");
    words.split(" IN (SELECT").skip(1).any(|rest| {
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        rest.get(..end.unwrap_or(rest.len()))
            .is_some_and(|subquery| [" LIMIT ", "SKIP LOCKED"].iter().all(|part| subquery.contains(part)))
    })
}

fn created_table(line: &str) -> Option<&str> {
    let rest = ["CREATE TABLE ", "CREATE UNLOGGED TABLE "]
        .iter()
        .find_map(|start| line.strip_prefix(start))?;
    rest.split([' ', '(']).next()
}

/// Partitions get their storage parameters when they are created, and their parent cannot have any.
fn is_partitioned(text: &str, table: &str) -> bool {
    let definition = text.split(&format!("TABLE {table} (")).nth(1);
    let end = definition.and_then(|rest| rest.split("\n)").nth(1));
    end.is_some_and(|rest| rest.starts_with(" PARTITION BY"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "migrations/2027-01-01-000001_x/up.sql";

    fn lines(text: &str) -> Vec<usize> {
        check_migration(PATH, text)
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn tables_need_a_storage_class() {
        let table = "CREATE TABLE fresh (\n  a int\n);\n";
        assert_eq!(lines(table), [1]);
        assert!(lines(&format!("{table}SELECT set_storage('fresh', 'entity');\n")).is_empty());
        assert!(lines("CREATE TABLE fresh (\n  -- Docs; more.\n  a int\n) PARTITION BY RANGE (a);\n").is_empty());
    }

    #[test]
    fn long_statements_are_found() {
        let path = "crates/postgres/src/a.rs";
        let text = |lines: usize| {
            format!(
                "//! x\nconst A: &str = \"\n  SELECT 1{}\";\n",
                "\n, 1".repeat(lines - 1)
            )
        };
        assert_eq!(check_statements(path, &text(12)), []);
        let found = check_statements(path, &text(13));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
        assert_eq!(check_statements(path, &text(13).replace("SELECT", "a")), []);
        assert_eq!(
            check_statements(path, &format!("#[cfg(test)]\nmod tests {{\n{}", text(13))),
            []
        );
        assert_eq!(check_statements(GENERATED, &text(13)), []);
        assert_eq!(check_statements("crates/postgres/tests/it/a.rs", &text(13)), []);
    }

    #[test]
    fn hidden_effects_are_found() {
        assert_eq!(lines("SELECT 1;\nCREATE TRIGGER t AFTER INSERT ON x"), [2]);
        assert_eq!(lines("CREATE FUNCTION f() RETURNS int SECURITY DEFINER"), [1]);
        assert!(lines("-- no SECURITY DEFINER here\n").is_empty());
        assert_eq!(lines("    REFERENCES x (a, b) ON DELETE SET NULL (b)"), [1]);
    }

    #[test]
    fn limited_choices_are_materialized() {
        let statement =
            |text: &str| check_statements("crates/postgres/src/x.rs", &format!("const A: &str = \"{text}\";"));
        let subquery =
            "DELETE FROM a WHERE (b, c) IN (\n  SELECT b, c FROM a WHERE d <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)";
        assert_eq!(statement(subquery).len(), 1);
        let choice = "WITH old AS MATERIALIZED (SELECT b FROM a LIMIT $1 FOR UPDATE SKIP LOCKED)";
        assert!(statement(&format!("{choice} DELETE FROM a WHERE b IN (SELECT b FROM old)")).is_empty());
    }
}
