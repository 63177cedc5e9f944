//! Events that commit with a change, and the relay that turns them into audit entries and notifications.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Audit, Event, Notification, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::derived;
use crate::errors::{Attempt, failed, retry};
use crate::pool::PlatformPool;
use crate::sql::sql;

/// Leaves events behind, as part of the caller's transaction. A tenant may add to the outbox and never read it.
pub(crate) async fn append(conn: &mut AsyncPgConnection, account: AccountId, events: &[Event]) -> Attempt<()> {
    if events.is_empty() {
        return Ok(());
    }
    let payloads = events
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<Vec<Value>, _>>()
        .map_err(failed)?;
    sql("INSERT INTO outbox_events (account_id, payload)
         SELECT $1, e.payload FROM unnest($2) WITH ORDINALITY AS e (payload, position) ORDER BY e.position")
    .bind(account)
    .bind(payloads)
    .execute(conn)
    .await?;
    Ok(())
}

/// The relay's side of the outbox.
#[derive(Clone, Debug)]
pub struct PgOutbox(PlatformPool);

#[derive(QueryableByName)]
struct Waiting {
    #[diesel(sql_type = BigInt)]
    seq: i64,
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = Jsonb)]
    payload: Value,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl Waiting {
    fn id(&self) -> Uuid {
        derived::of_event(self.seq, self.created_at)
    }
}

impl PgOutbox {
    pub fn new(pool: PlatformPool) -> Self {
        Self(pool)
    }

    /// Carries out up to `limit` of the oldest events, each exactly once: they leave the outbox in the transaction
    /// that writes what they say. Returns how many left it; several relays may run at once.
    pub async fn relay(&self, limit: i64) -> Result<usize, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin().await?;
            let done = carry_out(tx.conn()?, limit).await;
            tx.end(done).await
        })
        .await
    }
}

async fn carry_out(conn: &mut AsyncPgConnection, limit: i64) -> Attempt<usize> {
    let mut waiting: Vec<Waiting> = sql("DELETE FROM outbox_events WHERE seq IN
           (SELECT seq FROM outbox_events ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED)
         RETURNING seq, account_id, payload, created_at")
    .bind(limit)
    .load(&mut *conn)
    .await?;
    waiting.sort_unstable_by_key(|event| event.seq);
    let (mut audits, mut notifications) = (Vec::new(), Vec::new());
    for event in &waiting {
        match serde_json::from_value(event.payload.clone()) {
            Ok(Event::Audit(audit)) => audits.push((event, audit)),
            Ok(Event::Notification(notification)) => notifications.push((event, notification)),
            // One that nobody can read must not hold up those behind it.
            Err(error) => tracing::error!(seq = event.seq, %error, "an event of the outbox cannot be read"),
        }
    }
    write_audits(conn, audits).await?;
    write_notifications(conn, notifications).await?;
    Ok(waiting.len())
}

/// Events of an account that was deleted meanwhile find no account to join, and are dropped.
async fn write_audits(conn: &mut AsyncPgConnection, audits: Vec<(&Waiting, Audit)>) -> Attempt<()> {
    if audits.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&(&Waiting, Audit)) -> Uuid| audits.iter().map(of).collect::<Vec<_>>();
    let texts = |of: fn(&(&Waiting, Audit)) -> String| audits.iter().map(of).collect::<Vec<_>>();
    sql("INSERT INTO audit_logs
           (account_id, id, user_id, action, entity_type, entity_id, changes, ip_address, created_at)
         SELECT e.account_id, e.id, e.user_id, e.action, e.entity_type, e.entity_id, e.changes, e.ip_address,
           e.created_at
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
           AS e (account_id, id, user_id, action, entity_type, entity_id, changes, ip_address, created_at)
         JOIN accounts a ON a.id = e.account_id
         ON CONFLICT DO NOTHING")
    .bind(column(|(event, _)| event.account_id))
    .bind(column(|(event, _)| event.id()))
    .bind(
        audits
            .iter()
            .map(|(_, audit)| audit.user_id.map(Uuid::from))
            .collect::<Vec<_>>(),
    )
    .bind(texts(|(_, audit)| audit.action.as_str().to_owned()))
    .bind(texts(|(_, audit)| audit.entity_type.clone()))
    .bind(audits.iter().map(|(_, audit)| audit.entity_id).collect::<Vec<_>>())
    .bind(
        audits
            .iter()
            .map(|(_, audit)| audit.changes.clone())
            .collect::<Vec<_>>(),
    )
    .bind(
        audits
            .iter()
            .map(|(_, audit)| audit.ip_address.clone())
            .collect::<Vec<_>>(),
    )
    .bind(audits.iter().map(|(event, _)| event.created_at).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_notifications(
    conn: &mut AsyncPgConnection,
    notifications: Vec<(&Waiting, Notification)>,
) -> Attempt<()> {
    if notifications.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&(&Waiting, Notification)) -> Uuid| notifications.iter().map(of).collect::<Vec<_>>();
    let texts = |of: fn(&(&Waiting, Notification)) -> String| notifications.iter().map(of).collect::<Vec<_>>();
    sql(
        "INSERT INTO notifications (account_id, id, type, title, message, data, created_at)
         SELECT e.account_id, e.id, e.type, e.title, e.message, e.data, e.created_at
         FROM unnest($1, $2, $3, $4, $5, $6, $7) AS e (account_id, id, type, title, message, data, created_at)
         JOIN accounts a ON a.id = e.account_id
         ON CONFLICT DO NOTHING",
    )
    .bind(column(|(event, _)| event.account_id))
    .bind(column(|(event, _)| event.id()))
    .bind(texts(|(_, notification)| notification.kind.as_str().to_owned()))
    .bind(texts(|(_, notification)| notification.title.clone()))
    .bind(texts(|(_, notification)| notification.message.clone()))
    .bind(
        notifications
            .iter()
            .map(|(_, notification)| notification.data.clone())
            .collect::<Vec<_>>(),
    )
    .bind(
        notifications
            .iter()
            .map(|(event, _)| event.created_at)
            .collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(())
}
