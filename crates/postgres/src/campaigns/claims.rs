//! The middle of a run: who holds it, which sends are next, and which may leave.

use std::collections::HashSet;

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Integer, Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{Claim, ClaimedSend, QueuedRun, Recipient};
use recado_domain::shared::{SendId, StoreError};
use serde_json::Value;
use time::Duration;
use uuid::Uuid;

use crate::errors::{Attempt, corrupt};
use crate::sql::{Answer, Id, bare, sql};

/// Looking again sooner than this would only burn time.
const SHORTEST_WAIT: Duration = Duration::milliseconds(50);

#[derive(QueryableByName)]
struct RunRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
}

/// Leases the oldest run that nobody holds, across accounts.
pub(super) async fn take(conn: &mut AsyncPgConnection, worker: Uuid, lease: Duration) -> Attempt<Option<QueuedRun>> {
    // What is not sending any more has no run: a rest that nothing else would remove.
    sql(
        "DELETE FROM campaign_queue q WHERE NOT EXISTS (SELECT 1 FROM campaigns c
           WHERE c.account_id = q.account_id AND c.id = q.campaign_id AND c.status = 'sending')",
    )
    .execute(&mut *conn)
    .await?;
    let taken: Option<RunRow> = sql("UPDATE campaign_queue
         SET worker = $1, leased_until = now() + $2 * interval '1 microsecond'
         WHERE (account_id, campaign_id) = (SELECT q.account_id, q.campaign_id
           FROM campaign_queue q
           JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
           JOIN accounts a ON a.id = q.account_id
           WHERE (q.worker IS NULL OR q.leased_until < now())
             AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
           ORDER BY q.created_at LIMIT 1 FOR UPDATE OF q SKIP LOCKED)
         RETURNING account_id, campaign_id")
    .bind(worker)
    .bind(lease)
    .get_result(conn)
    .await
    .optional()?;
    Ok(taken.map(|row| QueuedRun {
        account_id: row.account_id.into(),
        campaign_id: row.campaign_id.into(),
    }))
}

/// Whoever takes a run has started nothing of it: what is started was left behind.
pub(super) async fn doubt_started(conn: &mut AsyncPgConnection, run: QueuedRun) -> Attempt<()> {
    sql("UPDATE campaign_sends SET unknown_at = now()
         WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NOT NULL
           AND unknown_at IS NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    attributes: Option<Value>,
}

impl TryFrom<ClaimedRow> for ClaimedSend {
    type Error = StoreError;

    fn try_from(row: ClaimedRow) -> Result<Self, StoreError> {
        let recipient = match (row.name, row.phone, row.attributes) {
            (Some(name), Some(phone), Some(attributes)) => {
                let attributes = serde_json::from_value(attributes).map_err(corrupt)?;
                Some(Recipient {
                    name,
                    phone,
                    email: row.email,
                    attributes,
                })
            }
            _ => None,
        };
        Ok(Self {
            id: row.id.into(),
            attempts: row.attempts.unsigned_abs(),
            recipient,
        })
    }
}

/// Renews the lease and claims the next sends.
pub(super) async fn claim(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    size: i64,
    lease: Duration,
) -> Attempt<Claim> {
    match renew(conn, run, worker, lease).await? {
        Some(true) => {}
        Some(false) => return Ok(Claim::Stopped),
        None => {
            let queued: Answer =
                sql("SELECT EXISTS (SELECT 1 FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2) AS yes")
                    .bind(run.account_id)
                    .bind(run.campaign_id)
                    .get_result(conn)
                    .await?;
            return Ok(if queued.yes { Claim::Lost } else { Claim::Stopped });
        }
    }
    let mut rows: Vec<ClaimedRow> = sql("WITH due AS (SELECT id, contact_id FROM campaign_sends
           WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NULL
             AND (retry_at IS NULL OR retry_at <= now())
           ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED)
         UPDATE campaign_sends s SET claimed_by = $3
         FROM due d LEFT JOIN contacts c ON c.account_id = $1 AND c.id = d.contact_id
           AND c.deleted_at IS NULL AND c.opted_out_at IS NULL AND c.phone IS NOT NULL
         WHERE s.account_id = $1 AND s.id = d.id
         RETURNING s.id, s.attempts, c.name, c.phone, c.email, c.attributes")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(size)
    .load(&mut *conn)
    .await?;
    if rows.is_empty() {
        return later(conn, run).await;
    }
    rows.sort_unstable_by_key(|row| row.id);
    let sends = rows
        .into_iter()
        .map(ClaimedSend::try_from)
        .collect::<Result<_, StoreError>>()?;
    Ok(Claim::Sends(sends))
}

/// Whether the run goes on; none when it is not this worker's.
async fn renew(conn: &mut AsyncPgConnection, run: QueuedRun, worker: Uuid, lease: Duration) -> Attempt<Option<bool>> {
    let going: Option<Answer> = sql(
        "UPDATE campaign_queue q SET leased_until = now() + $4 * interval '1 microsecond'
         FROM campaigns c, accounts a
         WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
           AND c.account_id = $1 AND c.id = $2 AND a.id = $1
         RETURNING (c.status = 'sending' AND c.paused_at IS NULL AND c.deleted_at IS NULL AND a.status = 'active')
           AS yes",
    )
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(lease)
    .get_result(conn)
    .await
    .optional()?;
    Ok(going.map(|answer| answer.yes))
}

#[derive(QueryableByName)]
struct WaitRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    microseconds: Option<i64>,
}

/// When nothing is due: how long until something is, if anything is left at all.
async fn later(conn: &mut AsyncPgConnection, run: QueuedRun) -> Attempt<Claim> {
    let row: WaitRow = sql("SELECT
           (extract(epoch FROM min(coalesce(retry_at, now())) - now()) * 1000000)::bigint AS microseconds
         FROM campaign_sends
         WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .get_result(conn)
    .await?;
    Ok(match row.microseconds {
        None => Claim::Exhausted,
        Some(microseconds) => Claim::Wait(Duration::microseconds(microseconds).max(SHORTEST_WAIT)),
    })
}

/// Marks claimed sends as started. Holding the run's place in the queue meanwhile keeps a cancel from giving back the
/// quota of sends that leave.
pub(super) async fn mark_started(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    sends: &[SendId],
) -> Attempt<Vec<SendId>> {
    let held: Option<Answer> = sql("SELECT true AS yes FROM campaign_queue q
         JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
         WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
           AND c.status = 'sending' AND c.paused_at IS NULL
         FOR SHARE OF q")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if held.is_none() {
        return Ok(vec![]);
    }
    let started: Vec<Id> = sql("UPDATE campaign_sends SET started_at = now()
         WHERE account_id = $1 AND campaign_id = $2 AND id = ANY ($4) AND claimed_by = $3 AND status = 'pending'
           AND started_at IS NULL
         RETURNING id")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(bare(sends))
    .load(conn)
    .await?;
    let started: HashSet<Uuid> = started.into_iter().map(|row| row.id).collect();
    Ok(sends.iter().copied().filter(|send| started.contains(&send.0)).collect())
}

pub(super) async fn release(conn: &mut AsyncPgConnection, run: QueuedRun, worker: Uuid) -> Attempt<()> {
    sql("UPDATE campaign_queue SET worker = NULL, leased_until = NULL
         WHERE account_id = $1 AND campaign_id = $2 AND worker = $3")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .execute(conn)
    .await?;
    Ok(())
}
