//! Retries of a campaign's failed sends: which sends a retry includes, which it leaves out and why, and scheduled
//! retries.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{
    CampaignStatus, DueRetry, LeftOut, NO_CODE, QueuedRun, RETRY_RULES, RetryReport, RetryRequest, RetryRule,
    RetrySchedule, Scheduler,
};
use recado_domain::shared::{AccountId, CampaignId, WriteOutcome};
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::claims::WHOLE_RUN_TIMEOUT;
use super::send_ids::id_of_campaign;
use super::store;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::sql::{Sql, sql};

/// CTEs that classify every failed send of campaign `$2`: `reason` says why a retry at `$3` leaves the send out and is
/// null if the retry includes it. [`bind_classification`] binds the parameters. `lock` is the locking clause for the
/// sends. Each contact is looked up by its key, as in a list of sends.
///
/// A send that fails with 131050 opts its contact out, and sets `consent_at` to `failed_at`. If the contact is no
/// longer opted out, it has opted in since: through WhatsApp, or because the account reversed the opt-out.
fn classification_ctes(lock: &str) -> String {
    format!(
        "rules AS MATERIALIZED (
           SELECT * FROM unnest($7, $8, $9, $10, $11) AS r (code, kind, first, second, further)
         ), failed AS MATERIALIZED (
           SELECT id, contact_id, coalesce(error_code, $6) AS code, failed_at,
             CASE WHEN error_code IS NOT DISTINCT FROM earlier_error_code THEN earlier_failures ELSE 0 END AS earlier
           FROM campaign_sends
           WHERE account_id = $1 AND campaign_id = $2 AND failed_at IS NOT NULL AND status = 'failed'
             AND {ids}
           ORDER BY id {lock}
         ), timed AS MATERIALIZED (
           SELECT f.id, f.contact_id, f.code, f.failed_at, f.earlier, r.kind,
             f.failed_at + nullif(CASE f.earlier WHEN 0 THEN r.first WHEN 1 THEN r.second ELSE r.further END, 0)
               * interval '1 microsecond' AS due_at
           FROM failed f LEFT JOIN rules r ON r.code = f.code
         ), judged AS MATERIALIZED (
           SELECT t.id, t.code, t.earlier, t.due_at, CASE
               WHEN $4 IS NOT NULL AND NOT t.code = ANY ($4) THEN 'not_chosen'
               WHEN t.kind = 'never' THEN 'never'
               WHEN t.kind = 'opt_in' AND (c.opted_out_at IS NULL AND c.consent_at >= t.failed_at) IS NOT TRUE THEN 'never'
               WHEN t.kind = 'phone' AND c.phone IS NULL THEN 'never'
               WHEN c.id IS NULL THEN 'unreachable'
               WHEN c.opted_out_at IS NOT NULL THEN 'opted_out'
               WHEN c.phone IS NULL THEN 'unreachable'
               WHEN t.due_at > coalesce($3, now()) AND NOT ($4 IS NOT NULL AND $5) THEN 'later'
             END AS reason
           FROM timed t LEFT JOIN LATERAL (
             SELECT id, phone, opted_out_at, consent_at, deleted_at FROM contacts
             WHERE account_id = $1 AND id = t.contact_id OFFSET 0) c ON c.deleted_at IS NULL
         )",
        ids = id_of_campaign!("campaign_sends"),
    )
}

