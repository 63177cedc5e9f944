//! Checks that a migration does not stop servers of the previous version, as far as its text shows.
//! `docs/operating/migrations.md` gives the reasons and the alternatives.

use std::collections::BTreeSet;

use super::finding::Finding;

/// The end of the names of migrations that make the first release's schema. They never run on a database in use.
const BASELINE: &str = "_baseline/up.sql";

/// Comment that permits a statement and gives the reason.
const SAFE: &str = "-- safe:";

/// Comment that names the release since which a dropped object is no longer used.
const UNUSED: &str = "-- unused since:";

/// Volatile functions: as the default of a new column they rewrite the table.
const VOLATILE: &[&str] = &["GEN_RANDOM_UUID(", "RANDOM(", "CLOCK_TIMESTAMP(", "NEXTVAL(", "UUIDV7("];

struct Statement {
    line: usize,
    /// The original text with its comments.
    source: String,
    /// Upper case, single spaces, without comments and without the content of string literals.
    words: String,
}

/// `metadata` is the text of the migration's `metadata.toml`.
pub(super) fn check(path: &str, text: &str, metadata: &str) -> Vec<Finding> {
    let is_migration = path.starts_with("migrations/") && path.ends_with("/up.sql");
    if !is_migration || path.ends_with(BASELINE) {
        return Vec::new();
    }
    let statements = statements(text);
    let created: BTreeSet<String> = statements
        .iter()
        .filter_map(|s| after(&s.words, &["CREATE TABLE", "CREATE UNLOGGED TABLE"]))
        .collect();
    let mut findings = Vec::new();
    let mut altered: Option<String> = None;
    for statement in &statements {
        let mut find = |message: &str| findings.push(Finding::new(path, statement.line, message));
        if let Some(table) = target(&statement.words).filter(|table| !created.contains(table)) {
            if !statement.source.contains(SAFE) {
                alter_problems(statement).into_iter().for_each(&mut find);
            }
            if altered.as_ref().is_some_and(|first| *first != table) {
                find(
                    "a second existing table in one migration: the first stays locked while this waits for the second",
                );
            }
            altered.get_or_insert(table);
        }
        other_problems(statement, &created).into_iter().for_each(&mut find);
        let alone = statements.len() == 1 && metadata.replace(' ', "").contains("run_in_transaction=false");
        if has(&statement.words, "CONCURRENTLY") && !alone {
            find("CONCURRENTLY requires its own migration and a metadata.toml with run_in_transaction = false");
        }
    }
    findings
}

/// The table that an `ALTER TABLE` changes.
fn target(words: &str) -> Option<String> {
    after(words, &["ALTER TABLE ONLY", "ALTER TABLE IF EXISTS", "ALTER TABLE"])
}

/// The name after the first of `starts` with which the statement begins.
fn after(words: &str, starts: &[&str]) -> Option<String> {
    let rest = starts.iter().find_map(|start| words.strip_prefix(start))?;
    let rest = rest.strip_prefix(" IF NOT EXISTS").unwrap_or(rest);
    let name = rest.split([' ', '(']).find(|word| !word.is_empty())?;
    Some(name.trim_start_matches("PUBLIC.").to_owned())
}

/// Whether the statement contains `phrase` at word boundaries.
fn has(words: &str, phrase: &str) -> bool {
    let bounded = |at: usize| {
        let before = words.get(..at).and_then(|text| text.chars().next_back());
        let behind = words.get(at + phrase.len()..).and_then(|text| text.chars().next());
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_word(before) && !is_word(behind)
    };
    words.match_indices(phrase).any(|(at, _)| bounded(at))
}

/// Problems of an `ALTER TABLE` of a table that is in use, action by action.
fn alter_problems(statement: &Statement) -> Vec<&'static str> {
    let words = &statement.words;
    let mut problems = Vec::new();
    let mut report_if = |is_problem: bool, message: &'static str| {
        if is_problem {
            problems.push(message);
        }
    };
    for action in actions(words) {
        let adds = has(action, "ADD COLUMN");
        report_if(
            adds && has(action, "NOT NULL") && !has(action, "DEFAULT") && !has(action, "GENERATED"),
            "a NOT NULL column without a DEFAULT: the previous version can no longer insert",
        );
        report_if(
            adds && (VOLATILE.iter().any(|call| action.contains(call)) || has(action, "STORED")),
            "a column with a computed value for every row rewrites the table",
        );
        let checks = has(action, "CHECK") || has(action, "REFERENCES") || has(action, "FOREIGN KEY");
        report_if(
            has(action, "ADD") && checks && !has(action, "NOT VALID"),
            "a constraint reads every row: add it NOT VALID, and VALIDATE it in the next migration",
        );
        report_if(
            has(action, "ADD") && (has(action, "UNIQUE") || has(action, "PRIMARY KEY")) && !has(action, "USING INDEX"),
            "a key builds its index: build that CONCURRENTLY, and add the key USING INDEX",
        );
        report_if(
            has(action, "SET NOT NULL"),
            "SET NOT NULL reads every row: VALIDATE a CHECK first, and state it (-- safe: ...)",
        );
        report_if(
            has(action, "TYPE") && has(action, "ALTER"),
            "a new type rewrites the table, and the previous version does not know it",
        );
        report_if(
            has(action, "RENAME"),
            "the previous version uses the old name: add the new one, and drop the old one later",
        );
        report_if(
            has(action, "DROP")
                && !has(action, "DROP CONSTRAINT")
                && !has(action, "DROP DEFAULT")
                && !has(action, "DROP NOT NULL")
                && !statement.source.contains(UNUSED),
            "the previous version may use it: name the release that no longer does (-- unused since: ...)",
        );
    }
    problems
}

