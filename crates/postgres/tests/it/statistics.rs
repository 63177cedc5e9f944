//! Planner statistics of tables that grow at once.

use recado_postgres::{PgStatistics, QUEUE_TABLES};

use crate::support::DbFixture;

impl DbFixture {
    /// Refreshes until no table is stale and returns the number of refreshed tables.
    async fn refresh_statistics(&self) -> usize {
        let statistics = PgStatistics::new(self.owner.clone());
        let mut refreshed = 0;
        // Sessions report their changes about once a second. This reports them at once.
        self.sql("SELECT pg_stat_force_next_flush()").await;
        while statistics.refresh().await.unwrap() {
            refreshed += 1;
            assert!(refreshed < 50, "the same table is analyzed endlessly");
            self.sql("SELECT pg_stat_force_next_flush()").await;
        }
        refreshed
    }
}

#[tokio::test]
async fn table_that_grew_at_once_is_analyzed_once() {
    let fixture = DbFixture::new().await;
    let rows = "SELECT reltuples FROM pg_class WHERE relname = 'contacts'";
    fixture
        .sql("ALTER TABLE contacts SET (autovacuum_enabled = false)")
        .await;
    fixture.add_contacts(1500).await;
    assert!(fixture.refresh_statistics().await > 0);
    assert_eq!(fixture.number(rows).await, 1500);
    fixture.add_contacts_to(fixture.another_account().await, 1200).await;
    fixture.sql("UPDATE contacts SET name = 'Bia'").await;
    assert_eq!(fixture.refresh_statistics().await, 0, "autovacuum does this in time");
}

#[tokio::test]
async fn queue_tables_are_never_analyzed() {
    let fixture = DbFixture::new().await;
    for table in QUEUE_TABLES {
        let exists = fixture
            .number(&format!("SELECT (to_regclass('{table}') IS NOT NULL)::int"))
            .await;
        assert_eq!(exists, 1, "table {table} does not exist");
    }
    // A backlog, and a queue whose rows are already deleted.
    fixture
        .sql(
            "ALTER TABLE whatsapp_callbacks SET (autovacuum_enabled = false);
             ALTER TABLE outgoing_mail SET (autovacuum_enabled = false);
             INSERT INTO whatsapp_callbacks (id, body, received_at, due_at)
               SELECT gen_random_uuid(), '', now(), now() FROM generate_series(1, 3000);
             CREATE TABLE come_and_gone (n int) WITH (autovacuum_enabled = false);
             INSERT INTO come_and_gone SELECT generate_series(1, 3000);
             DELETE FROM come_and_gone",
        )
        .await;
    assert_eq!(fixture.refresh_statistics().await, 0);
}

#[tokio::test]
async fn statistics_are_refreshed_by_one_server_at_a_time() {
    let fixture = DbFixture::new().await;
    fixture
        .sql("ALTER TABLE contacts SET (autovacuum_enabled = false)")
        .await;
    fixture.add_contacts(1500).await;
    let other_server = fixture.db.client().await;
    other_server
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('recado analyze'))")
        .await
        .unwrap();
    assert_eq!(fixture.refresh_statistics().await, 0, "another server holds the lock");
    other_server.batch_execute("COMMIT").await.unwrap();
    assert!(fixture.refresh_statistics().await > 0);
}
