//! The start of a run in one transaction: status, frozen content and audience, counters, quota, queue entry.

use diesel::OptionalExtension;
use diesel::dsl::{auto_type, not};
use diesel::prelude::{QueryDsl, QueryableByName};
use diesel::sql_types::Timestamptz;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{
    Audience, Campaign, CampaignRefusal, CampaignStatus, Command, EnqueueStart, QueuedRun, RetryOutcome, RunRetry,
    RunStart, StartOutcome, Trigger, started_event, transition,
};
use recado_domain::messaging::ErrorCodes;
use recado_domain::shared::{AccountId, Actor, CampaignId, Event, WriteOutcome};
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::rows::{self, QueueEntryRow};
use super::selection::{Addressing, Selection};
use super::usage::MonthRow;
use super::{audience, contents, facts, in_flight, remaining_costs, retries, retry_batches, usage};
use crate::errors::DbResult;
use crate::schema::campaign_queue;
use crate::sql::sql;
use crate::{outbox, templates};

#[derive(QueryableByName)]
struct FrozenRow {
    #[diesel(sql_type = Timestamptz)]
    frozen_at: OffsetDateTime,
}

/// Settings for the freeze. A very large audience needs more time than other statements may take, and more memory to
/// sort: 200,000 ids are 20 MB.
const FREEZE_SETTINGS: &str = "SET LOCAL statement_timeout = '60s'; SET LOCAL work_mem = '64MB'";

/// In whole milliseconds: the ids of the sends begin with this time.
async fn freeze_time(conn: &mut AsyncPgConnection) -> DbResult<OffsetDateTime> {
    let row: FrozenRow = sql("SELECT date_trunc('milliseconds', now()) AS frozen_at")
        .get_result(conn)
        .await?;
    Ok(row.frozen_at)
}

/// Starts a run. On any outcome but `Started` the caller MUST roll back.
pub(super) async fn start(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    worker: Option<Uuid>,
    lease: Duration,
) -> DbResult<StartOutcome> {
    let (account, id) = (start.campaign.account_id, start.campaign.id);
    let Some(row) = rows::find_locked(conn, account, id).await? else {
        return Ok(StartOutcome::Missing);
    };
    let stored = Campaign::try_from(row)?;
    if stored.status != start.expected {
        return Ok(StartOutcome::status_changed(
            start.expected,
            stored.status,
            Command::Start,
        ));
    }
    // A queued start is prepared once. If another worker has prepared it, a second freeze would add a second audience.
    let run = QueuedRun {
        account_id: account,
        campaign_id: id,
    };
    if stored.status == CampaignStatus::Sending && !is_queued(conn, run).await? {
        return Ok(StartOutcome::Refused(CampaignRefusal::Status {
            status: stored.status,
            command: Command::Start,
        }));
    }
    if !start.matches_campaign(&stored) {
        return Ok(StartOutcome::Changed);
    }
    if let Err(outcome) = check_template(conn, start).await? {
        return Ok(outcome);
    }
    contents::freeze(conn, account, id, &start.content).await?;
    conn.batch_execute(FREEZE_SETTINGS).await?;
    lock_audiences(conn, &start.campaign).await?;
    let audience = start.campaign.audience();
    let frozen_at = freeze_time(conn).await?;
    let selection = selection(conn, start, &audience).await?;
    let recipients = audience::freeze(conn, account, id, &selection, frozen_at).await?;
    // Checked after the freeze: deleted segments are never restored, so a segment that exists now existed then.
    if let Some(segment) = audience::deleted_segment(conn, account, &audience).await? {
        return Ok(StartOutcome::Refused(CampaignRefusal::SegmentDeleted { segment }));
    }
    if recipients == 0 {
        return Ok(StartOutcome::Refused(CampaignRefusal::NoRecipients));
    }
    if let Some(refusal) = check_recipients(conn, start, &selection).await? {
        return Ok(StartOutcome::Refused(refusal));
    }
    let month = mark_sending(conn, start, recipients, frozen_at).await?;
    add_to_counters(conn, account, id, recipients, frozen_at).await?;
    let entry = QueueEntry {
        trigger: start.trigger,
        actor: start.actor.as_ref(),
        prepared: true,
        worker,
        lease,
    };
    enqueue(conn, account, id, entry).await?;
    // Reserve last: every other start of the account waits for this row.
    if let Some(refusal) = reserve(conn, account, start.monthly_limit, month, recipients).await? {
        return Ok(StartOutcome::Refused(refusal));
    }
    let event = started_event(&start.campaign, start.trigger, recipients);
    outbox::append(conn, account, &[event]).await?;
    Ok(StartOutcome::Started { recipients })
}

