//! The metric of the oldest snapshot.

use std::time::Duration;

use recado_postgres::{OldestSnapshot, PgSnapshots};

use crate::support::DbFixture;

async fn session(fixture: &DbFixture) -> OldestSnapshot {
    let oldest = PgSnapshots::new(fixture.owner.clone()).oldest().await.unwrap();
    let sources: Vec<_> = oldest.iter().map(|snapshot| snapshot.source.as_str()).collect();
    assert_eq!(sources, ["prepared_transaction", "replication_slot", "session"]);
    oldest.into_iter().next_back().unwrap()
}

#[tokio::test]
async fn oldest_snapshot_is_that_of_the_longest_transaction() {
    let fixture = DbFixture::new().await;
    assert!(session(&fixture).await.age < Duration::from_secs(60));
    let holder = fixture.db.client().await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM accounts";
    holder.batch_execute(begin).await.unwrap();
    for _ in 0..5 {
        fixture.sql("UPDATE accounts SET name = name || 'x'").await;
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let held = session(&fixture).await;
    assert!(held.age >= Duration::from_secs(1), "{held:?}");
    assert!(held.transactions >= 5, "{held:?}");
    // A transaction that writes and has no snapshot counts, too.
    holder
        .batch_execute("COMMIT; BEGIN; SELECT txid_current()")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let held = session(&fixture).await;
    assert!(held.age >= Duration::from_secs(1), "{held:?}");
}
