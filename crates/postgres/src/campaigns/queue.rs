//! The run queue: leases of runs, their release, postponement and wait.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{HeldSends, QueuedRun};
use recado_domain::shared::{AccountId, CampaignId};
use time::Duration;
use uuid::Uuid;

use super::rows::RunRow;
use super::{in_flight, rows};
use crate::errors::DbResult;
use crate::sql::{FlagRow, NumberRow, sql};

#[derive(QueryableByName)]
struct ExpiredLeaseRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    worker: Uuid,
}

/// Whether an unleased run `q` may be leased: it is not postponed, and does not wait for held sends. A waiting run is due
/// at once when the settings that hold messages have changed since its sends were checked.
const IS_DUE: &str = "((q.retry_at <= now()) IS NOT FALSE OR (q.waiting_until IS NOT NULL
    AND q.checked_settings_at IS DISTINCT FROM (SELECT s.holds_changed_at FROM account_settings s
      WHERE s.account_id = q.account_id)))";

/// Leases the unclaimed run that has waited longest, across all accounts. The run is then neither postponed nor does it
/// wait until a time: if its worker dies, the next one takes it at once.
pub(super) async fn claim_run(
    conn: &mut AsyncPgConnection,
    worker: Uuid,
    lease: Duration,
) -> DbResult<Option<QueuedRun>> {
    let claimed: Option<RunRow> = sql(format!(
        "UPDATE campaign_queue
         SET worker = $1, leased_until = now() + $2 * interval '1 microsecond', retry_at = NULL
         WHERE (account_id, campaign_id) = (SELECT q.account_id, q.campaign_id
           FROM campaign_queue q
           JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
           JOIN accounts a ON a.id = q.account_id
           WHERE q.worker IS NULL AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
             AND {IS_DUE}
           ORDER BY q.waiting_since LIMIT 1 FOR UPDATE OF q SKIP LOCKED)
         RETURNING account_id, campaign_id"
    ))
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
    let waiting: FlagRow = sql(format!(
        "SELECT EXISTS (SELECT 1 FROM campaign_queue q
           JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
           JOIN accounts a ON a.id = q.account_id
           WHERE q.worker IS NULL AND c.status = 'sending' AND c.paused_at IS NULL AND a.status = 'active'
             AND {IS_DUE}) AS yes"
    ))
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
        in_flight::mark_unknown(conn, run.account_id, run.campaign_id).await?;
    }
    Ok(())
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
           retry_at = now() + $4 * interval '1 microsecond', retries = retries + 1, waiting_until = NULL, held = 0
         WHERE account_id = $1 AND campaign_id = $2 AND worker = $3")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(delay)
    .execute(conn)
    .await?;
    Ok(())
}

/// Releases the lease of a run that waits for held sends.
pub(super) async fn wait(conn: &mut AsyncPgConnection, run: QueuedRun, worker: Uuid, held: HeldSends) -> DbResult<()> {
    sql("UPDATE campaign_queue
         SET worker = NULL, leased_until = NULL, waiting_since = now(), retry_at = $4, retries = 0,
           waiting_until = $4, held = $5
         WHERE account_id = $1 AND campaign_id = $2 AND worker = $3")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .bind(held.until)
    .bind(held.count)
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
