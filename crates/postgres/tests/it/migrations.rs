//! Embedded migrations: locks, retries and concurrent migrators.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion};
use diesel::pg::Pg;
use recado_domain::shared::StoreError;
use recado_postgres::testing::TestDatabase;
use recado_postgres::{LockRetryPolicy, MigrateError, OwnerPool, PoolConfig, migrate, pending, run};
use recado_testkit::DEADLINE;
use tokio_postgres::Client;

#[tokio::test]
async fn migrated_database_has_no_pending_migrations() {
    let db = TestDatabase::new().await;
    assert_eq!(migrate(&db.url()).await.unwrap(), Vec::<String>::new());
    assert_eq!(pending(&db.owner_pool()).await.unwrap(), 0);
}

#[tokio::test]
async fn database_from_before_the_first_release_is_refused_unchanged() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client
        .batch_execute(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public;
             CREATE TABLE __diesel_schema_migrations (version varchar(50) PRIMARY KEY, run_on timestamp DEFAULT now());
             INSERT INTO __diesel_schema_migrations (version) VALUES ('20261121000001')",
        )
        .await
        .unwrap();
    let refused = migrate(&db.url()).await.unwrap_err();
    assert!(matches!(refused, MigrateError::BeforeFirstRelease), "{refused:?}");
    assert!(refused.to_string().contains("GET /api/analytics/export"), "{refused}");
    let objects = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r')
         + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)";
    assert_eq!(client.query_one(objects, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn changed_functions_are_recreated() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client
        .batch_execute(
            "CREATE OR REPLACE FUNCTION counter_slot(messages bigint) RETURNS smallint LANGUAGE sql AS 'SELECT 9::smallint'",
        )
        .await
        .unwrap();
    assert_eq!(migrate(&db.url()).await.unwrap(), Vec::<String>::new());
    let slot = client.query_one("SELECT counter_slot(1)", &[]).await.unwrap();
    assert_eq!(slot.get::<_, i16>(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_migrators_run_each_migration_once() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client
        .batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        .await
        .unwrap();
    let pool = db.owner_pool();
    let all = pending(&pool).await.unwrap();
    assert!(all >= 8, "{all}");
    let url = db.url();
    let (a, b, c) = tokio::join!(migrate(&url), migrate(&url), migrate(&url));
    let mut ran = [a.unwrap().len(), b.unwrap().len(), c.unwrap().len()];
    ran.sort_unstable();
    assert_eq!(ran, [0, 0, all]);
    assert_eq!(pending(&pool).await.unwrap(), 0);
    client.batch_execute("DELETE FROM __diesel_schema_migrations WHERE version = (SELECT max(version) FROM __diesel_schema_migrations)").await.unwrap();
    assert_eq!(pending(&pool).await.unwrap(), 1);
}

#[tokio::test]
async fn migration_without_a_database_is_unavailable() {
    let url = "postgres://user@127.0.0.1:1/none".into();
    assert!(migrate(&url).await.is_err());
    let pool = OwnerPool::new(&PoolConfig::new(url, 1)).unwrap();
    assert!(matches!(pending(&pool).await, Err(StoreError::Unavailable(_))));
    assert!(OwnerPool::new(&PoolConfig::new("not a url".into(), 1)).is_err());
}

/// A migration source with up to two additional migrations.
struct ExtraMigrations(&'static [&'static str]);

struct Version(&'static str);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl MigrationName for Version {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(self.0)
    }
}

struct WithoutTransaction;

impl MigrationMetadata for WithoutTransaction {
    fn run_in_transaction(&self) -> bool {
        false
    }
}

struct InTransaction;

impl MigrationMetadata for InTransaction {}

struct SqlMigration(Version, &'static str);

impl Migration<Pg> for SqlMigration {
    fn run(&self, conn: &mut dyn BoxableConnection<Pg>) -> diesel::migration::Result<()> {
        Ok(conn.batch_execute(self.1)?)
    }

    fn revert(&self, _: &mut dyn BoxableConnection<Pg>) -> diesel::migration::Result<()> {
        unreachable!("no migration is reverted")
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        if self.1.contains("CONCURRENTLY") {
            &WithoutTransaction
        } else {
            &InTransaction
        }
    }

    fn name(&self) -> &dyn MigrationName {
        &self.0
    }
}

impl MigrationSource<Pg> for ExtraMigrations {
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<Pg>>>> {
        let versions = ["20991231000001", "20991231000002"];
        let migrations = versions.into_iter().zip(self.0);
        Ok(migrations
            .map(|(version, sql)| -> Box<dyn Migration<Pg>> { Box::new(SqlMigration(Version(version), sql)) })
            .collect())
    }
}

const WIDEN: &str = "ALTER TABLE contacts ADD COLUMN widened boolean";

fn short_policy() -> LockRetryPolicy {
    LockRetryPolicy {
        lock: Duration::from_millis(200),
        pause: Duration::from_millis(50),
        total: DEADLINE,
        peer_timeout: DEADLINE,
    }
}

/// Adds the start times of migrator transactions that now wait for a lock.
async fn observe_attempts(client: &Client, seen: &mut BTreeSet<String>) {
    let waiting = "SELECT xact_start::text FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'";
    for row in client.query(waiting, &[]).await.unwrap() {
        seen.insert(row.get(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_of_a_busy_table_does_not_block_readers() {
    let db = TestDatabase::new().await;
    let (holder, watcher, reader) = (db.client().await, db.client().await, db.client().await);
    holder
        .batch_execute("BEGIN; SELECT count(*) FROM contacts")
        .await
        .unwrap();
    let url = db.url();
    let migrating = tokio::spawn(async move { run(&url, ExtraMigrations(&[WIDEN]), short_policy()).await });
    let mut seen = BTreeSet::new();
    let deadline = Instant::now() + DEADLINE;
    // Three attempts mean that the migrator gave up twice. Readers passed in between: behind a migrator that does not give
    // up they would wait for the holder.
    while seen.len() < 3 {
        assert!(Instant::now() < deadline && !migrating.is_finished(), "{seen:?}");
        observe_attempts(&watcher, &mut seen).await;
        reader.batch_execute("SELECT count(*) FROM contacts").await.unwrap();
    }
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap(), ["20991231000001"]);
    reader.batch_execute("SELECT widened FROM contacts").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_of_a_locked_table_fails_with_its_version() {
    let db = TestDatabase::new().await;
    let holder = db.client().await;
    holder
        .batch_execute("BEGIN; SELECT count(*) FROM contacts")
        .await
        .unwrap();
    let policy = LockRetryPolicy {
        total: Duration::from_millis(500),
        ..short_policy()
    };
    let changes: &[&str] = &["CREATE TABLE fresh (id bigint)", WIDEN];
    let failed = run(&db.url(), ExtraMigrations(changes), policy).await.unwrap_err();
    let cause = std::error::Error::source(&failed).unwrap().to_string();
    assert!(
        cause.contains("20991231000002") && cause.contains("a long transaction"),
        "{cause}"
    );
    holder.batch_execute("COMMIT").await.unwrap();
    // The first migration stays applied, and the next migrator applies the second.
    assert_eq!(
        run(&db.url(), ExtraMigrations(changes), policy).await.unwrap(),
        ["20991231000002"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_lock_wait_times_out() {
    let db = TestDatabase::new().await;
    let holder = db.client().await;
    let take = "SELECT pg_advisory_lock(hashtext('recado migrations'))";
    holder.batch_execute(take).await.unwrap();
    let policy = LockRetryPolicy {
        peer_timeout: Duration::from_millis(300),
        ..short_policy()
    };
    let failed = run(&db.url(), ExtraMigrations(&[WIDEN]), policy).await.unwrap_err();
    assert!(matches!(failed, MigrateError::Lock(_)), "{failed:?}");
    let cause = std::error::Error::source(&failed).unwrap().to_string();
    assert!(cause.contains("another process"), "{cause}");
    drop(holder);
    // The migration runs as soon as the other migrator releases the lock.
    let done = run(&db.url(), ExtraMigrations(&[WIDEN]), short_policy()).await.unwrap();
    assert_eq!(done, ["20991231000001"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_concurrent_index_is_rebuilt() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client
        .batch_execute("CREATE TABLE twins (n int); INSERT INTO twins VALUES (1), (1)")
        .await
        .unwrap();
    let index = "CREATE UNIQUE INDEX CONCURRENTLY twins_n_unique ON twins (n)";
    assert!(client.batch_execute(index).await.is_err());
    client
        .batch_execute("DELETE FROM twins WHERE ctid = '(0,1)'")
        .await
        .unwrap();
    let url = db.url();
    let make: &[&str] = &["CREATE UNIQUE INDEX CONCURRENTLY twins_n_unique ON twins (n)"];
    let (first, second) = tokio::join!(
        run(&url, ExtraMigrations(make), short_policy()),
        run(&url, ExtraMigrations(make), short_policy())
    );
    assert_eq!(first.unwrap().len() + second.unwrap().len(), 1);
    let valid = client
        .query_one(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'twins_n_unique'::regclass",
            &[],
        )
        .await
        .unwrap();
    assert!(valid.get::<_, bool>(0));
}

/// The OID and phase of the index build in progress.
async fn build_in_progress(client: &Client) -> Option<(u32, String)> {
    let building = "SELECT index_relid, phase FROM pg_stat_progress_create_index WHERE datname = current_database()";
    let rows = client.query(building, &[]).await.unwrap();
    rows.first().map(|row| (row.get(0), row.get(1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_index_waits_for_open_transactions() {
    let db = TestDatabase::new().await;
    let (holder, watcher) = (db.client().await, db.client().await);
    watcher.batch_execute("CREATE TABLE busy (n int)").await.unwrap();
    holder
        .batch_execute("BEGIN; LOCK TABLE busy IN ROW EXCLUSIVE MODE")
        .await
        .unwrap();
    let (url, policy) = (db.url(), short_policy());
    let make: &[&str] = &["CREATE INDEX CONCURRENTLY busy_n_idx ON busy (n)"];
    let migrating = tokio::spawn(async move { run(&url, ExtraMigrations(make), policy).await });
    let waiting = tokio::time::timeout(DEADLINE, async {
        loop {
            match build_in_progress(&watcher).await {
                Some((index, phase)) if phase.starts_with("waiting") => return index,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    let index = waiting.await.expect("the build waits for the open transaction");
    // Several times the limit that other migrations have for one lock.
    tokio::time::sleep(policy.lock * 4).await;
    let broken = "SELECT count(*) FROM pg_index WHERE NOT indisvalid AND indexrelid = $1";
    let still_building: i64 = watcher.query_one(broken, &[&index]).await.unwrap().get(0);
    assert_eq!(still_building, 1, "the build was given up while it waited");
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap(), ["20991231000001"]);
    let valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = $1";
    assert!(watcher.query_one(valid, &[&index]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_in_another_language_is_retried() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client
        .batch_execute(
            "CREATE SEQUENCE attempts;
             CREATE FUNCTION busy() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
               IF nextval('attempts') < 3 THEN
                 RAISE EXCEPTION 'storniere Anfrage wegen Zeitüberschreitung der Sperre' USING ERRCODE = '55P03';
               END IF;
             END $$",
        )
        .await
        .unwrap();
    let done = run(&db.url(), ExtraMigrations(&["SELECT busy()"]), short_policy())
        .await
        .unwrap();
    assert_eq!(done, ["20991231000001"]);
    let attempts = client.query_one("SELECT last_value FROM attempts", &[]).await.unwrap();
    assert_eq!(attempts.get::<_, i64>(0), 3);
}
