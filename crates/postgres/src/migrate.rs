//! Brings a database to the schema of this version.

use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel_async::{AsyncConnection, AsyncMigrationHarness, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use recado_domain::shared::StoreError;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use crate::errors::Attempt;
use crate::pool::PlatformPool;
use crate::sql::{Answer, Number, sql};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

/// Why a database could not be migrated.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// It cannot be reached.
    #[error("the database cannot be reached")]
    Connect(#[source] diesel::ConnectionError),
    /// A statement outside of the migrations failed.
    #[error("the migrations could not be locked")]
    Lock(#[source] diesel::result::Error),
    /// A migration failed.
    #[error("a migration failed")]
    Run(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Runs every migration that the database lacks, and returns their versions. Whoever comes second waits and finds
/// nothing to do. Works on every kind of runtime.
pub async fn migrate(url: &SecretString) -> Result<Vec<String>, MigrateError> {
    let mut conn = AsyncPgConnection::establish(url.expose_secret())
        .await
        .map_err(MigrateError::Connect)?;
    // Of the session: it ends with the connection, whatever happens.
    conn.batch_execute("SELECT pg_advisory_lock(hashtext('recado migrations'))")
        .await
        .map_err(MigrateError::Lock)?;
    // The harness blocks its thread.
    let run = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncMigrationHarness::new(conn);
        let versions = harness.run_pending_migrations(MIGRATIONS)?;
        Ok(versions.iter().map(ToString::to_string).collect())
    });
    match run.await {
        Ok(done) => done.map_err(MigrateError::Run),
        Err(panicked) => Err(MigrateError::Run(Box::new(panicked))),
    }
}

/// How many of this version's migrations the database lacks.
pub async fn pending(pool: &PlatformPool) -> Result<usize, StoreError> {
    let embedded = versions()?;
    let mut held = pool.get().await?;
    let known = applied(held.conn()?, embedded.clone()).await;
    let known = held.end(known)?;
    Ok(embedded
        .len()
        .saturating_sub(usize::try_from(known).unwrap_or_default()))
}

async fn applied(conn: &mut AsyncPgConnection, embedded: Vec<String>) -> Attempt<i64> {
    let table: Answer = sql("SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL AS yes")
        .get_result(conn)
        .await?;
    if !table.yes {
        return Ok(0);
    }
    let query = sql("SELECT count(*) AS n FROM __diesel_schema_migrations WHERE version = ANY ($1)");
    let known: Number = query.bind(embedded).get_result(conn).await?;
    Ok(known.n)
}

fn versions() -> Result<Vec<String>, StoreError> {
    let migrations: Vec<Box<dyn Migration<Pg>>> = MIGRATIONS.migrations().map_err(StoreError::Failed)?;
    Ok(migrations
        .iter()
        .map(|migration| migration.name().version().to_string())
        .collect())
}
