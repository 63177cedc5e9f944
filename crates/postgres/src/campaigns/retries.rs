//! Retries of a campaign's failed sends: which sends a retry includes, which it leaves out and why, and scheduled
//! retries.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{
    CampaignStatus, DueRetry, LeftOut, NO_CODE, QueuedRun, RetryReport, RetryRequest, RetryRule, RetrySchedule,
    Scheduler, retry_rules,
};
use recado_domain::messaging::ErrorCodes;
use recado_domain::shared::{AccountId, CampaignId, WriteOutcome};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::claims::WHOLE_RUN_TIMEOUT;
use super::retry_batches::RETRY_BATCH_SIZE;
use super::rows;
use super::send_ids::id_of_campaign;
use crate::errors::{DbResult, parse_enum};
use crate::filters::HAS_OPTED_OUT;
use crate::outbox;
use crate::sql::{FENCE, Sql, sql};

/// CTEs that classify every failed send of campaign `$2`: `reason` says why a retry at `$3` leaves the send out and is
/// null if the retry includes it. [`bind_classification`] binds the parameters. Reads the failed sends by their index,
/// and each contact by its key, as in a list of sends.
///
/// A send that fails with the class `OptedOut` opts its contact out, and sets `consent_at` to `failed_at`. If the
/// contact is no longer opted out, it has opted in since: through WhatsApp, or because the account reversed the
/// opt-out.
fn classification_ctes() -> String {
    format!(
        include_str!("classify_failed_sends.sql"),
        ids = id_of_campaign!("campaign_sends.id"),
        has_opted_out = HAS_OPTED_OUT,
        fence = FENCE,
    )
}

/// Binds the parameters of [`classification_ctes`]. Without `at` the retry is now.
fn bind_classification<'a>(
    text: String,
    account: AccountId,
    id: CampaignId,
    at: Option<OffsetDateTime>,
    request: &RetryRequest,
    codes: &ErrorCodes,
) -> Sql<'a> {
    let rules = retry_rules(codes);
    let waits_at = |position: usize| -> Vec<Option<i64>> {
        let waits = rules.iter().map(|(_, rule)| match rule {
            RetryRule::Wait(waits) => waits.get(position).map(microseconds),
            RetryRule::Never | RetryRule::OptIn | RetryRule::Phone => None,
        });
        waits.collect()
    };
    let kind = |rule: &RetryRule| match rule {
        RetryRule::Never => "never",
        RetryRule::OptIn => "opt_in",
        RetryRule::Phone => "phone",
        RetryRule::Wait(_) => "wait",
    };
    sql(text)
        .bind(account)
        .bind(id)
        .bind(at)
        .bind(request.codes.clone())
        .bind(request.force)
        .bind(NO_CODE)
        .bind(rules.iter().map(|(code, _)| *code).collect::<Vec<_>>())
        .bind(rules.iter().map(|(_, rule)| kind(rule).to_owned()).collect::<Vec<_>>())
        .bind(waits_at(0))
        .bind(waits_at(1))
        .bind(waits_at(2))
}

fn microseconds(wait: &Duration) -> i64 {
    i64::try_from(wait.whole_microseconds()).unwrap_or(i64::MAX)
}

const TOTALS: &str = "SELECT reason, code, count(*) AS n, min(due_at) AS earliest FROM checked
     GROUP BY reason, code ORDER BY reason, code";

#[derive(QueryableByName)]
struct TotalRow {
    #[diesel(sql_type = Nullable<Text>)]
    reason: Option<String>,
    #[diesel(sql_type = BigInt)]
    code: i64,
    #[diesel(sql_type = BigInt)]
    n: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    earliest: Option<OffsetDateTime>,
}

fn report(rows: Vec<TotalRow>) -> DbResult<RetryReport> {
    let mut report = RetryReport::default();
    for row in rows {
        match row.reason {
            None => report.tried += row.n,
            Some(reason) => report.left_out.push(LeftOut {
                earliest: row.earliest.filter(|_| reason == "later"),
                reason: parse_enum(&reason)?,
                code: row.code,
                count: row.n,
            }),
        }
    }
    Ok(report)
}

/// Reports which sends a retry at `at` (without it: now) would include and leave out. Changes nothing. Reads the failed
/// sends: the report counts each of them by its reason.
pub(super) async fn forecast(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    at: Option<OffsetDateTime>,
    request: &RetryRequest,
    codes: &ErrorCodes,
) -> DbResult<RetryReport> {
    conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
    let text = format!("WITH {} {TOTALS}", classification_ctes());
    report(
        bind_classification(text, account, id, at, request, codes)
            .load(conn)
            .await?,
    )
}

