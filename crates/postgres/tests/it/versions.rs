//! Optimistic locking: every statement that changes a versioned row raises its version. Without that, a change that was
//! decided on an older row would overwrite a newer one.

use std::path::{Path, PathBuf};

use crate::support::DbFixture;

/// Functions that change only columns on which no decision of the table's version depends, as `(table, function)`.
const UNVERSIONED: &[(&str, &str)] = &[
    // Deleting a folder clears it in its campaigns and templates.
    ("campaigns", "delete"),
    ("message_templates", "delete"),
    // The time of the last use.
    ("api_keys", "touch"),
    // The verification has a version of its own.
    ("whatsapp_profiles", "record"),
    ("whatsapp_profiles", "end_hold"),
    ("whatsapp_profiles", "restart_verification"),
    // Deleting a number clears it in what refers to it.
    ("whatsapp_profiles", "delete"),
];

/// Adds the Rust and SQL sources below the directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "sql")
        {
            found.push(path);
        }
    }
}

/// Returns the rest of each statement after `begin`, up to the end of its string literal or file.
fn statements<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    let after = text.split(begin).skip(1);
    let matching = after.filter(|rest| rest.starts_with(char::is_whitespace));
    matching.filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test]
async fn every_change_of_a_versioned_table_raises_its_version() {
    let fixture = DbFixture::new().await;
    let tables = "SELECT string_agg(table_name, ',') FROM information_schema.columns
        WHERE table_schema = 'public' AND column_name = 'version' AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition) AND table_name NOT LIKE '\\_\\_%'";
    let tables = fixture.text(tables).await.unwrap();
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for table in tables.split(',') {
            let updates = statements(&text, &format!("UPDATE {table}"));
            let inserts = statements(&text, &format!("INTO {table}"));
            let upserts = inserts.into_iter().filter(|rest| rest.contains("DO UPDATE"));
            for statement in updates.into_iter().chain(upserts) {
                // Unpublished columns, like the failures of an endpoint, change without a new `updated_at`.
                if statement.contains("updated_at =") {
                    seen += 1;
                    assert!(
                        statement.contains("version + 1"),
                        "{}: {table}{statement}",
                        file.display()
                    );
                }
            }
            // In the query language a function updates one table.
            let updates = text
                .split("fn ")
                .filter(|function| function.contains("diesel::update(") && function.contains(&format!("{table}::")));
            for function in updates {
                let name = function.split(['(', '<']).next().unwrap_or_default();
                if UNVERSIONED.contains(&(table, name)) {
                    continue;
                }
                seen += 1;
                let raised = format!("{table}::version + 1");
                assert!(function.contains(&raised), "{}: {table}: {name}", file.display());
            }
        }
    }
    assert!(seen > 15, "only {seen} statements were found");
}
