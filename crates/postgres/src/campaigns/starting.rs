//! The beginning of a run, in one transaction: status, frozen audience, counters, quota, place in the queue, events.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Date as SqlDate};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{Campaign, Command, Refusal, RunStart, StartOutcome};
use time::{Date, Duration};
use uuid::Uuid;

use super::{audience, rows};
use crate::errors::Attempt;
use crate::outbox;
use crate::sql::{Answer, Number, sql};

/// Freezing a very large audience takes longer than any other statement may.
const FREEZE_TIMEOUT: &str = "SET LOCAL statement_timeout = '60s'";

/// Does everything; on any outcome but `Started` the caller has to roll it back.
pub(super) async fn start(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    worker: Option<Uuid>,
    lease: Duration,
) -> Attempt<StartOutcome> {
    let (account, id) = (start.campaign.account_id, start.campaign.id);
    let Some(row) = rows::locked(conn, account, id).await? else {
        return Ok(StartOutcome::Missing);
    };
    let stored = Campaign::try_from(row)?;
    if stored.status != start.expected {
        return Ok(StartOutcome::Refused(Refusal::Status {
            status: stored.status,
            command: Command::Start,
        }));
    }
    if !start.is_of(&stored) {
        return Ok(StartOutcome::Changed);
    }
    if !template_is_approved(conn, start).await? {
        return Ok(StartOutcome::Refused(Refusal::TemplateNotApproved));
    }
    conn.batch_execute(FREEZE_TIMEOUT).await?;
    let audience = start.campaign.audience();
    let recipients = audience::freeze(conn, account, id, &audience).await?;
    // Looked for after the freeze: a segment that is there now was there then, since none comes back.
    if let Some(segment) = audience::deleted_segment(conn, account, &audience).await? {
        return Ok(StartOutcome::Refused(Refusal::SegmentDeleted { segment }));
    }
    if recipients == 0 {
        return Ok(StartOutcome::Refused(Refusal::NoRecipients));
    }
    for blank in &start.blanks {
        if audience::leaves_empty(conn, account, id, blank).await? {
            let placeholder = blank.placeholder.clone();
            return Ok(StartOutcome::Refused(Refusal::EmptyPlaceholder { placeholder }));
        }
    }
    let month = send(conn, start, recipients).await?;
    enqueue(conn, start, recipients, worker, lease).await?;
    outbox::append(conn, account, &start.events).await?;
    // Last, because every start of the account waits for this row.
    match reserve(conn, start, month, recipients).await? {
        None => Ok(StartOutcome::Started { recipients }),
        Some(refusal) => Ok(StartOutcome::Refused(refusal)),
    }
}

/// Looked at again under a lock: the platform's verdict may have come since the facts were read.
async fn template_is_approved(conn: &mut AsyncPgConnection, start: &RunStart) -> Attempt<bool> {
    let approved: Option<Answer> = sql(
        "SELECT meta_status = 'approved' AND deleted_at IS NULL AS yes FROM message_templates
         WHERE account_id = $1 AND id = $2 FOR SHARE",
    )
    .bind(start.campaign.account_id)
    .bind(start.campaign.template_id)
    .get_result(conn)
    .await
    .optional()?;
    Ok(approved.is_some_and(|answer| answer.yes))
}

#[derive(QueryableByName)]
struct MonthRow {
    #[diesel(sql_type = SqlDate)]
    month: Date,
}

/// Moves the campaign, and returns the month that its messages count in.
async fn send(conn: &mut AsyncPgConnection, start: &RunStart, recipients: i64) -> Attempt<Date> {
    let campaign = &start.campaign;
    let row: MonthRow = sql(
        "UPDATE campaigns SET status = $3, simulated = $4, executed_at = $5, completed_at = $6,
           updated_at = $7, profile_id = $8, total_recipients = $9, paused_at = NULL, pause_reason = NULL,
           quota_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date
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
    .get_result(conn)
    .await?;
    Ok(row.month)
}

async fn enqueue(
    conn: &mut AsyncPgConnection,
    start: &RunStart,
    recipients: i64,
    worker: Option<Uuid>,
    lease: Duration,
) -> Attempt<()> {
    let campaign = &start.campaign;
    sql(
        "INSERT INTO campaign_counters AS n (account_id, campaign_id, total, pending) VALUES ($1, $2, $3, $3)
         ON CONFLICT (account_id, campaign_id) DO UPDATE
           SET total = n.total + excluded.total, pending = n.pending + excluded.pending",
    )
    .bind(campaign.account_id)
    .bind(campaign.id)
    .bind(recipients)
    .execute(&mut *conn)
    .await?;
    sql(
        "INSERT INTO campaign_queue (account_id, campaign_id, trigger, user_id, ip_address, worker, leased_until)
         VALUES ($1, $2, $3, $4, $5, $6,
           CASE WHEN $6 IS NOT NULL THEN now() + $7 * interval '1 microsecond' END)
         ON CONFLICT (account_id, campaign_id) DO UPDATE
           SET trigger = excluded.trigger, user_id = excluded.user_id, ip_address = excluded.ip_address,
             worker = excluded.worker, leased_until = excluded.leased_until, created_at = now()",
    )
    .bind(campaign.account_id)
    .bind(campaign.id)
    .bind(start.trigger.as_str())
    .bind(start.actor.user_id)
    .bind(start.actor.ip_address.as_deref())
    .bind(worker)
    .bind(lease)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct UsedRow {
    #[diesel(sql_type = BigInt)]
    used: i64,
}

/// Keeps places in the month for so many messages, or says why not.
async fn reserve(conn: &mut AsyncPgConnection, start: &RunStart, month: Date, wanted: i64) -> Attempt<Option<Refusal>> {
    let (account, limit) = (start.campaign.account_id, start.monthly_limit);
    sql("INSERT INTO message_usage (account_id, month) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(account)
        .bind(month)
        .execute(&mut *conn)
        .await?;
    let reserved: Option<Number> = sql("UPDATE message_usage SET reserved = reserved + $3
         WHERE account_id = $1 AND month = $2 AND sent + reserved + $3 <= $4 RETURNING reserved AS n")
    .bind(account)
    .bind(month)
    .bind(wanted)
    .bind(limit)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if reserved.is_some() {
        return Ok(None);
    }
    let row: UsedRow = sql("SELECT sent + reserved AS used FROM message_usage WHERE account_id = $1 AND month = $2")
        .bind(account)
        .bind(month)
        .get_result(conn)
        .await?;
    Ok(Some(Refusal::QuotaExceeded {
        limit,
        left: limit.saturating_sub(row.used).max(0),
        wanted,
    }))
}
