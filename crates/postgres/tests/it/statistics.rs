//! What the planner knows of tables that grew all of a sudden.

use recado_postgres::PgStatistics;

use crate::support::World;

#[tokio::test]
async fn a_table_that_grew_at_once_is_looked_at_and_then_left_alone() {
    let world = World::new().await;
    let statistics = PgStatistics::new(world.platform.clone());
    let known = "SELECT reltuples FROM pg_class WHERE relname = 'contacts'";
    world.sql("ALTER TABLE contacts SET (autovacuum_enabled = false)").await;
    world.people(1500).await;
    // Sessions tell of their work about once a second.
    world.sql("SELECT pg_stat_force_next_flush()").await;
    let mut looked = 0;
    while statistics.refresh().await.unwrap() {
        looked += 1;
        assert!(looked < 50, "there is no end to it");
        world.sql("SELECT pg_stat_force_next_flush()").await;
    }
    assert!(looked > 0);
    assert_eq!(world.number(known).await, 1500);
    world.people_of(world.another_account().await, 1200).await;
    world.sql("SELECT pg_stat_force_next_flush()").await;
    assert!(
        !statistics.refresh().await.unwrap(),
        "what PostgreSQL does by itself in time"
    );
}
