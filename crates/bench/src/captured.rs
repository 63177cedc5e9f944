//! Reads the statements of a request from PostgreSQL's log and writes them as a script for pgbench.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::services::postgres::connect;

use super::fixture::Fixture;

/// Time until every connection applies the setting, and until the log is written.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// The statement that begins a tenant's transaction. It identifies the tenant's connection.
const TENANT: &str = "SET LOCAL app.account_id";

/// Statements that open a connection.
const OPENING: [&str; 2] = ["SET TIME ZONE", "SET CLIENT_ENCODING"];

/// The script of a request's statements on tenant connections, without those of the owner pool.
pub(super) fn script(fixture: &Fixture, request: impl Fn() -> Result<()>) -> Result<String> {
    let switch = |value: &str| {
        connect(&fixture.database())?
            .batch_execute(&format!("ALTER SYSTEM SET log_min_duration_statement = {value}"))
            .and_then(|()| connect_again(fixture, "SELECT pg_reload_conf()"))
            .context("cannot log statements")
    };
    for _ in 0..20 {
        request()?;
    }
    let log = fixture.cluster.log();
    switch("0")?;
    sleep(SETTLE_TIME);
    let before = fs::metadata(&log).map_or(0, |file| file.len());
    request()?;
    let began = Instant::now();
    let found = loop {
        sleep(SETTLE_TIME);
        let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let new = text
            .get(usize::try_from(before).unwrap_or_default()..)
            .unwrap_or_default();
        let lines = statements(&String::from_utf8_lossy(new));
        if lines.iter().any(|line| line == "COMMIT") || began.elapsed() > Duration::from_secs(5) {
            break lines;
        }
    };
    switch("-1")?;
    if found.is_empty() {
        bail!("the log of the database has no statement of a tenant");
    }
    Ok(found.iter().map(|statement| format!("{statement};\n")).collect())
}

fn connect_again(fixture: &Fixture, sql: &str) -> Result<(), postgres::Error> {
    match connect(&fixture.database()) {
        Ok(mut client) => client.batch_execute(sql),
        Err(_) => Ok(()),
    }
}

/// An entry of the log: process id, level and text.
struct Entry {
    process: String,
    kind: String,
    text: String,
}

fn entries(log: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in log.lines() {
        let head = line
            .split_once("] ")
            .filter(|(before, _)| line.starts_with("20") && before.contains('['));
        let parsed = head.and_then(|(before, rest)| {
            let (kind, text) = rest.split_once(":  ")?;
            Some((before.rsplit_once('[')?.1, kind, text))
        });
        match (parsed, entries.last_mut()) {
            (Some((process, kind, text)), _) => entries.push(Entry {
                process: process.to_owned(),
                kind: kind.to_owned(),
                text: text.to_owned(),
            }),
            (None, Some(last)) => {
                last.text.push('\n');
                last.text.push_str(line);
            }
            (None, None) => {}
        }
    }
    entries
}

/// The statements of the tenant connections, with their parameters inserted.
fn statements(log: &str) -> Vec<String> {
    let entries = entries(log);
    let tenants: BTreeSet<&str> = entries
        .iter()
        .filter(|entry| entry.text.contains(TENANT))
        .map(|entry| entry.process.as_str())
        .collect();
    let mut found = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        if entry.kind != "LOG" || !tenants.contains(entry.process.as_str()) {
            continue;
        }
        let Some((_, message)) = entry.text.split_once(" ms  ") else {
            continue;
        };
        if let Some(text) = message.strip_prefix("statement: ") {
            found.push(text.to_owned());
        } else if let Some((_, text)) = message
            .strip_prefix("execute ")
            .and_then(|message| message.split_once(": "))
        {
            let values = entries
                .get(at + 1)
                .filter(|next| next.kind == "DETAIL")
                .and_then(|next| next.text.strip_prefix("parameters: "));
            found.push(insert_values(text, values.unwrap_or_default()));
        }
    }
    found.retain(|text| !OPENING.iter().any(|opening| text.starts_with(opening)));
    found
}

/// The values of a statement's parameters, quoted as the log quotes them.
fn values(text: &str) -> Vec<&str> {
    let (mut found, mut quoted, mut from) = (Vec::new(), false, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '\'' => quoted = !quoted,
            ',' if !quoted => {
                found.extend(text.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.extend(text.get(from..));
    found
        .into_iter()
        .filter_map(|part| part.split_once(" = ").map(|(_, value)| value.trim()))
        .collect()
}

/// The cast of an array literal: of ids, of JSON objects, or of texts. The server sends the type, a literal has none.
fn array_cast(value: &str) -> &'static str {
    let ids = |letter: char| letter.is_ascii_hexdigit() || "'{},-".contains(letter);
    if value.contains("{\\\"") {
        "::jsonb[]"
    } else if value.chars().all(ids) {
        "::uuid[]"
    } else {
        "::text[]"
    }
}

fn insert_values(text: &str, parameters: &str) -> String {
    // A statement may begin with a comment that contains parameter names.
    let text = match text.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
        Some((_, rest)) => rest.trim_start(),
        None => text,
    };
    let values = values(parameters);
    let mut parts = text.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        let value = number
            .parse()
            .ok()
            .and_then(|number: usize| values.get(number.checked_sub(1)?));
        match value {
            Some(value) => {
                let list = if filled.ends_with("unnest(") {
                    array_cast(value)
                } else {
                    ""
                };
                filled.push_str(value);
                filled.push_str(list);
            }
            None => {
                filled.push('$');
                filled.push_str(number);
            }
        }
        filled.push_str(rest);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_statements_are_those_of_tenants() {
        let log = "2026-11-22 03:46:45.1 UTC [7] LOG:  duration: 0.1 ms  execute s1: SELECT 1\n\
            2026-11-22 03:46:45.1 UTC [6] LOG:  duration: 0.1 ms  execute s2: SET TIME ZONE 'UTC'\n\
            2026-11-22 03:46:45.1 UTC [6] LOG:  duration: 0.1 ms  statement: BEGIN; SET LOCAL app.account_id = 'a'\n\
            2026-11-22 03:46:45.1 UTC [6] LOG:  duration: 0.1 ms  parse s3: /* $1$2 */ SELECT $1\n\t, $2\n\
            2026-11-22 03:46:45.1 UTC [6] LOG:  duration: 0.1 ms  execute s3: /* $1$2 */ SELECT $1\n\t, $2\n\
            2026-11-22 03:46:45.1 UTC [6] DETAIL:  parameters: $1 = 'it''s, $2 = ', $2 = NULL\n\
            2026-11-22 03:46:45.1 UTC [6] LOG:  duration: 0.1 ms  statement: COMMIT\n";
        assert_eq!(
            statements(log),
            [
                "BEGIN; SET LOCAL app.account_id = 'a'",
                "SELECT 'it''s, $2 = '\n\t, NULL",
                "COMMIT"
            ]
        );
    }

    #[test]
    fn captured_parameters_are_inserted_by_number() {
        let many = "$1 = '1', $2 = '2', $10 = 'ten'";
        assert_eq!(insert_values("SELECT $2, $1, $9", many), "SELECT '2', '1', $9");
        let unnested = |value: &str| insert_values("unnest($1)", &format!("$1 = {value}"));
        assert_eq!(unnested("'{}'"), "unnest('{}'::uuid[])");
        assert_eq!(
            unnested(r#"'{"{\"kind\": 1}"}'"#),
            r#"unnest('{"{\"kind\": 1}"}'::jsonb[])"#
        );
        assert_eq!(unnested("'{word}'"), "unnest('{word}'::text[])");
    }
}