/// The actions of an `ALTER TABLE`: between commas outside of parentheses.
fn actions(words: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0_i32, 0, Vec::new());
    for (at, c) in words.char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if c == ',' && depth == 0 {
            found.extend(words.get(from..at));
            from = at + 1;
        }
    }
    found.extend(words.get(from..));
    found
}

/// Problems of all other statements.
fn other_problems(statement: &Statement, created: &BTreeSet<String>) -> Vec<&'static str> {
    let words = &statement.words;
    let safe = statement.source.contains(SAFE);
    let mut problems = Vec::new();
    let makes_index = words.starts_with("CREATE INDEX") || words.starts_with("CREATE UNIQUE INDEX");
    let on = words
        .split(" ON ")
        .nth(1)
        .and_then(|rest| rest.split([' ', '(']).find(|word| !word.is_empty()));
    let is_new = on.is_some_and(|table| created.contains(table));
    if makes_index && !safe && !has(words, "CONCURRENTLY") && !is_new {
        problems.push("building an index blocks writers: use CONCURRENTLY");
    }
    if words.starts_with("DROP INDEX") && !has(words, "CONCURRENTLY") {
        problems.push("DROP INDEX waits for all transactions: use CONCURRENTLY");
    }
    if words.starts_with("DROP TABLE") && !statement.source.contains(UNUSED) {
        problems.push("the previous version may use it: name the release that no longer does (-- unused since: ...)");
    }
    if (words.starts_with("UPDATE ") || words.starts_with("DELETE ")) && !safe {
        problems.push("change rows in batches, in code: a migration holds its locks until its end");
    }
    let filled = words
        .strip_prefix("INSERT INTO ")
        .and_then(|rest| rest.split([' ', '(']).next());
    if filled.is_some_and(|table| has(words, "SELECT") && !created.contains(table)) && !safe {
        problems.push("copy rows in batches, in code: a migration holds its locks until its end");
    }
    if ["LOCK_TIMEOUT", "STATEMENT_TIMEOUT"]
        .iter()
        .any(|setting| has(words, setting))
    {
        problems.push("only recado migrate sets the timeouts");
    }
    if ["BEGIN", "COMMIT", "LOCK"]
        .iter()
        .any(|word| words == word || words.starts_with(&format!("{word} ")))
    {
        problems.push("recado migrate begins and ends the transaction and takes the necessary locks");
    }
    if has(words, "VALIDATE CONSTRAINT") && has(words, "ADD") {
        problems.push("VALIDATE needs its own migration: otherwise the lock of the ADD lasts until its end");
    }
    problems
}

/// Splits a file at the semicolons outside of string literals, function bodies and comments.
fn statements(text: &str) -> Vec<Statement> {
    let (mut found, mut line, mut rest) = (Vec::new(), 1, text);
    while !rest.trim().is_empty() {
        let (end, words) = next_statement(rest);
        let source = rest.get(..end).unwrap_or(rest);
        let begins = source
            .lines()
            .position(|line| !line.trim().is_empty() && !line.trim().starts_with("--"));
        if !words.trim().is_empty() {
            found.push(Statement {
                line: line + begins.unwrap_or(0),
                source: source.to_owned(),
                words: words.split_whitespace().collect::<Vec<_>>().join(" "),
            });
        }
        line += source.matches('\n').count();
        rest = rest.get(end..).unwrap_or_default();
    }
    found
}

