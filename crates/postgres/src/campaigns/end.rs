//! How a run stops: paused, finished, cancelled, or aborted before it was prepared.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Date as SqlDate, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{
    Campaign, CampaignStatus, QueuedRun, RunReport, SendCounts, Trigger, finish as conclude, pause_notification,
};
use recado_domain::shared::{AccountId, CampaignId, Event, TemplateId};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::id_of_campaign;
use super::{claims, rows, usage};
use crate::errors::DbResult;
use crate::outbox;
use crate::sql::{FlagRow, IdRow, sql};

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
struct PausedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
}

/// Pauses every run that sends the template.
pub(crate) async fn pause_template(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    template: TemplateId,
    reason: &str,
) -> DbResult<()> {
    // Simulated runs make no call to WhatsApp, so they continue.
    let paused: Vec<PausedRow> = sql(
        "UPDATE campaigns SET paused_at = now(), pause_reason = $3, updated_at = now(), version = version + 1
         WHERE account_id = $1 AND template_id = $2 AND deleted_at IS NULL AND status = 'sending'
           AND paused_at IS NULL AND NOT simulated
         RETURNING id, name",
    )
    .bind(account)
    .bind(template)
    .bind(reason)
    .load(&mut *conn)
    .await?;
    let to_event = |row: &PausedRow| Event::Notification(pause_notification(row.id.into(), &row.name, reason));
    let events: Vec<Event> = paused.iter().map(to_event).collect();
    outbox::append(conn, account, &events).await
}

/// Returns the scheduled and sending campaigns of a template.
pub(crate) async fn active_campaigns_of_template(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    template: TemplateId,
) -> DbResult<Vec<Uuid>> {
    let rows: Vec<IdRow> = sql("SELECT id FROM campaigns
         WHERE account_id = $1 AND template_id = $2 AND deleted_at IS NULL AND status IN ('scheduled', 'sending')
         ORDER BY id")
    .bind(account)
    .bind(template)
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
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
    let month = row.quota_month;
    let campaign = Campaign::try_from(row)?;
    let entry = rows::queue_entry(conn, rows::queue_entry_query(run, "FOR UPDATE")).await?;
    let (trigger, actor) = entry.map_or((Trigger::Send, None), |entry| (entry.trigger, entry.actor));
    let counts: SendCounts = rows::counts(conn, account, id).await?.unwrap_or_default();
    let now: NowRow = sql("SELECT now() AS now").get_result(&mut *conn).await?;
    let Some((finished, events)) = conclude(&campaign, &counts, trigger, actor.as_ref(), now.now) else {
        return Ok(Some(RunReport::of(&campaign, &counts)));
    };
    sql(
        "UPDATE campaigns SET status = $3, completed_at = $4, updated_at = $5, version = version + 1
         WHERE account_id = $1 AND id = $2",
    )
    .bind(account)
    .bind(id)
    .bind(finished.status.as_str())
    .bind(finished.completed_at)
    .bind(finished.updated_at)
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
    events: &[Event],
) -> DbResult<()> {
    rows::lock(conn, run).await?;
    let aborted = sql("WITH queue_entry AS (DELETE FROM campaign_queue
           WHERE account_id = $1 AND campaign_id = $2 AND NOT prepared RETURNING account_id, campaign_id)
         UPDATE campaigns c SET status = $3, paused_at = NULL, pause_reason = NULL, updated_at = now(),
           version = version + 1
         FROM queue_entry p
         WHERE c.account_id = p.account_id AND c.id = p.campaign_id AND c.status = 'sending' AND c.deleted_at IS NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(status.as_str())
    .execute(&mut *conn)
    .await?;
    if aborted > 0 {
        outbox::append(conn, run.account_id, events).await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
struct UnsentRow {
    #[diesel(sql_type = SqlDate)]
    month: Date,
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Removes the run from the queue and releases the reservations of its unstarted sends. A started send keeps its
/// reservation until its outcome is known.
pub(super) async fn end_run(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    month: Option<Date>,
) -> DbResult<()> {
    // Delete the queue entry first: the delete waits for a worker that is starting sends, so the count below sees them.
    sql("DELETE FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2")
        .bind(account)
        .bind(id)
        .execute(&mut *conn)
        .await?;
    let Some(month) = month else {
        return Ok(());
    };
    let has_pending: FlagRow = sql("SELECT EXISTS (SELECT 1 FROM campaign_counters
         WHERE account_id = $1 AND campaign_id = $2 AND pending > 0) AS yes")
    .bind(account)
    .bind(id)
    .get_result(&mut *conn)
    .await?;
    if !has_pending.yes {
        return Ok(());
    }
    claims::mark_unknown(conn, account, id).await?;
    let unsent: Vec<UnsentRow> = sql(concat!(
        "SELECT month, sum(n)::bigint AS n FROM (
           SELECT coalesce(quota_month, $3) AS month, count(*) AS n FROM campaign_sends
           WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NULL AND ",
        id_of_campaign!("campaign_sends"),
        " GROUP BY 1
           UNION ALL
           SELECT $3, sum(cardinality(contact_ids)) FROM campaign_recipient_batches
           WHERE account_id = $1 AND campaign_id = $2
         ) AS unsent
         GROUP BY month HAVING sum(n) > 0 ORDER BY month"
    ))
    .bind(account)
    .bind(id)
    .bind(month)
    .load(&mut *conn)
    .await?;
    for unsent in unsent {
        usage::change(conn, account, unsent.month, 0, -unsent.n).await?;
    }
    Ok(())
}