/// Class of advisory locks with two keys: this and a hash of the account. No other lock in the database uses it.
const AUDIENCES_LOCK: i32 = 0x6175_6469;

/// Makes a start for newcomers wait for the other starts of the account, and they for it: it would not see the
/// recipients of a start that is not committed.
async fn lock_audiences(conn: &mut AsyncPgConnection, campaign: &Campaign) -> DbResult<()> {
    let lock = match campaign.newcomers_only {
        true => "SELECT pg_advisory_xact_lock($1, hashtext($2))",
        false => "SELECT pg_advisory_xact_lock_shared($1, hashtext($2))",
    };
    sql(lock)
        .bind(AUDIENCES_LOCK)
        .bind(campaign.account_id.to_string())
        .execute(conn)
        .await?;
    Ok(())
}

/// Refuses a start whose message could not leave to every recipient.
async fn check_recipients(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    selection: &Selection<'_>,
) -> DbResult<Option<CampaignRefusal>> {
    let account = start.campaign.account_id;
    let empty = audience::empty_placeholders(conn, account, selection, &start.required_placeholders).await?;
    match empty.into_iter().next() {
        Some(placeholder) => Ok(Some(CampaignRefusal::EmptyPlaceholder { placeholder })),
        None => check_budget(conn, start, selection).await,
    }
}

/// Refuses a start with a budget if a recipient has no rate in its currency. A simulated run costs nothing.
async fn check_budget(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    selection: &Selection<'_>,
) -> DbResult<Option<CampaignRefusal>> {
    let campaign = &start.campaign;
    let Some(budget) = campaign.payable_budget() else {
        return Ok(None);
    };
    let now = campaign.updated_at;
    let costs = audience::cost_facts(conn, campaign.account_id, selection, true, now).await?;
    Ok(budget.check_rates(&costs, start.content.template.category, now).err())
}

async fn selection<'a>(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    audience: &'a Audience,
) -> DbResult<Selection<'a>> {
    let category = start.content.template.category;
    let addressing = Addressing::of(conn, &start.campaign, Some(category), start.profile_id).await?;
    Selection::of(conn, &start.campaign, audience, addressing).await
}

/// Sets the campaign to its new status and adds a queue entry that a worker prepares.
pub(super) async fn enqueue_start(
    conn: &mut AsyncPgConnection,
    start_request: &EnqueueStart,
) -> DbResult<WriteOutcome<CampaignStatus>> {
    let campaign = &start_request.campaign;
    let (account, id) = (campaign.account_id, campaign.id);
    let updated = sql(
        "UPDATE campaigns SET status = $4, skipped_at = NULL, updated_at = $5, version = version + 1
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL AND status = $3 AND version = $6",
    )
    .bind(account)
    .bind(id)
    .bind(start_request.expected.as_str())
    .bind(campaign.status.as_str())
    .bind(campaign.updated_at)
    .bind(campaign.version)
    .execute(&mut *conn)
    .await?;
    if updated == 0 {
        return rows::stale(conn, account, id).await;
    }
    let entry = QueueEntry {
        trigger: start_request.run.trigger,
        actor: start_request.run.actor.as_ref(),
        prepared: false,
        worker: None,
        lease: Duration::ZERO,
    };
    enqueue(conn, account, id, entry).await?;
    outbox::append(conn, account, &start_request.events).await?;
    Ok(WriteOutcome::Done)
}

