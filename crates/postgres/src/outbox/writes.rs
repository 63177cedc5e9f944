//! Writes outbox events to the table of their kind. A batch is one statement. An empty batch checks whether the table
//! can be written. Events of a deleted account are dropped: the join with `accounts` finds no row. It locks the account
//! (FOR KEY SHARE) where no foreign key of the written table does that.

use std::collections::BTreeSet;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{Audit, EventKind, NotificationDraft, StoreError, WebhookEventBatch};
use serde::de::DeserializeOwned;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::deterministic_ids;
use crate::errors::{DbResult, corrupt};
use crate::sql::{collect_column, sql};

/// Key of an advisory lock. No other lock in the database uses it.
const NOTIFICATIONS_LOCK: i64 = 0x7265_6361_646f;

/// Class of advisory locks with two keys: this and a hash of the account. No other lock in the database uses it.
const WEBHOOKS_LOCK: i32 = 0x7265_6361;

#[derive(QueryableByName)]
pub(super) struct OutboxRow {
    #[diesel(sql_type = BigInt)]
    pub(super) seq: i64,
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = Jsonb)]
    payload: Value,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

/// An outbox row and its parsed payload.
type ParsedEvent<'a, T> = (&'a OutboxRow, T);

pub(super) async fn write(conn: &mut AsyncPgConnection, kind: EventKind, rows: &[OutboxRow]) -> DbResult<()> {
    match kind {
        EventKind::Audit => write_audits(conn, parse(rows)?).await,
        EventKind::Notification => write_notifications(conn, parse(rows)?).await,
        EventKind::Webhook => write_webhooks(conn, parse(rows)?).await,
    }
}

fn parse<T: DeserializeOwned>(rows: &[OutboxRow]) -> Result<Vec<ParsedEvent<'_, T>>, StoreError> {
    rows.iter()
        .map(|row| {
            let payload = serde_json::from_value(row.payload.clone()).map_err(corrupt)?;
            Ok((row, payload))
        })
        .collect()
}

/// Writes audit entries and their counts. Counts are locked in the order of their keys, so that two relays never
/// deadlock.
async fn write_audits(conn: &mut AsyncPgConnection, events: Vec<ParsedEvent<'_, Audit>>) -> DbResult<()> {
    sql(include_str!("write_audits.sql"))
        .bind(collect_column(&events, |(event, _)| event.account_id))
        .bind(collect_column(&events, |(event, _)| event.id()))
        .bind(collect_column(&events, |(_, audit)| audit.user_id.map(Uuid::from)))
        .bind(collect_column(&events, |(_, audit)| audit.action.as_str().to_owned()))
        .bind(collect_column(&events, |(_, audit)| audit.entity_type.clone()))
        .bind(collect_column(&events, |(_, audit)| audit.entity_id))
        .bind(collect_column(&events, |(_, audit)| audit.recorded_changes()))
        .bind(collect_column(&events, |(_, audit)| audit.ip_address.clone()))
        .bind(collect_column(&events, |(event, _)| event.created_at))
        .execute(conn)
        .await?;
    Ok(())
}

/// Writes notifications, one transaction at a time (advisory lock until the commit). So `seq` follows the order in
/// which rows become visible: a stream that has read one notification has read every smaller `seq`. The lock covers all
/// accounts, because one stream of a process reads the notifications of all of them in the order of `seq`.
async fn write_notifications(
    conn: &mut AsyncPgConnection,
    events: Vec<ParsedEvent<'_, NotificationDraft>>,
) -> DbResult<()> {
    if !events.is_empty() {
        sql("SELECT pg_advisory_xact_lock($1)")
            .bind(NOTIFICATIONS_LOCK)
            .execute(&mut *conn)
            .await?;
    }
    sql(
        "INSERT INTO notifications (account_id, id, type, title, message, data, created_at)
         SELECT e.account_id, e.id, e.type, e.title, e.message, e.data, e.created_at
         FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY
           AS e (account_id, id, type, title, message, data, created_at, position)
         JOIN accounts a ON a.id = e.account_id
         ORDER BY e.position
         ON CONFLICT DO NOTHING",
    )
    .bind(collect_column(&events, |(event, _)| event.account_id))
    .bind(collect_column(&events, |(event, _)| event.id()))
    .bind(collect_column(&events, |(_, notification)| {
        notification.kind.as_str().to_owned()
    }))
    .bind(collect_column(&events, |(_, notification)| notification.title.clone()))
    .bind(collect_column(&events, |(_, notification)| {
        notification.message.clone()
    }))
    .bind(collect_column(&events, |(_, notification)| notification.data.clone()))
    .bind(collect_column(&events, |(event, _)| event.created_at))
    .execute(conn)
    .await?;
    Ok(())
}

/// Serializes the writers of each account's feed (advisory lock until the commit). Writers of other accounts do not wait,
/// unless the hashes of two accounts are equal. The locks are taken in ascending order, after the outbox rows.
async fn serialize_feed_writers(conn: &mut AsyncPgConnection, accounts: impl Iterator<Item = Uuid>) -> DbResult<()> {
    let keys: BTreeSet<i32> = accounts.map(feed_lock).collect();
    sql("SELECT pg_advisory_xact_lock($1, k.key) FROM unnest($2) AS k (key)")
        .bind(WEBHOOKS_LOCK)
        .bind(keys.into_iter().collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(())
}

/// A hash of the account: its id, folded.
fn feed_lock(account: Uuid) -> i32 {
    let (words, _) = account.as_bytes().as_chunks::<4>();
    words.iter().fold(0, |hash, word| hash ^ i32::from_be_bytes(*word))
}

/// Inserts webhook events into the feed, with `seq` values in the order in which an account's rows become visible, and
/// one delivery for every active endpoint that subscribes to the event. Deliveries are due from the time of the
/// statement on: the transaction began before it waited for its locks.
const FAN_OUT: &str = include_str!("fan_out.sql");

async fn write_webhooks(conn: &mut AsyncPgConnection, events: Vec<ParsedEvent<'_, WebhookEventBatch>>) -> DbResult<()> {
    let items: Vec<ParsedEvent<'_, (usize, &str, Value)>> = events
        .into_iter()
        .flat_map(|(event, webhook)| {
            let kind = webhook.kind.as_str();
            let items = webhook.items.into_iter().enumerate();
            items.map(move |(index, item)| (event, (index, kind, item)))
        })
        .collect();
    if !items.is_empty() {
        let accounts = items.iter().map(|(event, _)| event.account_id);
        serialize_feed_writers(&mut *conn, accounts).await?;
    }
    sql(FAN_OUT)
        .bind(collect_column(&items, |(event, _)| event.account_id))
        .bind(collect_column(&items, |(event, (index, ..))| {
            deterministic_ids::outbox_item_id(event.seq, *index, event.created_at)
        }))
        .bind(collect_column(&items, |(_, (_, kind, _))| (*kind).to_owned()))
        .bind(collect_column(&items, |(_, (.., item))| item.clone()))
        .bind(collect_column(&items, |(event, _)| event.created_at))
        .execute(conn)
        .await?;
    Ok(())
}

impl OutboxRow {
    /// The deterministic id of the row that this event becomes. Writing an event twice yields the same row.
    fn id(&self) -> Uuid {
        deterministic_ids::outbox_row_id(self.seq, self.created_at)
    }
}
