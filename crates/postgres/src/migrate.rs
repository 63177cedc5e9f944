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
use crate::sql::{Answer, Number, sql};
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
    /// A statement outside of the migrations failed.
    #[error("the migrations could not be locked")]
    Lock(#[source] BoxError),
    /// A migration failed.
    #[error("a migration failed")]
    Run(#[source] BoxError),
}

/// A migration that never got a lock.
#[derive(Debug, Error)]
#[error("{migration} found its tables in use for {waited:?}: somebody holds them in a long transaction")]
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
    /// How long another process that migrates is waited for.
    pub turn: Duration,
}

impl Default for LockRetryPolicy {
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
        all(&mut harness, migrations, policy)
    });
    match run.await {
        Ok(done) => done.map_err(MigrateError::Run),
        Err(panicked) => Err(MigrateError::Run(Box::new(panicked))),
    }
}

/// One process migrates at a time. Asked for again and again: whoever waited for it in one statement would be waited for
/// by an index that is made concurrently.
async fn lock(conn: &mut AsyncPgConnection, policy: LockRetryPolicy) -> Result<(), BoxError> {
    // Of the session: it ends with the connection, whatever happens.
    let take = || sql("SELECT pg_try_advisory_lock(hashtext('recado migrations')) AS yes");
    let (began, mut told) = (Instant::now(), false);
    while !take().get_result::<Answer>(conn).await?.yes {
        if began.elapsed() >= policy.turn {
            return Err(Box::new(MigrationBusy(began.elapsed())));
        }
        if !told {
            tracing::info!("another process migrates this database, its end is waited for");
            told = true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

type Harness = AsyncConnectionWrapper<AsyncPgConnection>;

fn all(
    harness: &mut Harness,
    migrations: impl MigrationSource<Pg>,
    policy: LockRetryPolicy,
) -> Result<Vec<String>, BoxError> {
    let pending = harness.pending_migrations(migrations)?;
    let mut done = Vec::new();
    for migration in &pending {
        one(harness, migration.as_ref(), policy)?;
        done.push(migration.name().version().to_string());
    }
    Ok(done)
}

/// Tries until it has its locks, or too long.
fn one(harness: &mut Harness, migration: &dyn Migration<Pg>, policy: LockRetryPolicy) -> Result<(), BoxError> {
    let began = Instant::now();
    let limits = limits(migration.metadata().run_in_transaction(), policy);
    loop {
        let attempt_began = Instant::now();
        let prepared = SimpleConnection::batch_execute(harness, &format!("{}; {BROKEN_INDEXES}", limits.0))
            .and_then(|()| SimpleConnection::batch_execute(harness, &limits.1));
        let tried = match prepared {
            Ok(()) => harness.run_migration(migration).map(|_| ()),
            Err(error) => Err(error.into()),
        };
        let took = attempt_began.elapsed();
        tracing::info!(migration = %migration.name(), ?took, ok = tried.is_ok(), "a migration ran");
        let last = match tried {
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
        tracing::warn!(migration, ?waited, "its tables are in use, it is tried again");
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
    let known = match pool.row::<Number>(query.bind(embedded.clone())).await {
        Ok(known) => known.n,
        Err(StoreError::Failed(_)) if !is_begun(pool).await? => 0,
        Err(error) => return Err(error),
    };
    Ok(embedded
        .len()
        .saturating_sub(usize::try_from(known).unwrap_or_default()))
}

/// Whether any migration was ever run. Asked where the other statement failed: a ready server costs one statement.
async fn is_begun(pool: &OwnerPool) -> Result<bool, StoreError> {
    let table = sql("SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL AS yes");
    Ok(pool.row::<Answer>(table).await?.yes)
}

fn versions() -> Result<Vec<String>, StoreError> {
    let migrations: Vec<Box<dyn Migration<Pg>>> = MIGRATIONS.migrations().map_err(StoreError::Failed)?;
    Ok(migrations
        .iter()
        .map(|migration| migration.name().version().to_string())
        .collect())
}