/// Reads the queue entry of a start that no worker has prepared yet.
#[auto_type]
pub(super) fn queued_start(run: QueuedRun) -> _ {
    let entry: rows::queue_entry = rows::queue_entry(run);
    entry.filter(not(campaign_queue::prepared))
}

async fn is_queued(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<bool> {
    let entry: Option<QueueEntryRow> = queued_start(run).get_result(conn).await.optional()?;
    Ok(entry.is_some())
}

/// Starts a retry of failed sends. On any outcome but `Started` the caller MUST roll back.
pub(super) async fn retry(
    conn: &mut AsyncPgConnection,
    retry: &RunRetry,
    codes: &ErrorCodes,
) -> DbResult<RetryOutcome> {
    let campaign = &retry.campaign;
    let (account, id) = (campaign.account_id, campaign.id);
    let Some(row) = rows::find_locked(conn, account, id).await? else {
        return Ok(RetryOutcome::Missing);
    };
    let stored = Campaign::try_from(row)?;
    if let Err(refusal) = transition(stored.status, Command::Retry) {
        return Ok(RetryOutcome::Refused(refusal));
    }
    // Another retry may have run and ended since: the decision was not based on its failures.
    if (stored.status, stored.version) != (retry.expected, retry.expected_version) {
        return Ok(RetryOutcome::Refused(CampaignRefusal::Contended));
    }
    if !contents::freeze_for_retry(conn, &stored).await? {
        return Ok(RetryOutcome::Refused(CampaignRefusal::TemplateNotApproved));
    }
    conn.batch_execute(FREEZE_SETTINGS).await?;
    let month: MonthRow = sql(
        "UPDATE campaigns SET status = $3, completed_at = $4, updated_at = $5, profile_id = $6, retry_scheduled_at = NULL,
           version = version + 1, run_quota_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date
         WHERE account_id = $1 AND id = $2
         RETURNING run_quota_month AS month",
    )
    .bind(account)
    .bind(id)
    .bind(campaign.status.as_str())
    .bind(campaign.completed_at)
    .bind(campaign.updated_at)
    .bind(retry.profile_id)
    .get_result(&mut *conn)
    .await?;
    retries::unschedule(conn, account, id).await?;
    // An early end may have left sends untried.
    let untried = in_flight::untried(conn, account, id).await?.max(0);
    let report = retries::choose_failed_sends(conn, account, id, &retry.request, codes).await?;
    let recipients = untried + report.tried;
    if recipients == 0 {
        let left_out = report.left_out;
        return Ok(RetryOutcome::Refused(CampaignRefusal::NothingToRetry { left_out }));
    }
    // The first step of each is done at once: most retries need no other.
    if untried > 0 {
        retry_batches::queue_search(conn, account, id).await?;
        retry_batches::search_untried(conn, account, id).await?;
    }
    retry_batches::reset_next_batch(conn, account, id).await?;
    if let Some(refusal) = remaining_costs::check_rates(conn, &stored).await? {
        return Ok(RetryOutcome::Refused(refusal));
    }
    retries::count_chosen_sends(conn, account, id, report.tried).await?;
    let entry = QueueEntry {
        trigger: retry.run.trigger,
        actor: retry.run.actor.as_ref(),
        prepared: true,
        worker: None,
        lease: Duration::ZERO,
    };
    enqueue(conn, account, id, entry).await?;
    outbox::append(conn, account, &[Event::Audit(retry.audit(&report))]).await?;
    if let Some(refusal) = reserve(conn, account, retry.monthly_limit, month.month, recipients).await? {
        return Ok(RetryOutcome::Refused(refusal));
    }
    outbox::append(conn, account, &[started_event(campaign, retry.run.trigger, recipients)]).await?;
    Ok(RetryOutcome::Started { recipients, report })
}

/// Checks the template again under a lock: a review by WhatsApp or an edit may have changed it since the facts were
/// read.
async fn check_template(conn: &mut AsyncPgConnection, start: &RunStart) -> DbResult<Result<(), StartOutcome>> {
    let template = match start.campaign.template_id {
        Some(id) => templates::find_locked(conn, start.campaign.account_id, id, false).await?,
        None => None,
    };
    Ok(start.check_template(template.as_ref()))
}

/// Updates the campaign for the run and returns the quota month of its messages.
async fn mark_sending(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    recipients: i64,
    frozen_at: OffsetDateTime,
) -> DbResult<Date> {
    let campaign = &start.campaign;
    let row: MonthRow = sql(
        "UPDATE campaigns SET status = $3, simulated = $4, executed_at = $5, completed_at = $6,
           updated_at = $7, version = version + 1, profile_id = $8, total_recipients = $9, paused_at = NULL, pause_reason = NULL,
           frozen_at = $10, skipped_at = NULL,
           quota_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date,
           run_quota_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date
         WHERE account_id = $1 AND id = $2
         RETURNING quota_month AS month",
    )
    .bind(campaign.account_id)
    .bind(campaign.id)
    .bind(campaign.status.as_str())
    .bind(campaign.simulated)
    .bind(campaign.executed_at)
    .bind(campaign.completed_at)
    .bind(campaign.updated_at)
    .bind(start.profile_id)
    .bind(recipients)
    .bind(frozen_at)
    .get_result(conn)
    .await?;
    Ok(row.month)
}

async fn add_to_counters(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    recipients: i64,
    frozen_at: OffsetDateTime,
) -> DbResult<()> {
    sql(
        "INSERT INTO campaign_counter_slots AS n (account_id, campaign_id, total, pending, created_at)
         VALUES ($1, $2, $3, $3, $4)
         ON CONFLICT (account_id, campaign_id, slot) DO UPDATE
           SET total = n.total + excluded.total, pending = n.pending + excluded.pending",
    )
    .bind(account)
    .bind(id)
    .bind(recipients)
    .bind(frozen_at)
    .execute(conn)
    .await?;
    Ok(())
}

struct QueueEntry<'a> {
    trigger: Trigger,
    actor: Option<&'a Actor>,
    prepared: bool,
    worker: Option<Uuid>,
    lease: Duration,
}

