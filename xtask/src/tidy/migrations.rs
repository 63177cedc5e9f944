//! Migrations while servers of the version before go on: what can be seen in the text of one. `docs/operating/migrations.md`
//! says why, and how it is done instead.

use std::collections::BTreeSet;

use super::Finding;

/// From this one on migrations meet databases that are in use; up to there every database is made anew.
const FIRST: u32 = 29;

/// Whoever writes this into a statement says why it may be as it is.
const SAFE: &str = "-- safe:";

/// Before something goes, a release went out that does not use it any more.
const UNUSED: &str = "-- unused since:";

/// What rewrites a table when it is the default of a new column.
const VOLATILE: &[&str] = &["GEN_RANDOM_UUID(", "RANDOM(", "CLOCK_TIMESTAMP(", "NEXTVAL(", "UUIDV7("];

/// One statement.
struct Statement {
    line: usize,
    /// With its comments, as it is written.
    source: String,
    /// Upper case, one blank between words, without comments and the content of texts.
    words: String,
}

/// `metadata` is the text of the `metadata.toml` beside it.
pub(super) fn check(path: &str, text: &str, metadata: &str) -> Vec<Finding> {
    if number(path).is_none_or(|number| number < FIRST) {
        return Vec::new();
    }
    let statements = statements(text);
    let made: BTreeSet<String> = statements
        .iter()
        .filter_map(|s| after(&s.words, &["CREATE TABLE", "CREATE UNLOGGED TABLE"]))
        .collect();
    let mut findings = Vec::new();
    let mut altered: Option<String> = None;
    for statement in &statements {
        let mut find = |message: &str| findings.push(Finding::new(path, statement.line, message));
        if let Some(table) = target(&statement.words).filter(|table| !made.contains(table)) {
            if !statement.source.contains(SAFE) {
                faults(statement).into_iter().for_each(&mut find);
            }
            if altered.as_ref().is_some_and(|other| *other != table) {
                find("a second table of everybody's in one migration: while it is waited for, the first one is locked");
            }
            altered.get_or_insert(table);
        }
        others(statement, &made).into_iter().for_each(&mut find);
        let alone = statements.len() == 1 && metadata.replace(' ', "").contains("run_in_transaction=false");
        if has(&statement.words, "CONCURRENTLY") && !alone {
            find(
                "CONCURRENTLY takes a migration with this statement alone, and a metadata.toml with run_in_transaction = false",
            );
        }
    }
    findings
}

/// `2026-11-21-000026_name`: 26.
fn number(path: &str) -> Option<u32> {
    let directory = path.strip_prefix("migrations/")?.strip_suffix("/up.sql")?;
    directory.split('_').next()?.rsplit('-').next()?.parse().ok()
}

/// The table that an `ALTER TABLE` changes.
fn target(words: &str) -> Option<String> {
    after(words, &["ALTER TABLE ONLY", "ALTER TABLE IF EXISTS", "ALTER TABLE"])
}

/// The name that follows the first of these that the statement begins with.
fn after(words: &str, starts: &[&str]) -> Option<String> {
    let rest = starts.iter().find_map(|start| words.strip_prefix(start))?;
    let rest = rest.strip_prefix(" IF NOT EXISTS").unwrap_or(rest);
    let name = rest.split([' ', '(']).find(|word| !word.is_empty())?;
    Some(name.trim_start_matches("PUBLIC.").to_owned())
}

/// Whether the words are there, as words.
fn has(words: &str, wanted: &str) -> bool {
    let bounded = |at: usize| {
        let before = words.get(..at).and_then(|text| text.chars().next_back());
        let behind = words.get(at + wanted.len()..).and_then(|text| text.chars().next());
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_word(before) && !is_word(behind)
    };
    words.match_indices(wanted).any(|(at, _)| bounded(at))
}

/// What is wrong with a change of a table that is in use, action by action.
fn faults(statement: &Statement) -> Vec<&'static str> {
    let words = &statement.words;
    let mut faults = Vec::new();
    let mut unless = |fault: bool, message: &'static str| {
        if fault {
            faults.push(message);
        }
    };
    for action in actions(words) {
        let adds = has(action, "ADD COLUMN");
        unless(
            adds && has(action, "NOT NULL") && !has(action, "DEFAULT") && !has(action, "GENERATED"),
            "a column that is NOT NULL without a DEFAULT: the version before cannot insert any more",
        );
        unless(
            adds && (VOLATILE.iter().any(|call| action.contains(call)) || has(action, "STORED")),
            "a column whose value is made for every row rewrites the table",
        );
        let checks = has(action, "CHECK") || has(action, "REFERENCES") || has(action, "FOREIGN KEY");
        unless(
            has(action, "ADD") && checks && !has(action, "NOT VALID"),
            "a constraint looks at every row: add it NOT VALID, and VALIDATE it in the next migration",
        );
        unless(
            has(action, "ADD") && (has(action, "UNIQUE") || has(action, "PRIMARY KEY")) && !has(action, "USING INDEX"),
            "a key makes its index: make that CONCURRENTLY, and add the key USING INDEX",
        );
        unless(
            has(action, "SET NOT NULL"),
            "SET NOT NULL looks at every row: VALIDATE a CHECK first, and say so (-- safe: ...)",
        );
        unless(
            has(action, "TYPE") && has(action, "ALTER"),
            "another type rewrites the table, and the version before does not know it",
        );
        unless(
            has(action, "RENAME"),
            "the version before knows the old name alone: add the new one, and drop the old one later",
        );
        unless(
            has(action, "DROP")
                && !has(action, "DROP CONSTRAINT")
                && !has(action, "DROP DEFAULT")
                && !has(action, "DROP NOT NULL")
                && !statement.source.contains(UNUSED),
            "the version before may use what goes: name the release that does not any more (-- unused since: ...)",
        );
    }
    faults
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

