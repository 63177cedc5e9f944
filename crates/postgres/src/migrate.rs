//! Online migrations: brings a database to the schema of this version while servers of the previous version still run.
//!
//! A statement that changes a table waits for the table's users, and all later users wait behind that statement. So
//! it waits only for a short `lock_timeout`, then pauses to let them pass, and retries.
//! `docs/operating/migrations.md` lists what a migration may do.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use recado_domain::shared::StoreError;
use secrecy::SecretString;
use thiserror::Error;

use crate::partitions::PgPartitions;
use crate::pool::{OwnerPool, PoolConfig};
use crate::sql::{FlagRow, NumberRow, sql};
use crate::sqlstate::{self, Transient, bad_connection};
use crate::tls::{DatabaseTls, parse_url};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

/// Functions that hold no data. Migrations use some of them.
const FUNCTIONS: &str = include_str!("../../../migrations/functions.sql");

/// The first migration of the baseline. Databases with earlier ones were made before the first release.
const BASELINE: &str = "20261127000001";

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Drops indexes whose build was interrupted: every write maintains them, but no query uses them. Indexes of a
/// `REINDEX` and indexes that are being built now are left alone.
const BROKEN_INDEXES: &str = "DO $$ DECLARE broken regclass; BEGIN
       FOR broken IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE NOT i.indisvalid AND c.relnamespace = 'public'::regnamespace AND c.relname !~ '_cc(new|old)[0-9]*$'
           AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
       LOOP EXECUTE format('DROP INDEX %s', broken); END LOOP;
     END $$";

const HAS_MIGRATIONS_TABLE: &str = "SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL AS yes";

#[derive(Debug, Error)]
pub enum MigrateError {
    #[error("the database cannot be reached")]
    Connect(#[source] diesel::ConnectionError),
    #[error("could not acquire the migration lock")]
    Lock(#[source] BoxError),
    /// The earlier migrations are gone, so nothing leads from their schema to this one.
    #[error(
        "this database was made before the first release, and its schema cannot be changed to this one. Keep it with \
         the program that made it, which can still export its contacts, campaigns and messages \
         (GET /api/analytics/export). For this version, set DATABASE_URL to an empty database"
    )]
    BeforeFirstRelease,
    #[error("a migration failed")]
    Run(#[source] BoxError),
    #[error("the partitions could not be created")]
    Partitions(#[source] BoxError),
}

#[derive(Debug, Error)]
#[error("{migration} could not lock its tables for {waited:?}: a long transaction uses them")]
struct LockTimedOut {
    migration: String,
    waited: Duration,
    #[source]
    last: BoxError,
}

#[derive(Debug, Error)]
#[error("another process has been migrating this database for {0:?}")]
struct MigrationBusy(Duration);

/// Timeouts of migrations that wait for locks.
#[derive(Clone, Copy, Debug)]
pub struct LockRetryPolicy {
    /// `lock_timeout` of one attempt. Other users wait behind it, so it is shorter than the lock wait of a request
    /// (1150 ms).
    pub lock: Duration,
    /// Pause between two attempts, in which the waiting users proceed.
    pub pause: Duration,
    /// Limit for all attempts of one migration.
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

/// Like [`migrate_over`], without TLS, for a database on a loopback host or a socket only.
pub async fn migrate(url: &SecretString) -> Result<Vec<String>, MigrateError> {
    migrate_over(url, &DatabaseTls::default()).await
}

/// Runs every migration that the database lacks, and returns their versions. If another process is migrating, it
/// waits for that process and then finds nothing to do. Works on every kind of runtime.
///
/// Afterwards it creates the partitions that are missing. A migration creates partitioned tables without partitions.
pub async fn migrate_over(url: &SecretString, tls: &DatabaseTls) -> Result<Vec<String>, MigrateError> {
    let done = run_over(url, tls, MIGRATIONS, LockRetryPolicy::default()).await?;
    ensure_partitions(url, tls)
        .await
        .map_err(|error| MigrateError::Partitions(Box::new(error)))?;
    Ok(done)
}

/// Creates the partitions that must exist now.
async fn ensure_partitions(url: &SecretString, tls: &DatabaseTls) -> Result<(), StoreError> {
    let pool = OwnerPool::new(&PoolConfig::new(url.clone(), 1).tls(tls.clone()))?;
    let partitions = PgPartitions::new(pool);
    let created = partitions.ensure(partitions.now().await?).await?;
    tracing::info!(created, "partitions are ready");
    Ok(())
}

/// Like [`migrate`], with the given migrations and policy.
pub async fn run(
    url: &SecretString,
    migrations: impl MigrationSource<Pg> + Send + 'static,
    policy: LockRetryPolicy,
) -> Result<Vec<String>, MigrateError> {
    run_over(url, &DatabaseTls::default(), migrations, policy).await
}

async fn run_over(
    url: &SecretString,
    tls: &DatabaseTls,
    migrations: impl MigrationSource<Pg> + Send + 'static,
    policy: LockRetryPolicy,
) -> Result<Vec<String>, MigrateError> {
    let config = parse_url(url).map_err(|error| MigrateError::Connect(bad_connection(error)))?;
    let mut conn = sqlstate::connect(&config, tls).await.map_err(MigrateError::Connect)?;
    lock(&mut conn, policy).await.map_err(MigrateError::Lock)?;
    if is_before_first_release(&mut conn).await.map_err(MigrateError::Run)? {
        return Err(MigrateError::BeforeFirstRelease);
    }
    conn.batch_execute(FUNCTIONS)
        .await
        .map_err(|error| MigrateError::Run(Box::new(error)))?;
    let run = tokio::task::spawn_blocking(move || {
        let mut harness = AsyncConnectionWrapper::<AsyncPgConnection>::from(conn);
        run_pending(&mut harness, migrations, policy)
    });
    match run.await {
        Ok(done) => done.map_err(MigrateError::Run),
        Err(panicked) => Err(MigrateError::Run(Box::new(panicked))),
    }
}

/// Takes the advisory lock that lets one process migrate at a time. It polls, because a process that waits in one
/// long statement would block `CREATE INDEX CONCURRENTLY` of the process that holds the lock.
pub(crate) async fn lock(conn: &mut AsyncPgConnection, policy: LockRetryPolicy) -> Result<(), BoxError> {
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

/// Whether the database has a migration that is older than the baseline.
async fn is_before_first_release(conn: &mut AsyncPgConnection) -> Result<bool, BoxError> {
    if !sql(HAS_MIGRATIONS_TABLE).get_result::<FlagRow>(conn).await?.yes {
        return Ok(false);
    }
    let early =
        sql("SELECT EXISTS (SELECT 1 FROM __diesel_schema_migrations WHERE version < $1) AS yes").bind(BASELINE);
    Ok(early.get_result::<FlagRow>(conn).await?.yes)
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

/// Returns the timeout settings for the statements before a migration, and for the migration itself.
///
/// A migration without a transaction builds or drops one index concurrently. It waits for every older transaction,
/// but no statement waits behind it: a timeout would only leave an invalid index and restart the build.
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

/// Whether another transaction held the locks.
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

/// Counts the embedded migrations that the database lacks.
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
    Ok(pool.row::<FlagRow>(sql(HAS_MIGRATIONS_TABLE)).await?.yes)
}

fn versions() -> Result<Vec<String>, StoreError> {
    let migrations: Vec<Box<dyn Migration<Pg>>> = MIGRATIONS.migrations().map_err(StoreError::Failed)?;
    Ok(migrations
        .iter()
        .map(|migration| migration.name().version().to_string())
        .collect())
}
