//! How a run stops: paused, finished, cancelled, or aborted before it was prepared.

use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::Timestamptz;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{
    Campaign, CampaignStatus, QueuedRun, QueuedStart, RunReport, SendCounts, Trigger, finish as conclude,
};
use recado_domain::shared::{AccountId, CampaignId, Event};
use time::{Date, Duration, OffsetDateTime};

use super::rows::RunRow;
use super::rows::{self, QueueEntryRow};
use super::{in_flight, usage};
use crate::errors::DbResult;
use crate::outbox;
use crate::schema::{campaign_queue, campaigns};
use crate::sql::sql;

/// The counter slots of a campaign are added up this long after its last change. Most status updates have come by then.
const FOLD_AFTER: Duration = Duration::DAY;

pub(super) async fn pause(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    reason: &str,
    events: &[Event],
) -> DbResult<()> {
    let paused = sql(
        "UPDATE campaigns SET paused_at = now(), pause_reason = $3, updated_at = now(), version = version + 1
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL AND status = 'sending' AND paused_at IS NULL",
    )
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(reason)
    .execute(&mut *conn)
    .await?;
    if paused > 0 {
        outbox::append(conn, run.account_id, events).await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
struct NowRow {
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

pub(super) async fn finish(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<Option<RunReport>> {
    let (account, id) = (run.account_id, run.campaign_id);
    let Some(row) = rows::find_locked(conn, account, id).await? else {
        return Ok(None);
    };
    let month = row.run_quota_month;
    let campaign = Campaign::try_from(row)?;
    let entry = rows::queue_entry(run).for_update();
    let entry: Option<QueueEntryRow> = entry.get_result(&mut *conn).await.optional()?;
    let entry = entry.map(QueuedStart::try_from).transpose()?;
    let (trigger, actor) = entry.map_or((Trigger::Send, None), |entry| (entry.trigger, entry.actor));
    let counts: SendCounts = rows::counts(conn, account, id).await?.unwrap_or_default();
    let now: NowRow = sql("SELECT now() AS now").get_result(&mut *conn).await?;
    let Some((finished, events)) = conclude(&campaign, &counts, trigger, actor.as_ref(), now.now) else {
        return Ok(Some(RunReport::of(&campaign, &counts)));
    };
    diesel::update(campaigns::table.find((account.0, id.0)))
        .set((
            campaigns::status.eq(finished.status.as_str()),
            campaigns::completed_at.eq(finished.completed_at),
            campaigns::updated_at.eq(finished.updated_at),
            campaigns::version.eq(campaigns::version + 1),
        ))
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, account, &events).await?;
    end_run(conn, account, id, month).await?;
    Ok(Some(RunReport::of(&finished, &counts)))
}

/// Aborts a queued start that no worker has prepared. Locks the campaign before its queue entry, as cancel and start
/// do: the other order would deadlock with them.
pub(super) async fn abort_start(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    status: CampaignStatus,
    is_skipped: bool,
    events: &[Event],
) -> DbResult<()> {
    rows::lock(conn, run).await?;
    let aborted = sql("WITH queue_entry AS (DELETE FROM campaign_queue
           WHERE account_id = $1 AND campaign_id = $2 AND NOT prepared RETURNING account_id, campaign_id)
         UPDATE campaigns c SET status = $3, paused_at = NULL, pause_reason = NULL, updated_at = now(),
           skipped_at = CASE WHEN $4 THEN now() ELSE c.skipped_at END, version = version + 1
         FROM queue_entry p
         WHERE c.account_id = p.account_id AND c.id = p.campaign_id AND c.status = 'sending' AND c.deleted_at IS NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(status.as_str())
    .bind(is_skipped)
    .execute(&mut *conn)
    .await?;
    if aborted > 0 {
        outbox::append(conn, run.account_id, events).await?;
    }
    Ok(())
}

/// Finds campaigns that ended [`FOLD_AFTER`] ago and have counter slots besides slot 0, across all accounts.
pub(super) async fn unfolded(conn: &mut AsyncPgConnection, limit: i64) -> DbResult<Vec<QueuedRun>> {
    let rows: Vec<RunRow> = sql(
        "SELECT DISTINCT n.account_id, n.campaign_id FROM campaign_counter_slots n
           JOIN campaigns c ON c.account_id = n.account_id AND c.id = n.campaign_id
         WHERE n.slot > 0 AND c.status <> 'sending' AND c.updated_at < now() - $1 * interval '1 microsecond'
         LIMIT $2",
    )
    .bind(FOLD_AFTER)
    .bind(limit)
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(QueuedRun::from).collect())
}

/// Adds the counter slots of an ended campaign to slot 0 and deletes them. A later status update makes its slot again.
pub(super) async fn fold_counters(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<usize> {
    rows::lock(conn, run).await?;
    let folded = sql(include_str!("fold_counters.sql"))
        .bind(run.account_id)
        .bind(run.campaign_id)
        .execute(conn)
        .await?;
    Ok(folded)
}

/// Removes the run from the queue and releases the reservations of its unstarted sends. A started send keeps its
/// reservation until its outcome is known. All unstarted sends count in one month, `month`. The cost does not depend on
/// the size of the campaign.
pub(super) async fn end_run(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    month: Option<Date>,
) -> DbResult<()> {
    // Delete the queue entry first: the delete waits for a worker that is starting sends, so the count below sees them.
    diesel::delete(campaign_queue::table.find((account.0, id.0)))
        .execute(&mut *conn)
        .await?;
    let Some(month) = month else {
        return Ok(());
    };
    // The marked sends stay locked, so all started sends are now counted as unknown.
    in_flight::mark_unknown(conn, account, id).await?;
    in_flight::delete_claim(conn, account, id).await?;
    let untried = in_flight::untried(conn, account, id).await?;
    if untried > 0 {
        usage::change(conn, account, month, 0, -untried).await?;
    }
    Ok(())
}
