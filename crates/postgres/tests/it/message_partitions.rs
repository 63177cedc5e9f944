//! The partitions of messages: a repeated message is stored once, lookups and lists read few partitions, and a dropped
//! month leaves the sums as they were.

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore};
use recado_domain::conversations::{ConversationStore, InboundEvent, InboundMessage, Message};
use recado_domain::messaging::SendStatus;
use recado_domain::rollups::RollupStore;
use recado_domain::shared::{CursorQuery, ProfileId, SendId};
use recado_postgres::{PgPartitions, PgRollups, RetentionDays};
use time::{Duration, OffsetDateTime};

use crate::conversations::{
    connected, conversations, message, receive, reply_draft, reply_to_inbound_message, sender, sent, stored,
};
use crate::status_updates::status_update;
use crate::support::{DbFixture, id_at};

fn written(wamid: &str, at: OffsetDateTime) -> InboundEvent {
    match message(wamid, sender("5511961234567"), "oi", 0) {
        InboundEvent::Message(message) => InboundEvent::Message(InboundMessage { at, ..message }),
        other => other,
    }
}

async fn count(fixture: &DbFixture) -> i64 {
    fixture.number("SELECT count(*) FROM messages").await
}

/// A time of the database's current month that is not rounded.
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().replace_nanosecond(0).unwrap()
}

#[tokio::test]
async fn repeated_message_is_stored_once_whatever_its_time() {
    let (fixture, _) = connected().await;
    let account = fixture.account;
    let times = [
        OffsetDateTime::UNIX_EPOCH,
        now() - Duration::days(400),
        now(),
        now() + Duration::hours(1),
        now() + Duration::days(3650),
    ];
    for _ in 0..2 {
        for (number, at) in times.into_iter().enumerate() {
            receive(&fixture, account, vec![written(&format!("m{number}"), at)]).await;
        }
    }
    assert_eq!(count(&fixture).await, 5);
    let ahead = "SELECT count(*) FROM messages WHERE created_at > now() + interval '2 hours'";
    assert_eq!(
        fixture.number(ahead).await,
        0,
        "a time far ahead becomes that of the receipt"
    );
    let rollups = PgRollups::new(fixture.owner.clone());
    assert_eq!(rollups.verify(account).await.unwrap(), []);
}

/// A reply that was written now, beside messages of the last ten months.
async fn reply_of_now(fixture: &DbFixture, profile: ProfileId) -> Message {
    let template = reply_to_inbound_message(fixture, profile).await;
    for month in 1..10 {
        let at = now() - Duration::days(30 * month);
        receive(fixture, fixture.account, vec![written(&format!("old{month}"), at)]).await;
    }
    let draft = reply_draft(template.conversation_id, id_at(now()), now(), profile);
    let begun = conversations(fixture).begin_reply(fixture.account, &draft).await;
    stored(begun.unwrap()).unwrap()
}

#[tokio::test]
async fn message_lookups_and_pages_read_few_partitions() {
    let (mut fixture, profile) = connected().await;
    let account = fixture.account;
    let reply = reply_of_now(&fixture, profile).await;
    // Enough rows that the planner prefers a key to all messages of the account.
    fixture
        .sql(&format!(
            "INSERT INTO messages
               (account_id, id, conversation_id, direction, type, status, wa_message_id, created_at)
             SELECT '{account}', gen_random_uuid(), gen_random_uuid(), 'inbound', 'text', 'received', 'x' || i,
               now() - i % 10 * interval '40 days' - i * interval '1 s'
             FROM generate_series(1, 4000) i;
             ANALYZE"
        ))
        .await;
    fixture.plan_by_key().await;
    let current = "'messages' || to_char(now() AT TIME ZONE 'UTC', '_\"y\"YYYY\"m\"MM')";
    let current = vec![fixture.text(current).await.unwrap()];

    fixture.count_reads().await;
    conversations(&fixture)
        .record_reply(account, reply.id, &sent("w"))
        .await
        .unwrap();
    // On the first day of a month, the time of the id also allows the month before.
    let scanned = fixture.scanned_partitions("messages").await;
    assert!(
        scanned.contains(&current[0]) && scanned.len() <= 2,
        "result of a reply: {scanned:?}"
    );

    fixture.count_reads().await;
    let by_id = StatusUpdate {
        at: now(),
        ..status_update(Some(SendId(reply.id.0)), "w", SendStatus::Delivered)
    };
    // Without an echoed id, partitions of the last 45 days are read.
    let by_message = StatusUpdate {
        at: now(),
        ..status_update(None, "w", SendStatus::Read)
    };
    for update in [by_id, by_message] {
        let unmatched = fixture.status_updates().apply(account, &[update]).await.unwrap();
        assert_eq!(unmatched, Vec::<usize>::new());
    }
    let scanned = fixture.scanned_partitions("messages").await;
    assert!(scanned.contains(&current[0]) && scanned.len() <= 3, "{scanned:?}");

    fixture.count_reads().await;
    receive(&fixture, account, vec![written("new", now()), written("new", now())]).await;
    assert_eq!(fixture.scanned_partitions("messages").await, current, "received");

    fixture.count_reads().await;
    let page = CursorQuery { cursor: None, limit: 1 };
    let first = conversations(&fixture)
        .messages(account, reply.conversation_id, &page)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.data.len(), 1);
    assert_eq!(fixture.scanned_partitions("messages").await, current, "first page");
}

#[tokio::test]
async fn dropped_month_of_messages_leaves_sums_as_they_were() {
    let (fixture, profile) = connected().await;
    let account = fixture.account;
    let reply = reply_of_now(&fixture, profile).await;
    conversations(&fixture)
        .record_reply(account, reply.id, &sent("w"))
        .await
        .unwrap();
    let sums = "SELECT json_agg(r ORDER BY bucket_minutes, bucket_start)::text FROM message_rollups r";
    let before = fixture.text(&format!("({sums})")).await;
    let rollups = PgRollups::new(fixture.owner.clone());
    assert_eq!(rollups.verify(account).await.unwrap(), []);
    let partitions = PgPartitions::new(fixture.owner.clone());
    let terms = RetentionDays {
        messages: Some(30),
        ..RetentionDays::default()
    };
    let later = OffsetDateTime::now_utc() + Duration::days(62);
    partitions.drop_expired(&RetentionDays::default(), later).await.unwrap();
    assert_eq!(count(&fixture).await, 12, "kept for ever");
    partitions.drop_expired(&terms, later).await.unwrap();
    assert_eq!(count(&fixture).await, 0);
    assert_eq!(rollups.verify(account).await.unwrap(), []);
    assert_eq!(rollups.rebuild(account).await.unwrap(), 0);
    assert_eq!(fixture.text(&format!("({sums})")).await, before);
    // A message that arrives late has a bucket that is no longer compared. Buckets of kept months are.
    receive(&fixture, account, vec![written("late", now() - Duration::days(1))]).await;
    assert_eq!(rollups.verify(account).await.unwrap(), []);
    fixture
        .sql(&format!(
            "INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, received)
             VALUES ('{account}', 1440, date_trunc('day', now() + interval '60 days', 'UTC'), 1)"
        ))
        .await;
    assert_eq!(rollups.verify(account).await.unwrap().len(), 1);
}
