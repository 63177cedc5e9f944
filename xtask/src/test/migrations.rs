//! Every migration can be applied, taken back without a trace, and applied again to the same result.

use std::fs;
use std::path::{Path, PathBuf};

use postgres::Client;

use super::schema;
use super::services::TestServices;
use crate::error::{Context, Result, fail};
use crate::paths;
use crate::services::postgres::connect;

pub(crate) fn check(services: &TestServices) -> Result<()> {
    let migrations = migrations(&paths::root().join("migrations"))?;
    let name = format!("up_down_up_{}", std::process::id());
    let mut admin = connect(services.database_url())?;
    admin
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .context(|| "cannot make a database".to_owned())?;
    let result = up_down_up(&migrations, &on_database(services.database_url(), &name));
    let dropped = admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)"));
    result?;
    dropped.context(|| "cannot drop the database".to_owned())?;
    println!("{} migrations: up, down, up", migrations.len());
    Ok(())
}

fn up_down_up(migrations: &[PathBuf], url: &str) -> Result<()> {
    let mut client = connect(url)?;
    let empty = schema::leftovers(&mut client)?;
    for migration in migrations {
        apply(&mut client, &migration.join("up.sql"))?;
    }
    let first = schema::dump(&mut client, url)?;
    for migration in migrations.iter().rev() {
        apply(&mut client, &migration.join("down.sql"))?;
    }
    let left: Vec<String> = schema::leftovers(&mut client)?
        .into_iter()
        .filter(|found| !empty.contains(found))
        .collect();
    if !left.is_empty() {
        return fail(format!("after all down.sql there is still: {}", left.join(", ")));
    }
    for migration in migrations {
        apply(&mut client, &migration.join("up.sql"))?;
    }
    match schema::difference(&first, &schema::dump(&mut client, url)?) {
        None => Ok(()),
        Some(difference) => fail(format!("the second time up gives another schema: {difference}")),
    }
}

fn apply(client: &mut Client, file: &Path) -> Result<()> {
    let sql = fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    client.batch_execute(&sql).context(|| format!("{}", file.display()))
}

/// The directories with migrations, in the order of their names (which is the order they run in).
fn migrations(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).context(|| format!("cannot list {}", dir.display()))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("up.sql").is_file())
        .collect();
    found.sort();
    if found.is_empty() {
        fail(format!("there are no migrations in {}", dir.display()))
    } else {
        Ok(found)
    }
}

/// The same server, another database.
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
    fn urls_lead_to_another_database() {
        assert_eq!(on_database("postgres://u:p@h:1/postgres", "x"), "postgres://u:p@h:1/x");
        assert_eq!(
            on_database("postgres://u@h/postgres?sslmode=disable", "x"),
            "postgres://u@h/x?sslmode=disable"
        );
    }
}