/// Chooses the failed sends that a retry includes, and stores them in retry batches. No send changes here:
/// [`super::retry_batches`] resets them. A failed send keeps its status until then, so the choice holds
/// without a lock.
pub(super) async fn choose_failed_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    request: &RetryRequest,
    codes: &ErrorCodes,
) -> DbResult<RetryReport> {
    let text = format!(
        "WITH {classified}, chosen AS MATERIALIZED (
           SELECT coalesce(array_agg(id ORDER BY contact_id), '{{}}') AS ids FROM checked WHERE reason IS NULL
         ), batches AS (
           INSERT INTO campaign_retry_batches (account_id, campaign_id, batch_no, send_ids)
           SELECT $1, $2, batch_no, ids[(batch_no - 1) * $12 + 1 : batch_no * $12]
           FROM chosen CROSS JOIN generate_series(1, (cardinality(ids) + $12 - 1) / $12) AS batch_no
           ON CONFLICT (account_id, campaign_id, batch_no) DO UPDATE SET send_ids = excluded.send_ids
         ) {TOTALS}",
        classified = classification_ctes(),
    );
    let rows = bind_classification(text, account, id, None, request, codes)
        .bind(RETRY_BATCH_SIZE)
        .load(&mut *conn)
        .await?;
    report(rows)
}

/// Moves the chosen sends in the counters, after their locks.
pub(super) async fn count_chosen_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    chosen: i64,
) -> DbResult<()> {
    sql(
        "UPDATE campaign_counter_slots SET pending = pending + $3, failed = failed - $3
         WHERE account_id = $1 AND campaign_id = $2 AND slot = 0",
    )
    .bind(account)
    .bind(id)
    .bind(chosen)
    .execute(conn)
    .await?;
    Ok(())
}

/// Schedules a retry. It replaces an earlier scheduled retry of the campaign.
pub(super) async fn schedule(
    conn: &mut AsyncPgConnection,
    schedule: &RetrySchedule,
    codes: &ErrorCodes,
) -> DbResult<(WriteOutcome<CampaignStatus>, RetryReport)> {
    let (campaign, request, scheduler) = (&schedule.campaign, &schedule.request, &schedule.scheduler);
    let (account, id) = (campaign.account_id, campaign.id);
    let updated = sql(
        "UPDATE campaigns SET retry_scheduled_at = $5, updated_at = $6, version = version + 1
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL AND status = $3 AND version = $4",
    )
    .bind(account)
    .bind(id)
    .bind(campaign.status.as_str())
    .bind(schedule.expected_version)
    .bind(campaign.retry_scheduled_at)
    .bind(campaign.updated_at)
    .execute(&mut *conn)
    .await?;
    if updated == 0 {
        return Ok((rows::stale(conn, account, id).await?, RetryReport::default()));
    }
    sql(
        "INSERT INTO campaign_retries (account_id, campaign_id, due_at, codes, force, user_id, support_admin)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (account_id, campaign_id) DO UPDATE
           SET due_at = excluded.due_at, codes = excluded.codes, force = excluded.force, user_id = excluded.user_id,
             support_admin = excluded.support_admin, created_at = now()",
    )
    .bind(account)
    .bind(id)
    .bind(campaign.retry_scheduled_at)
    .bind(request.codes.clone())
    .bind(request.force)
    .bind(scheduler.user_id)
    .bind(scheduler.support_admin.as_deref())
    .execute(&mut *conn)
    .await?;
    outbox::append(conn, account, &schedule.events).await?;
    let report = forecast(conn, account, id, campaign.retry_scheduled_at, request, codes).await?;
    Ok((WriteOutcome::Done, report))
}

/// Deletes the scheduled retry of a campaign.
pub(super) async fn unschedule(conn: &mut AsyncPgConnection, account: AccountId, id: CampaignId) -> DbResult<()> {
    sql("DELETE FROM campaign_retries WHERE account_id = $1 AND campaign_id = $2")
        .bind(account)
        .bind(id)
        .execute(conn)
        .await?;
    Ok(())
}

#[derive(QueryableByName)]
pub(super) struct DueRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    due_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Array<BigInt>>)]
    codes: Option<Vec<i64>>,
    #[diesel(sql_type = Bool)]
    force: bool,
    #[diesel(sql_type = SqlUuid)]
    user_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    support_admin: Option<String>,
}

/// Reads the scheduled retries that are due, across all accounts.
pub(super) fn due<'a>(limit: i64) -> Sql<'a> {
    sql(
        "SELECT r.account_id, r.campaign_id, r.due_at, r.codes, r.force, r.user_id, r.support_admin
         FROM campaign_retries r JOIN accounts a ON a.id = r.account_id
         WHERE r.due_at <= now() AND a.status = 'active'
         ORDER BY r.due_at LIMIT $1",
    )
    .bind(limit)
}

impl From<DueRow> for DueRetry {
    fn from(row: DueRow) -> Self {
        Self {
            run: QueuedRun {
                account_id: row.account_id.into(),
                campaign_id: row.campaign_id.into(),
            },
            request: RetryRequest {
                codes: row.codes,
                not_before: Some(row.due_at),
                force: row.force,
            },
            scheduler: Scheduler {
                user_id: row.user_id.into(),
                support_admin: row.support_admin,
            },
        }
    }
}
