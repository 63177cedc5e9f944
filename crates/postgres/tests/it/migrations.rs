//! The embedded migrations.

use recado_domain::shared::StoreError;
use recado_postgres::testing::TestDatabase;
use recado_postgres::{PlatformPool, PoolConfig, migrate, pending};

#[tokio::test]
async fn a_migrated_database_is_left_alone() {
    let db = TestDatabase::new().await;
    assert_eq!(migrate(&db.url()).await.unwrap(), Vec::<String>::new());
    assert_eq!(pending(&db.platform_pool()).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_is_migrated_once_by_whoever_comes_first() {
    let db = TestDatabase::new().await;
    let client = db.client().await;
    client
        .batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        .await
        .unwrap();
    let pool = db.platform_pool();
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
async fn without_a_database_the_store_is_unavailable() {
    let url = "postgres://nobody@127.0.0.1:1/none".into();
    assert!(migrate(&url).await.is_err());
    let pool = PlatformPool::new(&PoolConfig::new(url, 1)).unwrap();
    assert!(matches!(pending(&pool).await, Err(StoreError::Unavailable(_))));
    assert!(PlatformPool::new(&PoolConfig::new("not a url".into(), 1)).is_err());
}
