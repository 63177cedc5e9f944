//! Brings a database to the schema of this version, while servers of the version before go on.
//!
//! A statement that changes a table waits for whoever uses it, and everybody who comes later waits behind that statement.
//! So it never waits long: it gives up, lets the others pass, and tries again. `docs/operating/migrations.md` says what a
//! migration may do.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use recado_domain::shared::StoreError;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use crate::errors::Attempt;
use crate::pool::PlatformPool;
use crate::sql::{Answer, Number, sql};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// What an index is whose making was interrupted: it is kept up, and used by nobody. Those of a `REINDEX` are its own.
const BROKEN_INDEXES: &str = "DO $$ DECLARE broken regclass; BEGIN
       FOR broken IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE NOT i.indisvalid AND c.relnamespace = 'public'::regnamespace AND c.relname !~ '_cc(new|old)[0-9]*$'
       LOOP EXECUTE format('DROP INDEX %s', broken); END LOOP;
     END $$";

/// Why a database could not be migrated.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// It cannot be reached.
    #[error("the database cannot be reached")]
    Connect(#[source] diesel::ConnectionError),
    /// A statement outside of the migrations failed.
    #[error("the migrations could not be locked")]
    Lock(#[source] Fault),
    /// A migration failed.
    #[error("a migration failed")]
    Run(#[source] Fault),
}

/// A migration that never got a lock.
#[derive(Debug, Error)]
#[error("{migration} found its tables in use for {waited:?}: somebody holds them in a long transaction")]
struct Crowded {
    migration: String,
    waited: Duration,
    #[source]
    last: Fault,
}

/// Another process that never ended.
#[derive(Debug, Error)]
#[error("another process has been migrating this database for {0:?}")]
struct Queued(Duration);

/// How long migrations wait for those who use their tables.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For one lock, everybody else behind it: less than a request waits for one (1150 ms), so that none is refused.
    pub lock: Duration,
    /// How long it lets the others pass.
    pub pause: Duration,
    /// How long one migration is tried.
    pub total: Duration,
    /// How long another process that migrates is waited for.
    pub turn: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            lock: Duration::from_millis(800),
            pause: Duration::from_secs(2),
            total: Duration::from_secs(300),
            // Longer than that, and shorter than the unit of systemd lets a start take.
            turn: Duration::from_secs(480),
        }
    }
}

/// Runs every migration that the database lacks, and returns their versions. Whoever comes second waits and finds
/// nothing to do. Works on every kind of runtime.
pub async fn migrate(url: &SecretString) -> Result<Vec<String>, MigrateError> {
    run(url, MIGRATIONS, Patience::default()).await
}

/// The same with these migrations and this patience.
pub async fn run(
    url: &SecretString,
    migrations: impl MigrationSource<Pg> + Send + 'static,
    patience: Patience,
) -> Result<Vec<String>, MigrateError> {
    let mut conn = AsyncPgConnection::establish(url.expose_secret())
        .await
        .map_err(MigrateError::Connect)?;
    lock(&mut conn, patience).await.map_err(MigrateError::Lock)?;
    // The harness blocks its thread.
    let run = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncConnectionWrapper::<AsyncPgConnection>::from(conn);
        all(&mut harness, migrations, patience)
    });
    match run.await {
        Ok(done) => done.map_err(MigrateError::Run),
        Err(panicked) => Err(MigrateError::Run(Box::new(panicked))),
    }
}

/// One process migrates at a time. Asked for again and again: whoever waited for it in one statement would be waited for
/// by an index that is made concurrently.
async fn lock(conn: &mut AsyncPgConnection, patience: Patience) -> Result<(), Fault> {
    // Of the session: it ends with the connection, whatever happens.
    let take = || sql("SELECT pg_try_advisory_lock(hashtext('recado migrations')) AS yes");
    let (began, mut told) = (Instant::now(), false);
    while !take().get_result::<Answer>(conn).await?.yes {
        if began.elapsed() >= patience.turn {
            return Err(Box::new(Queued(began.elapsed())));
        }
        if !told {
            tracing::info!("another process migrates this database, its end is waited for");
            told = true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let limit = format!("SET lock_timeout = {}", patience.lock.as_millis());
    Ok(conn.batch_execute(&limit).await?)
}

type Harness = AsyncConnectionWrapper<AsyncPgConnection>;

fn all(harness: &mut Harness, migrations: impl MigrationSource<Pg>, patience: Patience) -> Result<Vec<String>, Fault> {
    let pending = harness.pending_migrations(migrations)?;
    let mut done = Vec::new();
    for migration in &pending {
        one(harness, migration.as_ref(), patience)?;
        done.push(migration.name().version().to_string());
    }
    Ok(done)
}

/// Tries until it has its locks, or too long.
fn one(harness: &mut Harness, migration: &dyn Migration<Pg>, patience: Patience) -> Result<(), Fault> {
    let began = Instant::now();
    loop {
        let tried = match SimpleConnection::batch_execute(harness, BROKEN_INDEXES) {
            Ok(()) => harness.run_migration(migration).map(|_| ()),
            Err(error) => Err(error.into()),
        };
        let last = match tried {
            Err(fault) if is_crowded(fault.as_ref()) => fault,
            done => return done,
        };
        let (migration, waited) = (migration.name().to_string(), began.elapsed());
        if waited >= patience.total {
            return Err(Box::new(Crowded {
                migration,
                waited,
                last,
            }));
        }
        tracing::warn!(migration, ?waited, "its tables are in use, it is tried again");
        std::thread::sleep(patience.pause);
    }
}

/// Whether somebody else was in the way. The driver hides the SQLSTATE.
fn is_crowded(fault: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(fault), |fault| (*fault).source());
    causes
        .filter_map(|fault| fault.downcast_ref::<diesel::result::Error>())
        .any(|error| match error {
            diesel::result::Error::DatabaseError(_, told) => matches!(
                told.message(),
                "canceling statement due to lock timeout" | "deadlock detected"
            ),
            _ => false,
        })
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
