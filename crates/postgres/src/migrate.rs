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
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use recado_domain::shared::StoreError;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use tokio_postgres::Config;

use crate::pool::OwnerPool;
use crate::sql::{FlagRow, NumberRow, sql};
use crate::sqlstate::{self, Transient, bad_connection};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Drops indexes whose build was interrupted: every write maintains them, and no query uses them. Left alone are those of
/// a `REINDEX`, and those that somebody is building now.
const BROKEN_INDEXES: &str = "DO $$ DECLARE broken regclass; BEGIN
       FOR broken IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE NOT i.indisvalid AND c.relnamespace = 'public'::regnamespace AND c.relname !~ '_cc(new|old)[0-9]*$'
           AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
       LOOP EXECUTE format('DROP INDEX %s', broken); END LOOP;
     END $$";

/// Why a database could not be migrated.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// It cannot be reached.
    #[error("the database cannot be reached")]
    Connect(#[source] diesel::ConnectionError),
    #[error("could not acquire the migration lock")]
    Lock(#[source] BoxError),
    /// A migration failed.
    #[error("a migration failed")]
    Run(#[source] BoxError),
}

/// A migration that never got a lock.
#[derive(Debug, Error)]
#[error("{migration} could not lock its tables for {waited:?}: a long transaction uses them")]
struct LockTimedOut {
    migration: String,
    waited: Duration,
    #[source]
    last: BoxError,
}

/// Another process that never ended.
#[derive(Debug, Error)]
#[error("another process has been migrating this database for {0:?}")]
struct MigrationBusy(Duration);

/// How long migrations wait for those who use their tables.
#[derive(Clone, Copy, Debug)]
pub struct LockRetryPolicy {
    /// For one lock, everybody else behind it: less than a request waits for one (1150 ms), so that none is refused.
    pub lock: Duration,
    /// How long it lets the others pass.
    pub pause: Duration,
    /// How long one migration is tried.
    pub total: Duration,
    /// How long to wait for another process that migrates the same database.
    pub peer_timeout: Duration,
}

impl Default for LockRetryPolicy {
    fn default() -> Self {
        Self {
            lock: Duration::from_millis(800),
            pause: Duration::from_secs(2),
            total: Duration::from_secs(300),
            // Longer than `total`, and shorter than the start timeout of the systemd unit.
            peer_timeout: Duration::from_secs(480),
        }
    }
}

/// Runs every migration that the database lacks, and returns their versions. Whoever comes second waits and finds
/// nothing to do. Works on every kind of runtime.
pub async fn migrate(url: &SecretString) -> Result<Vec<String>, MigrateError> {
    run(url, MIGRATIONS, LockRetryPolicy::default()).await
}

/// The same with these migrations and this policy.
pub async fn run(
    url: &SecretString,
    migrations: impl MigrationSource<Pg> + Send + 'static,
    policy: LockRetryPolicy,
) -> Result<Vec<String>, MigrateError> {
    let config = url.expose_secret().parse::<Config>();
    let config = config.map_err(|error| MigrateError::Connect(bad_connection(error)))?;
    let mut conn = sqlstate::connect(&config).await.map_err(MigrateError::Connect)?;
    lock(&mut conn, policy).await.map_err(MigrateError::Lock)?;
    // The harness blocks its thread.
    let run = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncConnectionWrapper::<AsyncPgConnection>::from(conn);
        run_pending(&mut harness, migrations, policy)
    });
    match run.await {
        Ok(done) => done.map_err(MigrateError::Run),
        Err(panicked) => Err(MigrateError::Run(Box::new(panicked))),
    }
}

