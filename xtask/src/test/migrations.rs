//! Checks that every migration can be applied, reverted completely, and applied again with the same result, and that
//! the files made from the schema match it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use postgres::Client;
use recado_testkit::paths;
use recado_testkit::services::postgres::connect;

use super::services::TestServices;
use super::{data_model, diesel_schema, schema};

/// A file that describes the schema.
struct SchemaFile {
    path: &'static str,
    text: fn(&mut Client, &str) -> Result<String>,
}

const FILES: [SchemaFile; 3] = [
    SchemaFile {
        path: "migrations/schema.sql",
        text: |_, url| schema::file(url),
    },
    SchemaFile {
        path: "crates/schema/src/tables.rs",
        text: |client, _| diesel_schema::file(client),
    },
    SchemaFile {
        path: "docs/data-model.md",
        text: |client, _| data_model::render(client),
    },
];

/// Runs every migration up, down and up again, and compares the schema's files with the result.
pub(crate) fn check(services: &TestServices) -> Result<()> {
    let migrations = migrations(&paths::root().join("migrations"))?;
    in_empty_database(services, |client, url| {
        up_down_up(&migrations, client, url)?;
        FILES.iter().try_for_each(|file| compare(file, client, url))
    })?;
    println!("{} migrations: up, down, up", migrations.len());
    Ok(())
}

/// `cargo xtask schema`.
pub(crate) fn write_schema_files() -> Result<()> {
    let services = TestServices::start()?;
    let migrations = migrations(&paths::root().join("migrations"))?;
    in_empty_database(&services, |client, url| {
        apply_functions(client)?;
        apply_all(client, &migrations)?;
        FILES.iter().try_for_each(|file| {
            let text = (file.text)(client, url)?;
            fs::write(paths::root().join(file.path), text).with_context(|| format!("cannot write {}", file.path))?;
            println!("{} written", file.path);
            Ok(())
        })
    })
}

/// Fails if the file differs from the schema.
fn compare(file: &SchemaFile, client: &mut Client, url: &str) -> Result<()> {
    let found =
        fs::read_to_string(paths::root().join(file.path)).with_context(|| format!("cannot read {}", file.path))?;
    let expected = (file.text)(client, url)?;
    match schema::difference(&schema::lines_of(&found), &schema::lines_of(&expected)) {
        None => Ok(()),
        Some(difference) => bail!(
            "{} does not match the migrations (run cargo xtask schema): {difference}",
            file.path
        ),
    }
}

/// `recado migrate` recreates the functions before it runs migrations.
fn apply_functions(client: &mut Client) -> Result<()> {
    apply(client, &paths::root().join("migrations/functions.sql"))
}

/// Calls `work` with a connection to a new database and its URL; drops the database afterwards.
fn in_empty_database(services: &TestServices, work: impl FnOnce(&mut Client, &str) -> Result<()>) -> Result<()> {
    let name = format!("up_down_up_{}", std::process::id());
    let mut admin = connect(services.database_url())?;
    admin
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .context("cannot create a database")?;
    let url = on_database(services.database_url(), &name);
    let result = connect(&url).and_then(|mut client| work(&mut client, &url));
    let dropped = admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)"));
    result?;
    dropped.context("cannot drop the database")
}

fn up_down_up(migrations: &[PathBuf], client: &mut Client, url: &str) -> Result<()> {
    apply_functions(client)?;
    let empty = schema::leftovers(client)?;
    apply_all(client, migrations)?;
    let first = schema::dump(url)?;
    for migration in migrations.iter().rev() {
        apply(client, &migration.join("down.sql"))?;
    }
    let left: Vec<String> = schema::leftovers(client)?
        .into_iter()
        .filter(|found| !empty.contains(found))
        .collect();
    if !left.is_empty() {
        bail!("after all down.sql the database still has: {}", left.join(", "));
    }
    apply_all(client, migrations)?;
    match schema::difference(&first, &schema::dump(url)?) {
        None => Ok(()),
        Some(difference) => bail!("the second run of up.sql created a different schema: {difference}"),
    }
}

fn apply_all(client: &mut Client, migrations: &[PathBuf]) -> Result<()> {
    migrations
        .iter()
        .try_for_each(|migration| apply(client, &migration.join("up.sql")))
}

fn apply(client: &mut Client, file: &Path) -> Result<()> {
    let sql = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    client
        .batch_execute(&sql)
        .with_context(|| format!("{}", file.display()))
}

/// The directories of the migrations, sorted by name, which is the order in which they run.
fn migrations(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("up.sql").is_file())
        .collect();
    found.sort();
    if found.is_empty() {
        bail!("there are no migrations in {}", dir.display())
    } else {
        Ok(found)
    }
}

/// The URL of another database on the same server.
fn on_database(url: &str, name: &str) -> String {
    let (server, options) = url
        .split_once('?')
        .map_or((url, None), |(server, options)| (server, Some(options)));
    let base = server.rsplit_once('/').map_or(server, |(base, _)| base);
    match options {
        Some(options) => format!("{base}/{name}?{options}"),
        None => format!("{base}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_changed_to_another_database() {
        assert_eq!(on_database("postgres://u:p@h:1/postgres", "x"), "postgres://u:p@h:1/x");
        assert_eq!(
            on_database("postgres://u@h/postgres?sslmode=disable", "x"),
            "postgres://u@h/x?sslmode=disable"
        );
    }
}
