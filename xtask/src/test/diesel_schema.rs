//! `crates/schema/src/tables.rs`: the tables for diesel's query language, generated from the catalogue of a migrated
//! database. `diesel print-schema` does the same, but has to be built first, with a C library.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use postgres::Client;

const HEADER: &str = "\
//! The tables for diesel's query language. `cargo xtask schema` writes this file; the gate fails when it differs from the
//! migrations.
";

/// The query language has tuples of at most this many columns.
const MAX_COLUMNS: usize = 32;

/// Columns that statements as text and `omitted_column!` use, of tables with more than [`MAX_COLUMNS`].
const OMITTED: &[(&str, &[&str])] = &[
    (
        "campaigns",
        &[
            "quota_month",
            "frozen_at",
            "late_policy",
            "skipped_at",
            "archiving_at",
            "archived_at",
        ],
    ),
    ("direct_messages", &["hold_rule", "held_settings_at", "is_marketing"]),
    (
        "whatsapp_profiles",
        &[
            "last_inbound_at",
            "last_callback_at",
            "last_accepted_at",
            "health_asked_at",
            "service_month",
            "service_messages",
        ],
    ),
];

const COLUMNS: &str = "
SELECT c.relname, a.attname, a.attnotnull, format_type(a.atttypid, NULL),
       coalesce(a.attnum = ANY (k.conkey), false)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND c.relname <> '__diesel_schema_migrations'
 ORDER BY c.relname COLLATE \"C\", a.attnum";

struct Column {
    table: String,
    name: String,
    kind: String,
    in_primary_key: bool,
}

pub(crate) fn file(client: &mut Client) -> Result<String> {
    let columns = columns(client)?;
    let mut text = HEADER.to_owned();
    for table in columns.chunk_by(|a, b| a.table == b.table) {
        write_table(&mut text, table)?;
    }
    Ok(text)
}

fn columns(client: &mut Client) -> Result<Vec<Column>> {
    let unreadable = "cannot read the columns";
    let rows = client.query(COLUMNS, &[]).context(unreadable)?;
    let mut columns = Vec::new();
    for row in &rows {
        let (table, name): (String, String) =
            (row.try_get(0).context(unreadable)?, row.try_get(1).context(unreadable)?);
        if OMITTED
            .iter()
            .any(|(of, names)| *of == table && names.contains(&name.as_str()))
        {
            continue;
        }
        let not_null: bool = row.try_get(2).context(unreadable)?;
        let kind = diesel_type(&row.try_get::<_, String>(3).context(unreadable)?)?;
        columns.push(Column {
            table,
            name,
            kind: if not_null { kind } else { format!("Nullable<{kind}>") },
            in_primary_key: row.try_get(4).context(unreadable)?,
        });
    }
    Ok(columns)
}

fn diesel_type(postgres_type: &str) -> Result<String> {
    if let Some(element) = postgres_type.strip_suffix("[]") {
        return Ok(format!("Array<{}>", diesel_type(element)?));
    }
    let kind = match postgres_type {
        "bigint" => "BigInt",
        "boolean" => "Bool",
        "bytea" => "Binary",
        "date" => "Date",
        "double precision" => "Double",
        "integer" => "Integer",
        "jsonb" => "Jsonb",
        "numeric" => "Numeric",
        "smallint" => "SmallInt",
        "text" => "Text",
        "timestamp with time zone" => "Timestamptz",
        "uuid" => "Uuid",
        other => bail!("add the diesel type of {other} to diesel_schema.rs"),
    };
    Ok(kind.to_owned())
}

fn write_table(text: &mut String, columns: &[Column]) -> Result<()> {
    let Some(Column { table, .. }) = columns.first() else {
        return Ok(());
    };
    if columns.len() > MAX_COLUMNS {
        bail!(
            "{table} has {} columns: add some to OMITTED in diesel_schema.rs",
            columns.len()
        );
    }
    let key: Vec<&str> = columns
        .iter()
        .filter(|column| column.in_primary_key)
        .map(|column| column.name.as_str())
        .collect();
    let _ = write!(text, "\ndiesel::table! {{\n    {table} ({}) {{\n", key.join(", "));
    for Column { name, kind, .. } in columns {
        // `type` is a word of Rust; diesel derives the column's name from the attribute.
        match name.as_str() {
            "type" => {
                let _ = writeln!(text, "        #[sql_name = \"{name}\"]\n        {name}_ -> {kind},");
            }
            _ => {
                let _ = writeln!(text, "        {name} -> {kind},");
            }
        }
    }
    text.push_str("    }\n}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: &str, in_primary_key: bool) -> Column {
        Column {
            table: "tags".to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            in_primary_key,
        }
    }

    #[test]
    fn table_is_written_in_diesels_words() {
        let mut text = String::new();
        let columns = [column("id", "Uuid", true), column("type", "Nullable<Text>", false)];
        write_table(&mut text, &columns).unwrap();
        assert_eq!(
            text,
            "\ndiesel::table! {\n    tags (id) {\n        id -> Uuid,\n        #[sql_name = \"type\"]\n        type_ -> \
             Nullable<Text>,\n    }\n}\n"
        );
    }

    #[test]
    fn table_with_too_many_columns_is_refused() {
        let columns: Vec<Column> = (0..33).map(|n| column(&format!("c{n}"), "Text", n == 0)).collect();
        assert!(write_table(&mut String::new(), &columns).is_err());
    }

    #[test]
    fn unknown_type_is_refused() {
        assert_eq!(diesel_type("uuid[]").unwrap(), "Array<Uuid>");
        assert!(diesel_type("money").is_err());
    }
}