/// One process migrates at a time. Asked for again and again: whoever waited for it in one statement would be waited for
/// by an index that is made concurrently.
async fn lock(conn: &mut AsyncPgConnection, policy: LockRetryPolicy) -> Result<(), BoxError> {
    // A session lock: it ends with the connection in every case.
    let try_lock = || sql("SELECT pg_try_advisory_lock(hashtext('recado migrations')) AS yes");
    let (began, mut logged) = (Instant::now(), false);
    while !try_lock().get_result::<FlagRow>(conn).await?.yes {
        if began.elapsed() >= policy.peer_timeout {
            return Err(Box::new(MigrationBusy(began.elapsed())));
        }
        if !logged {
            tracing::info!("another process is migrating this database, waiting for it");
            logged = true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

type Harness = AsyncConnectionWrapper<AsyncPgConnection>;

fn run_pending(
    harness: &mut Harness,
    migrations: impl MigrationSource<Pg>,
    policy: LockRetryPolicy,
) -> Result<Vec<String>, BoxError> {
    let pending = harness.pending_migrations(migrations)?;
    let mut done = Vec::new();
    for migration in &pending {
        run_with_retries(harness, migration.as_ref(), policy)?;
        done.push(migration.name().version().to_string());
    }
    Ok(done)
}

/// Runs one migration, and retries lock timeouts until `policy.total` is over.
fn run_with_retries(
    harness: &mut Harness,
    migration: &dyn Migration<Pg>,
    policy: LockRetryPolicy,
) -> Result<(), BoxError> {
    let began = Instant::now();
    let limits = limits(migration.metadata().run_in_transaction(), policy);
    loop {
        let attempt_began = Instant::now();
        let prepared = SimpleConnection::batch_execute(harness, &format!("{}; {BROKEN_INDEXES}", limits.0))
            .and_then(|()| SimpleConnection::batch_execute(harness, &limits.1));
        let result = match prepared {
            Ok(()) => harness.run_migration(migration).map(|_| ()),
            Err(error) => Err(error.into()),
        };
        let took = attempt_began.elapsed();
        tracing::info!(migration = %migration.name(), ?took, ok = result.is_ok(), "a migration ran");
        let last = match result {
            Err(error) if is_lock_timeout(error.as_ref()) => error,
            done => return done,
        };
        let (migration, waited) = (migration.name().to_string(), began.elapsed());
        if waited >= policy.total {
            return Err(Box::new(LockTimedOut {
                migration,
                waited,
                last,
            }));
        }
        tracing::warn!(migration, ?waited, "the migration's tables are in use, retrying");
        std::thread::sleep(policy.pause);
    }
}

/// The time limits of what comes before a migration, and of the migration itself.
///
/// A migration without a transaction builds or drops one index concurrently. It waits for every older transaction, and
/// nobody waits behind it: a limit would only leave an invalid index and start the build over.
fn limits(in_transaction: bool, policy: LockRetryPolicy) -> (String, String) {
    let limited = format!(
        "SET lock_timeout = {}; SET statement_timeout = 0",
        policy.lock.as_millis()
    );
    let migration = if in_transaction {
        limited.clone()
    } else {
        "SET lock_timeout = 0; SET statement_timeout = 0".to_owned()
    };
    (limited, migration)
}

/// Whether another transaction was in the way.
fn is_lock_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes
        .filter_map(|error| error.downcast_ref::<diesel::result::Error>())
        .any(|error| match error {
            diesel::result::Error::DatabaseError(_, error) => matches!(
                sqlstate::transient(error.message()),
                Some(Transient::LockTimeout | Transient::Deadlock)
            ),
            _ => false,
        })
}

/// How many of this version's migrations the database lacks.
pub async fn pending(pool: &OwnerPool) -> Result<usize, StoreError> {
    let embedded = versions()?;
    let query = sql("SELECT count(*) AS n FROM __diesel_schema_migrations WHERE version = ANY ($1)");
    let applied = match pool.row::<NumberRow>(query.bind(embedded.clone())).await {
        Ok(applied) => applied.n,
        Err(StoreError::Failed(_)) if !has_migrations_table(pool).await? => 0,
        Err(error) => return Err(error),
    };
    Ok(embedded
        .len()
        .saturating_sub(usize::try_from(applied).unwrap_or_default()))
}

/// Whether any migration ever ran. Queried only after the first statement failed, so a ready server costs one
/// statement.
async fn has_migrations_table(pool: &OwnerPool) -> Result<bool, StoreError> {
    let table = sql("SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL AS yes");
    Ok(pool.row::<FlagRow>(table).await?.yes)
}

fn versions() -> Result<Vec<String>, StoreError> {
    let migrations: Vec<Box<dyn Migration<Pg>>> = MIGRATIONS.migrations().map_err(StoreError::Failed)?;
    Ok(migrations
        .iter()
        .map(|migration| migration.name().version().to_string())
        .collect())
}
