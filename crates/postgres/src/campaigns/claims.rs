//! Claims of runs and of their sends: leases, fencing by worker id, and the next due sends.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{ClaimOutcome, ClaimedSend, QueuedRun, Recipient};
use recado_domain::shared::{AccountId, CampaignId, ContactId, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::{SendIdRange, id_of_campaign};
use super::{audience, rows};
use crate::errors::{DbResult, corrupt};
use crate::sql::{FlagRow, NumberRow, sql};

/// Minimum wait before a run looks for due sends again, so that it does not poll in a busy loop.
const MIN_WAIT: Duration = Duration::milliseconds(50);

/// Raises the statement timeout for statements that read every send of a run. A very large run needs longer than the
/// default allows.
pub(super) const WHOLE_RUN_TIMEOUT: &str = "SET LOCAL statement_timeout = '60s'";

#[derive(QueryableByName)]
pub(super) struct RunRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
}

impl From<RunRow> for QueuedRun {
    fn from(row: RunRow) -> Self {
        Self {
            account_id: row.account_id.into(),
            campaign_id: row.campaign_id.into(),
        }
    }
}

#[derive(QueryableByName)]
struct ExpiredLeaseRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    worker: Uuid,
}

/// Leases the unclaimed run that has waited longest, across all accounts.
pub(super) async fn claim_run(
    conn: &mut AsyncPgConnection,
    worker: Uuid,
    lease: Duration,
) -> DbResult<Option<QueuedRun>> {
    let claimed: Option<RunRow> = sql("UPDATE campaign_queue
         SET worker = $1, leased_until = now() + $2 * interval '1 microsecond'
         WHERE (account_id, campaign_id) = (SELECT q.account_id, q.campaign_id
           FROM campaign_queue q
           JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
           JOIN accounts a ON a.id = q.account_id
           WHERE q.worker IS NULL AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
             AND (q.retry_at <= now()) IS NOT FALSE
           ORDER BY q.waiting_since LIMIT 1 FOR UPDATE OF q SKIP LOCKED)
         RETURNING account_id, campaign_id")
    .bind(worker)
    .bind(lease)
    .get_result(conn)
    .await
    .optional()?;
    Ok(claimed.map(QueuedRun::from))
}

/// Finds queue entries whose campaign is not sending, across all accounts.
pub(super) async fn obsolete_entries(conn: &mut AsyncPgConnection, limit: i64) -> DbResult<Vec<QueuedRun>> {
    let rows: Vec<RunRow> = sql("SELECT q.account_id, q.campaign_id FROM campaign_queue q
         WHERE NOT EXISTS (SELECT 1 FROM campaigns c
           WHERE c.account_id = q.account_id AND c.id = q.campaign_id AND c.status = 'sending')
         LIMIT $1")
    .bind(limit)
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(QueuedRun::from).collect())
}

/// Deletes the queue entry of a campaign that is not sending. A start that reuses the entry locks the campaign until it
/// commits. The delete takes the same lock first, so it sees the status that the start wrote.
pub(super) async fn delete_obsolete_entry(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<usize> {
    rows::lock(conn, run).await?;
    let deleted = sql("DELETE FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2
           AND NOT EXISTS (SELECT 1 FROM campaigns WHERE account_id = $1 AND id = $2 AND status = 'sending')")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .execute(conn)
    .await?;
    Ok(deleted)
}

/// Whether a run waits for a worker.
pub(super) async fn has_waiting_run(conn: &mut AsyncPgConnection) -> DbResult<bool> {
    let waiting: FlagRow = sql("SELECT EXISTS (SELECT 1 FROM campaign_queue q
           JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
           JOIN accounts a ON a.id = q.account_id
           WHERE q.worker IS NULL AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
             AND (q.retry_at <= now()) IS NOT FALSE) AS yes")
    .get_result(conn)
    .await?;
    Ok(waiting.yes)
}

/// Finds up to 100 runs with an expired lease and the worker that held it, across all accounts.
pub(super) async fn expired_leases(conn: &mut AsyncPgConnection) -> DbResult<Vec<(QueuedRun, Uuid)>> {
    let rows: Vec<ExpiredLeaseRow> = sql("SELECT account_id, campaign_id, worker FROM campaign_queue
         WHERE worker IS NOT NULL AND leased_until < now() ORDER BY leased_until LIMIT 100")
    .load(conn)
    .await?;
    let expired = rows.into_iter().map(|row| {
        let run = QueuedRun {
            account_id: row.account_id.into(),
            campaign_id: row.campaign_id.into(),
        };
        (run, row.worker)
    });
    Ok(expired.collect())
}

/// Takes a run away from `worker` and marks its unresolved sends as unknown. With `expired`, only if the lease expired.
pub(super) async fn abandon(conn: &mut AsyncPgConnection, run: QueuedRun, worker: Uuid, expired: bool) -> DbResult<()> {
    let abandoned = sql("UPDATE campaign_queue SET worker = NULL, leased_until = NULL
         WHERE account_id = $1 AND campaign_id = $2 AND worker = $3 AND (NOT $4 OR leased_until < now())")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(expired)
    .execute(&mut *conn)
    .await?;
    if abandoned > 0 {
        mark_unknown(conn, run.account_id, run.campaign_id).await?;
    }
    Ok(())
}

/// Marks sends that were started and have no recorded result as unknown. No index covers them, so this reads every send
/// of the run. It runs only when a worker loses or abandons a run, and when a run ends with pending sends.
pub(super) async fn mark_unknown(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<()> {
    conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
    sql(concat!(
        "UPDATE campaign_sends SET unknown_at = now()
         WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NOT NULL
           AND unknown_at IS NULL AND ",
        id_of_campaign!("campaign_sends")
    ))
    .bind(account)
    .bind(campaign)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
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
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
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
            contact_id: row.contact_id.into(),
            attempts: row.attempts.unsigned_abs(),
            recipient,
            wa_id: row.wa_id,
        })
    }
}

/// Renews the run's lease and returns its next due sends.
pub(super) async fn claim_sends(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    after: Option<ContactId>,
    size: i64,
    lease: Duration,
) -> DbResult<ClaimOutcome> {
    let ids = match renew_lease(conn, run, worker, lease).await? {
        Some(held) if held.may_continue => SendIdRange::of_campaign(held.frozen_at),
        Some(_) => return Ok(ClaimOutcome::Stopped),
        None => {
            let queued: FlagRow =
                sql("SELECT EXISTS (SELECT 1 FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2) AS yes")
                    .bind(run.account_id)
                    .bind(run.campaign_id)
                    .get_result(conn)
                    .await?;
            return Ok(if queued.yes {
                ClaimOutcome::Lost
            } else {
                ClaimOutcome::Stopped
            });
        }
    };
    let mut rows = due_sends(conn, run, ids, after, size).await?;
    // Recipient batches come after the materialized sends. Another worker mostly materializes them in time.
    while rows.is_empty() && audience::materialize_sends(conn, run.account_id, run.campaign_id).await? {
        rows = due_sends(conn, run, ids, after, size).await?;
    }
    if rows.is_empty() {
        // Search the whole run again: an earlier worker may have skipped sends, sends may have been released, or
        // another worker may have materialized the last batch while this one waited.
        conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
        rows = due_sends(conn, run, ids, None, size).await?;
    }
    if rows.is_empty() {
        return exhausted_or_wait(conn, run).await;
    }
    let sends = rows
        .into_iter()
        .map(ClaimedSend::try_from)
        .collect::<Result<_, StoreError>>()?;
    Ok(ClaimOutcome::Sends(sends))
}

/// Reads the next due sends: first the retries by time, then the untried sends after contact `after` (keyset
/// pagination). Each contact is looked up by its key, as in a list of sends. Nothing is written: a run has one holder,
/// and the start of a send requires that it is still unstarted.
///
/// The range of ids skips other partitions. It MUST be executed in index order: without statistics of a new partition
/// the planner would expect few ids in the range, and read and sort all sends of the campaign.
async fn due_sends(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    ids: SendIdRange,
    after: Option<ContactId>,
    size: i64,
) -> DbResult<Vec<ClaimedRow>> {
    let rows = sql("WITH due AS MATERIALIZED (
           (SELECT id, contact_id, attempts FROM campaign_sends
            WHERE account_id = $1 AND campaign_id = $2 AND retry_at <= now() AND status = 'pending' AND started_at IS NULL
              AND id BETWEEN $5 AND $6
            ORDER BY retry_at LIMIT $4)
           UNION ALL
           (SELECT id, contact_id, attempts FROM campaign_sends
            WHERE account_id = $1 AND campaign_id = $2 AND contact_id > $3 AND retry_at IS NULL AND status = 'pending'
              AND started_at IS NULL AND id BETWEEN $5 AND $6
            ORDER BY contact_id LIMIT $4)
           LIMIT $4)
         SELECT d.id, d.contact_id, d.attempts, c.name, c.phone, c.email, c.attributes, c.wa_id
         FROM due d LEFT JOIN LATERAL (SELECT * FROM contacts WHERE account_id = $1 AND id = d.contact_id OFFSET 0) c
           ON c.deleted_at IS NULL AND c.opted_out_at IS NULL AND c.phone IS NOT NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(after.unwrap_or(ContactId(Uuid::nil())))
    .bind(size)
    .bind(ids.first)
    .bind(ids.last)
    .load(conn)
    .await?;
    Ok(rows)
}

#[derive(QueryableByName)]
struct HeldRow {
    /// Whether the run may continue.
    #[diesel(sql_type = Bool)]
    may_continue: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    frozen_at: Option<OffsetDateTime>,
}

/// Renews the lease and returns whether the run may continue, or `None` if `worker` does not hold it. The row is always
/// locked, but written only after a tenth of the lease has passed: more writes would leave dead row versions that
/// every claim has to scan until vacuum can remove them.
async fn renew_lease(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    lease: Duration,
) -> DbResult<Option<HeldRow>> {
    let held: Option<HeldRow> = sql("WITH held AS (
           SELECT c.status = 'sending' AND c.paused_at IS NULL AND c.deleted_at IS NULL AND a.status = 'active'
               AND NOT EXISTS (SELECT FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.id = c.profile_id
                 AND p.verification_state <> 'verified' AND NOT c.simulated) AS may_continue,
             c.frozen_at, q.leased_until < now() + 0.9 * $4 * interval '1 microsecond' AS due
           FROM campaign_queue q, campaigns c, accounts a
           WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
             AND c.account_id = $1 AND c.id = $2 AND a.id = $1
           FOR NO KEY UPDATE OF q
         ), renewed AS (
           UPDATE campaign_queue q SET leased_until = now() + $4 * interval '1 microsecond' FROM held h
           WHERE q.account_id = $1 AND q.campaign_id = $2 AND h.due
         )
         SELECT may_continue, frozen_at FROM held")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(lease)
    .get_result(conn)
    .await
    .optional()?;
    Ok(held)
}

#[derive(QueryableByName)]
struct WaitRow {
    #[diesel(sql_type = Nullable<BigInt>)]
    microseconds: Option<i64>,
}

/// Called when no send is due: returns the wait until the next retry, or `Exhausted` if no send is left.
async fn exhausted_or_wait(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<ClaimOutcome> {
    let row: WaitRow = sql(concat!(
        "SELECT (extract(epoch FROM min(retry_at) - now()) * 1000000)::bigint AS microseconds
         FROM campaign_sends
         WHERE account_id = $1 AND campaign_id = $2 AND retry_at IS NOT NULL AND status = 'pending'
           AND started_at IS NULL AND ",
        id_of_campaign!("campaign_sends")
    ))
    .bind(run.account_id)
    .bind(run.campaign_id)
    .get_result(conn)
    .await?;
    Ok(match row.microseconds {
        None => ClaimOutcome::Exhausted,
        Some(microseconds) => ClaimOutcome::Wait(Duration::microseconds(microseconds).max(MIN_WAIT)),
    })
}

pub(super) async fn release(conn: &mut AsyncPgConnection, run: QueuedRun, worker: Uuid) -> DbResult<()> {
    sql("UPDATE campaign_queue
         SET worker = NULL, leased_until = NULL, waiting_since = now(), retry_at = NULL, retries = 0
         WHERE account_id = $1 AND campaign_id = $2 AND worker = $3")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .execute(conn)
    .await?;
    Ok(())
}

/// How many times in a row the run was postponed.
pub(super) async fn postponements(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<u32> {
    let retries: Option<NumberRow> =
        sql("SELECT retries::bigint AS n FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2")
            .bind(run.account_id)
            .bind(run.campaign_id)
            .get_result(conn)
            .await
            .optional()?;
    Ok(retries.map_or(0, |row| u32::try_from(row.n).unwrap_or(u32::MAX)))
}

pub(super) async fn postpone(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    delay: Duration,
) -> DbResult<()> {
    sql("UPDATE campaign_queue
         SET worker = NULL, leased_until = NULL, waiting_since = now(),
           retry_at = now() + $4 * interval '1 microsecond', retries = retries + 1
         WHERE account_id = $1 AND campaign_id = $2 AND worker = $3")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(delay)
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends the postponement of a run when it is resumed.
pub(super) async fn clear_postponement(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<()> {
    sql("UPDATE campaign_queue SET retry_at = NULL, retries = 0
         WHERE account_id = $1 AND campaign_id = $2 AND retry_at IS NOT NULL")
    .bind(account)
    .bind(campaign)
    .execute(conn)
    .await?;
    Ok(())
}
