//! Writers of the event feed: one at a time for each account, and independent of other accounts.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use recado_domain::shared::{AccountId, Event, EventKind, WebhookKind};
use recado_postgres::{OwnerPool, PgOutbox};
use serde_json::json;

use crate::support::DbFixture;
use crate::webhook_events::endpoint;

async fn append(fixture: &DbFixture, account: AccountId, n: usize) {
    let event = Event::webhook(WebhookKind::MessageSent, vec![json!({ "n": n })]);
    fixture.append_events(account, &[event]).await;
}

/// The numbers of the account's events in the order of the feed.
async fn feed(fixture: &DbFixture, account: AccountId) -> String {
    let query = format!(
        "SELECT string_agg(payload ->> 'n', ' ' ORDER BY seq) FROM webhook_events WHERE account_id = '{account}'"
    );
    fixture.text(&query).await.unwrap_or_default()
}

#[tokio::test]
async fn open_fan_out_blocks_only_its_own_account() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    for account in [account, other_account] {
        endpoint(&fixture, account, "{*}", true).await;
    }
    // The fan-out of the first account waits for its endpoint, with its place in the feed already taken.
    let holder = fixture.db.client().await;
    let lock = format!("BEGIN; SELECT FROM webhook_endpoints WHERE account_id = '{account}' FOR UPDATE");
    holder.batch_execute(&lock).await.unwrap();
    append(&fixture, account, 1).await;
    let mut patient = fixture.db.config();
    (patient.lock_timeout, patient.statement_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
    let patient = PgOutbox::new(OwnerPool::new(&patient).unwrap());
    let relay = |outbox: PgOutbox| tokio::spawn(async move { outbox.relay(EventKind::Webhook, 10).await });
    let first = relay(patient.clone());
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while fixture.number(waits).await < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    append(&fixture, other_account, 2).await;
    assert_eq!(fixture.outbox().relay(EventKind::Webhook, 10).await.unwrap(), 1);
    assert_eq!(feed(&fixture, other_account).await, "2");
    append(&fixture, account, 3).await;
    let second = relay(patient.clone());
    while fixture.number(waits).await < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        !second.is_finished(),
        "a later event of the account waits for the earlier one"
    );
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (1, 1));
    assert_eq!(feed(&fixture, account).await, "1 3");
}

/// A reader that has read a sequence number of its account has read every smaller one.
#[tokio::test]
async fn no_event_appears_before_an_event_that_was_read() {
    const EVENTS: usize = 60;
    let fixture = DbFixture::new().await;
    let accounts = [fixture.account, fixture.another_account().await];
    for account in accounts {
        endpoint(&fixture, account, "{*}", true).await;
        for n in 0..EVENTS {
            append(&fixture, account, n).await;
        }
    }
    let relays = (0..4).map(|_| {
        let outbox = fixture.outbox();
        tokio::spawn(async move { while outbox.relay(EventKind::Webhook, 3).await.unwrap() > 0 {} })
    });
    let relays: Vec<_> = relays.collect();
    let mut seen: [BTreeSet<i64>; 2] = Default::default();
    loop {
        let finished = relays.iter().all(tokio::task::JoinHandle::is_finished);
        for (account, seen) in accounts.iter().zip(&mut seen) {
            let query = format!("SELECT seq FROM webhook_events WHERE account_id = '{account}'");
            let rows = fixture.db.client().await.query(&query, &[]).await.unwrap();
            let now: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
            let last = seen.last().copied().unwrap_or(0);
            assert!(now.difference(seen).all(|seq| *seq > last), "after {last}: {now:?}");
            *seen = now;
        }
        if finished {
            break;
        }
    }
    join_all(relays).await;
    assert_eq!(seen.map(|seen| seen.len()), [EVENTS, EVENTS]);
}
