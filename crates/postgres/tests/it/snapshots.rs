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

/// Polls until the longest transaction is a second old.
async fn second_old_session(fixture: &DbFixture) -> OldestSnapshot {
    for _ in 0..500 {
        let held = session(fixture).await;
        if held.age >= Duration::from_secs(1) {
            return held;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no transaction is a second old")
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
    let held = second_old_session(&fixture).await;
    assert!(held.transactions >= 5, "{held:?}");
    // A transaction that writes and has no snapshot counts, too.
    holder
        .batch_execute("COMMIT; BEGIN; SELECT txid_current()")
        .await
        .unwrap();
    second_old_session(&fixture).await;
}