async fn enqueue(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    entry: QueueEntry<'_>,
) -> DbResult<()> {
    sql("INSERT INTO campaign_queue
           (account_id, campaign_id, trigger, user_id, ip_address, prepared, worker, leased_until, support_admin)
         VALUES ($1, $2, $3, $4, $5, $6, $7,
           CASE WHEN $7 IS NOT NULL THEN now() + $8 * interval '1 microsecond' END, $9)
         ON CONFLICT (account_id, campaign_id) DO UPDATE
           SET trigger = excluded.trigger, user_id = excluded.user_id, ip_address = excluded.ip_address,
             prepared = excluded.prepared, worker = excluded.worker, leased_until = excluded.leased_until,
             support_admin = excluded.support_admin, created_at = now(), retry_at = NULL, retries = 0,
             waiting_until = NULL, held = 0, checked_settings_at = NULL")
    .bind(account)
    .bind(id)
    .bind(entry.trigger.as_str())
    .bind(entry.actor.map(|actor| actor.user_id))
    .bind(entry.actor.and_then(|actor| actor.ip_address.as_deref()))
    .bind(entry.prepared)
    .bind(entry.worker)
    .bind(entry.lease)
    .bind(entry.actor.and_then(|actor| actor.support_admin.as_deref()))
    .execute(conn)
    .await?;
    Ok(())
}

/// Reserves `count` messages of the month's quota, or returns the refusal. Reads the plan again under the lock that
/// every start of the account takes: the plan may have ended or become smaller since the decision.
async fn reserve(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    limit: i64,
    month: Date,
    count: i64,
) -> DbResult<Option<CampaignRefusal>> {
    usage::reserve(conn, account, month, count).await?;
    let Some(limit) = facts::current_limit(conn, account, limit).await? else {
        return Ok(Some(CampaignRefusal::NoActivePlan));
    };
    let remaining = limit.saturating_sub(usage::used(conn, account, month).await?);
    Ok((remaining < 0).then(|| CampaignRefusal::QuotaExceeded {
        limit,
        left: remaining.saturating_add(count).max(0),
        wanted: count,
    }))
}