/// The end of the first statement, including its semicolon, and its words.
fn next_statement(text: &str) -> (usize, String) {
    let (mut at, mut words) = (0, String::new());
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let c = rest.chars().next().unwrap_or(' ');
        let until = |end: &str, from: usize| {
            rest.get(from..)
                .and_then(|tail| tail.find(end))
                .map_or(rest.len(), |found| from + found + end.len())
        };
        if rest.starts_with("--") {
            at += until("\n", 0).max(1);
            words.push(' ');
        } else if c == '\'' {
            at += until("'", 1);
            words.push_str("''");
        } else if let Some(tag) = dollar_tag(rest) {
            at += until(tag, tag.len());
            words.push_str("$$");
        } else if c == ';' {
            return (at + 1, words);
        } else {
            words.extend(c.to_uppercase());
            at += c.len_utf8();
        }
    }
    (text.len(), words)
}

/// The dollar quote (`$$` or `$name$`) at the start of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('$')?;
    let end = rest.find('$')?;
    let name = rest.get(..end)?;
    name.chars()
        .all(|c| c.is_alphanumeric() || c == '_')
        .then(|| text.get(..end + 2))?
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "migrations/2027-01-01-000031_x/up.sql";

    fn found(text: &str) -> Vec<usize> {
        check(PATH, text, "").into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn online_migrations_have_no_findings() {
        for text in [
            "-- Docs; with a semicolon.\nCREATE TABLE fresh (a int NOT NULL);\nCREATE INDEX i ON fresh (a);\nUPDATE_ME();",
            "ALTER TABLE contacts ADD COLUMN a text, ADD COLUMN b boolean NOT NULL DEFAULT false;",
            "ALTER TABLE contacts ADD CONSTRAINT c CHECK (a <> 'x; ALTER') NOT VALID;",
            "ALTER TABLE contacts VALIDATE CONSTRAINT c;",
            "CREATE TABLE fresh (a int);\nINSERT INTO fresh SELECT a FROM tags;",
            "INSERT INTO plans VALUES ('a');",
            "ALTER TABLE contacts ADD CONSTRAINT c_key UNIQUE USING INDEX c_unique;",
            "ALTER TABLE contacts DROP CONSTRAINT c, ALTER COLUMN a DROP NOT NULL;",
            "-- unused since: 0.3.0\nALTER TABLE contacts DROP COLUMN a;",
            "-- safe: contacts_a_check says that there is none\nALTER TABLE contacts ALTER COLUMN a SET NOT NULL;",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $body$ UPDATE x; LOCK y; $body$;",
        ] {
            assert!(found(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn blocking_migrations_are_found_at_their_line() {
        for text in [
            "ALTER TABLE contacts ADD COLUMN a text NOT NULL;",
            "ALTER TABLE contacts ADD COLUMN a uuid DEFAULT gen_random_uuid();",
            "ALTER TABLE contacts ADD COLUMN a text GENERATED ALWAYS AS (b || 'x') STORED;",
            "ALTER TABLE contacts ADD CONSTRAINT c CHECK (a > 0);",
            "ALTER TABLE contacts ADD COLUMN a uuid REFERENCES tags (id);",
            "ALTER TABLE contacts ADD CONSTRAINT c UNIQUE (a);",
            "ALTER TABLE contacts ALTER COLUMN a SET NOT NULL;",
            "ALTER TABLE contacts ALTER COLUMN a TYPE bigint;",
            "ALTER TABLE contacts RENAME COLUMN a TO b;",
            "ALTER TABLE contacts DROP COLUMN a;",
            "DROP TABLE contacts;",
            "CREATE INDEX i ON contacts (a);",
            "CREATE UNIQUE INDEX CONCURRENTLY i ON contacts (a);",
            "DROP INDEX i;",
            "UPDATE contacts SET a = 1;",
            "INSERT INTO contacts (a) SELECT a FROM tags;",
            "SET lock_timeout = 0;",
            "LOCK TABLE contacts;",
        ] {
            assert_eq!(found(&format!("-- Docs.\n{text}\n")), [2], "{text}");
        }
    }

    #[test]
    fn migration_changes_one_existing_table() {
        let text = "ALTER TABLE contacts ADD COLUMN a int;\nALTER TABLE tags ADD COLUMN a int;";
        assert_eq!(found(text), [2]);
        let fresh = "CREATE TABLE tags (a int);\nALTER TABLE tags ADD b int;\nALTER TABLE contacts ADD COLUMN a int;";
        assert!(found(fresh).is_empty());
    }

    #[test]
    fn concurrent_index_requires_its_own_migration() {
        let index = "CREATE INDEX CONCURRENTLY i ON contacts (a);";
        assert_eq!(check(PATH, index, "run_in_transaction = false"), []);
        assert_eq!(
            check(PATH, &format!("{index}\nSELECT 1;"), "run_in_transaction = false").len(),
            1
        );
    }

    #[test]
    fn baseline_is_skipped() {
        let baseline = "migrations/2026-11-27-000003_contacts_baseline/up.sql";
        assert_eq!(check(baseline, "DROP TABLE contacts;", ""), []);
    }
}