/// What is wrong with statements that change no columns.
fn others(statement: &Statement, made: &BTreeSet<String>) -> Vec<&'static str> {
    let words = &statement.words;
    let safe = statement.source.contains(SAFE);
    let mut faults = Vec::new();
    let makes_index = words.starts_with("CREATE INDEX") || words.starts_with("CREATE UNIQUE INDEX");
    let on = words
        .split(" ON ")
        .nth(1)
        .and_then(|rest| rest.split([' ', '(']).find(|word| !word.is_empty()));
    if makes_index && !has(words, "CONCURRENTLY") && !on.is_some_and(|table| made.contains(table)) {
        faults.push("an index locks out writers while it is made: CONCURRENTLY");
    }
    if words.starts_with("DROP INDEX") && !has(words, "CONCURRENTLY") {
        faults.push("DROP INDEX waits for everybody: CONCURRENTLY");
    }
    if words.starts_with("DROP TABLE") && !statement.source.contains(UNUSED) {
        faults.push(
            "the version before may use what goes: name the release that does not any more (-- unused since: ...)",
        );
    }
    if (words.starts_with("UPDATE ") || words.starts_with("DELETE ")) && !safe {
        faults.push("rows are filled in by batches, in code: a migration holds its locks until its end");
    }
    let filled = words
        .strip_prefix("INSERT INTO ")
        .and_then(|rest| rest.split([' ', '(']).next());
    if filled.is_some_and(|table| has(words, "SELECT") && !made.contains(table)) && !safe {
        faults.push("rows are made of others by batches, in code: a migration holds its locks until its end");
    }
    if ["LOCK_TIMEOUT", "STATEMENT_TIMEOUT"]
        .iter()
        .any(|setting| has(words, setting))
    {
        faults.push("recado migrate sets the times: nobody else does");
    }
    if ["BEGIN", "COMMIT", "LOCK"]
        .iter()
        .any(|word| words == word || words.starts_with(&format!("{word} ")))
    {
        faults.push("recado migrate begins and ends the transaction, and takes what locks there have to be");
    }
    if has(words, "VALIDATE CONSTRAINT") && has(words, "ADD") {
        faults.push("VALIDATE is a migration of its own: the ADD would be locked for as long as it takes");
    }
    faults
}

/// The statements of a file: between semicolons outside of texts, bodies of functions and comments.
fn statements(text: &str) -> Vec<Statement> {
    let (mut found, mut line, mut rest) = (Vec::new(), 1, text);
    while !rest.trim().is_empty() {
        let (end, words) = one(rest);
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

/// Where the first statement ends, its semicolon included, and its words.
fn one(text: &str) -> (usize, String) {
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
        } else if let Some(tag) = dollar(rest) {
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

/// `$$` or `$name$`, where the text begins with one.
fn dollar(text: &str) -> Option<&str> {
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
    fn what_keeps_servers_going_has_no_findings() {
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
    fn what_stops_servers_is_found_at_its_line() {
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
    fn tables_of_everybodys_are_changed_one_by_one() {
        let text = "ALTER TABLE contacts ADD COLUMN a int;\nALTER TABLE tags ADD COLUMN a int;";
        assert_eq!(found(text), [2]);
        let fresh = "CREATE TABLE tags (a int);\nALTER TABLE tags ADD b int;\nALTER TABLE contacts ADD COLUMN a int;";
        assert!(found(fresh).is_empty());
    }

    #[test]
    fn an_index_is_made_alone_and_outside_of_a_transaction() {
        let index = "CREATE INDEX CONCURRENTLY i ON contacts (a);";
        assert_eq!(check(PATH, index, "run_in_transaction = false"), []);
        assert_eq!(
            check(PATH, &format!("{index}\nSELECT 1;"), "run_in_transaction = false").len(),
            1
        );
    }

    #[test]
    fn what_was_before_the_first_release_is_let_be() {
        let old = "migrations/2026-11-21-000012_segments/up.sql";
        assert_eq!(check(old, "DROP TABLE contacts;", ""), []);
        assert_eq!(number(PATH), Some(31));
    }
}