/// Binds the parameters of [`classification_ctes`]. Without `at` the retry is now.
fn bind_classification<'a>(
    text: String,
    account: AccountId,
    id: CampaignId,
    at: Option<OffsetDateTime>,
    request: &RetryRequest,
) -> Sql<'a> {
    let waits_at = |position: usize| -> Vec<Option<i64>> {
        let waits = RETRY_RULES.iter().map(|(_, rule)| match rule {
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
        .bind(RETRY_RULES.iter().map(|(code, _)| *code).collect::<Vec<_>>())
        .bind(
            RETRY_RULES
                .iter()
                .map(|(_, rule)| kind(rule).to_owned())
                .collect::<Vec<_>>(),
        )
        .bind(waits_at(0))
        .bind(waits_at(1))
        .bind(waits_at(2))
}

fn microseconds(wait: &Duration) -> i64 {
    i64::try_from(wait.whole_microseconds()).unwrap_or(i64::MAX)
}

const TOTALS: &str = "SELECT reason, code, count(*) AS n, min(due_at) AS earliest FROM judged
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

/// Reports which sends a retry at `at` (without it: now) would include and leave out. Changes nothing.
pub(super) async fn forecast(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    at: Option<OffsetDateTime>,
    request: &RetryRequest,
) -> DbResult<RetryReport> {
    conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
    let text = format!("WITH {} {TOTALS}", classification_ctes(""));
    report(bind_classification(text, account, id, at, request).load(conn).await?)
}

/// Resets the failed sends that a retry includes to untried, and moves them in the counters. Each send keeps its number
/// of failures and the id of its earlier message.
pub(super) async fn reset_failed_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    month: Date,
    request: &RetryRequest,
) -> DbResult<RetryReport> {
    let text = format!(
        "WITH {classification}, renewed AS (
           UPDATE campaign_sends s SET status = 'pending', attempts = 0, started_at = NULL,
             retry_at = now(), sent_at = NULL, failed_at = NULL, error_code = NULL, error_message = NULL, pricing = NULL,
             superseded_wa_message_id = coalesce(wa_message_id, superseded_wa_message_id), wa_message_id = NULL,
             never_confirmed = false, quota_month = $12,
             earlier_error_code = s.error_code, earlier_failures = j.earlier + 1
           FROM judged j WHERE j.reason IS NULL AND s.account_id = $1 AND s.id = j.id
         ) {TOTALS}",
        classification = classification_ctes("FOR UPDATE"),
    );
    let rows = bind_classification(text, account, id, None, request)
        .bind(month)
        .load(&mut *conn)
        .await?;
    let report = report(rows)?;
    sql(
        "UPDATE campaign_counter_slots SET pending = pending + $3, failed = failed - $3
         WHERE account_id = $1 AND campaign_id = $2 AND slot = 0",
    )
    .bind(account)
    .bind(id)
    .bind(report.tried)
    .execute(conn)
    .await?;
    Ok(report)
}

/// Makes the sends that an early end left untried due again, and returns how many. The run sends them too, so they need
/// reservations of the month's quota. Reads no send of a campaign without pending sends.
pub(super) async fn reset_untried_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    month: Date,
) -> DbResult<i64> {
    let renewed = sql(concat!(
        "WITH untried AS (
           SELECT id FROM campaign_sends
           WHERE account_id = $1 AND campaign_id = $2 AND status = 'pending' AND started_at IS NULL
             AND coalesce((SELECT pending > 0 FROM campaign_counters WHERE account_id = $1 AND campaign_id = $2), true)
             AND ",
        id_of_campaign!("campaign_sends"),
        " ORDER BY id FOR UPDATE
         )
         UPDATE campaign_sends s SET attempts = 0, retry_at = now(), quota_month = $3
         FROM untried u WHERE s.account_id = $1 AND s.id = u.id"
    ))
    .bind(account)
    .bind(id)
    .bind(month)
    .execute(conn)
    .await?;
    Ok(i64::try_from(renewed).unwrap_or(i64::MAX))
}

/// Schedules a retry. It replaces an earlier scheduled retry of the campaign.
pub(super) async fn schedule(
    conn: &mut AsyncPgConnection,
    schedule: &RetrySchedule,
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
        return Ok((store::stale(conn, account, id).await?, RetryReport::default()));
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
    let report = forecast(conn, account, id, campaign.retry_scheduled_at, request).await?;
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
