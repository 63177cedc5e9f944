//! A database's schema as text, for comparisons and to find objects that should be deleted.

use anyhow::{Context, Result};
use postgres::Client;
use recado_testkit::process;
use recado_testkit::services::find_postgres;

/// Lists all objects that belong neither to PostgreSQL nor to an extension.
const LEFTOVERS: &str = "
WITH ours AS (
    SELECT oid FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
), extension AS (
    SELECT classid, objid FROM pg_depend WHERE deptype = 'e'
)
SELECT 'relation ' || c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace IN (SELECT oid FROM ours) AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
   AND NOT EXISTS (SELECT FROM extension e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid)
UNION ALL
SELECT 'function ' || p.oid::regprocedure::text FROM pg_proc p
 WHERE p.pronamespace IN (SELECT oid FROM ours)
   AND NOT EXISTS (SELECT FROM extension e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid)
UNION ALL
SELECT 'type ' || t.oid::regtype::text FROM pg_type t
 WHERE t.typnamespace IN (SELECT oid FROM ours) AND t.typtype IN ('e', 'd', 'c', 'r') AND t.typrelid = 0
   AND NOT EXISTS (SELECT FROM extension e WHERE e.classid = 'pg_type'::regclass AND e.objid = t.oid)
UNION ALL
SELECT 'type ' || c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace IN (SELECT oid FROM ours) AND c.relkind = 'c'
UNION ALL
SELECT 'policy ' || polname || ' on ' || polrelid::regclass::text FROM pg_policy
UNION ALL
SELECT 'schema ' || nspname FROM pg_namespace WHERE oid IN (SELECT oid FROM ours) AND nspname <> 'public'
UNION ALL
SELECT 'extension ' || extname FROM pg_extension WHERE extname <> 'plpgsql'
ORDER BY 1";

/// Descriptions of our objects in the database.
pub(crate) fn leftovers(client: &mut Client) -> Result<Vec<String>> {
    lines(client, LEFTOVERS)
}

/// The whole schema from pg_dump.
pub(crate) fn dump(url: &str) -> Result<Vec<String>> {
    let pg_dump = find_postgres()?
        .map(|dir| dir.join("pg_dump"))
        .filter(|file| file.is_file());
    let mut command = std::process::Command::new(pg_dump.context("pg_dump is not installed")?);
    let text = process::quietly(
        command.args(["--schema-only", "--no-owner", "--dbname", url]),
        "pg_dump",
    )?;
    // These two lines contain a random token.
    Ok(text
        .lines()
        .filter(|l| !l.starts_with("\\restrict") && !l.starts_with("\\unrestrict"))
        .map(str::to_owned)
        .collect())
}

/// `migrations/schema.sql`: the dump without what depends on the server's version or on the date.
pub(crate) fn file(url: &str) -> Result<String> {
    let mut text = String::from(
        "-- The whole schema, from pg_dump of a migrated database without its partitions. `cargo xtask schema` writes this\n\
         -- file; the gate fails when it differs from the migrations.\n",
    );
    let mut in_view = false;
    let mut was_blank = true;
    for line in dump(url)? {
        if line.starts_with("--") || line.starts_with("SET ") || line.starts_with("SELECT pg_catalog.set_config") {
            continue;
        }
        in_view = (in_view || line.starts_with("CREATE VIEW")) && !line.is_empty();
        let line = if in_view { without_qualifiers(&line) } else { line };
        if !(line.is_empty() && was_blank) {
            text.push('\n');
            text.push_str(&line);
        }
        was_blank = line.is_empty();
    }
    Ok(format!("{}\n", text.trim_end()))
}

/// Since version 16, PostgreSQL prints the columns of a view over one table without the table's name.
fn without_qualifiers(line: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut shortened = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('.') {
        let name = before.len() - before.chars().rev().take_while(|c| is_name(*c)).count();
        let (unqualified, qualifier) = before.split_at(name);
        shortened.push_str(unqualified);
        if qualifier == "public" || !after.starts_with(is_name) {
            shortened.push_str(qualifier);
            shortened.push('.');
        }
        rest = after;
    }
    shortened + rest
}

pub(crate) fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The first difference of two schemas.
pub(crate) fn difference(first: &[String], second: &[String]) -> Option<String> {
    if let Some((one, other)) = first.iter().zip(second).find(|(one, other)| one != other) {
        return Some(format!("first `{one}`, then `{other}`"));
    }
    (first.len() != second.len()).then(|| format!("first {} lines, then {}", first.len(), second.len()))
}

fn lines(client: &mut Client, query: &str) -> Result<Vec<String>> {
    let rows = client.query(query, &[]).context("cannot read the catalogue")?;
    rows.iter()
        .map(|row| row.try_get(0).context("cannot read the catalogue"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_compared_without_qualifiers() {
        assert_eq!(
            without_qualifiers(" SELECT slots.total, (sum(slots.sent))::bigint FROM public.slots"),
            " SELECT total, (sum(sent))::bigint FROM public.slots"
        );
    }

    #[test]
    fn schema_differences_are_found() {
        let text = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(difference(&text(&["a", "b"]), &text(&["a", "b"])), None);
        assert!(
            difference(&text(&["a", "b"]), &text(&["a", "c"]))
                .unwrap()
                .contains("`c`")
        );
        assert!(difference(&text(&["a"]), &text(&["a", "c"])).is_some());
    }
}
