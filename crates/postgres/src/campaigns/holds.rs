//! Sends that the account's settings hold: checked when they are claimed, and again in the transaction that starts them.

use std::collections::HashSet;

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::QueuedRun;
use recado_domain::holds::{HoldCause, HoldDecision, HoldFacts, held_too_long};
use recado_domain::messaging::{Category, SendStatus};
use recado_domain::shared::{SendId, ZoneName};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::{id_of_campaign, smallest};
use super::sends::{SendChanges, lock_sends};
use crate::errors::{DbResult, parse_enum};
use crate::filters::HAS_OPTED_OUT;
use crate::holds::{Purpose, contacts_policy, hold_settings};
use crate::sql::{FENCE, FlagRow, TextRow, collect_column, key_rows, sql, uuids};
use crate::whatsapp::USER_ID_SCOPE;

/// Sends that are held until the same time are due one after another within so many microseconds. A claim begins at the
/// `retry_at` of the one before it, and would read again all sends that had the same.
const SPREAD: usize = 1000;

/// The most held sends that become due together after a change of the settings.
const RELEASE_BATCH: i64 = 5000;

/// Sends of a run by what was decided on them.
pub(super) struct CheckedSends {
    pub(super) free: Vec<SendId>,
    held: Vec<(Uuid, HoldCause, OffsetDateTime)>,
    pub(super) too_long: Vec<(SendId, HoldCause)>,
}

impl CheckedSends {
    fn all_free(sends: &[SendId]) -> Self {
        Self {
            free: sends.to_vec(),
            held: vec![],
            too_long: vec![],
        }
    }
}

#[derive(QueryableByName)]
struct DueSendRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    held_since: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    time_zone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    /// Whether its contact may and can be written to. Another send is not held: it fails when it starts.
    #[diesel(sql_type = Bool)]
    is_reachable: bool,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Decides on sends of a run. Before a start the sends and their contacts are locked.
pub(super) async fn decide(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    sends: &[SendId],
    purpose: Purpose,
) -> DbResult<CheckedSends> {
    let mut checked = CheckedSends::all_free(sends);
    if sends.is_empty() {
        return Ok(checked);
    }
    let Some(settings) = hold_settings(conn, run.account_id).await? else {
        return Ok(checked);
    };
    let Some(category) = category(conn, run).await? else {
        return Ok(checked);
    };
    if !settings.settings.may_hold(category) {
        return Ok(checked);
    }
    let rows = due_sends(conn, run, sends, purpose).await?;
    let Some(now) = rows.iter().map(|row| row.now).next() else {
        return Ok(checked);
    };
    let contacts = collect_column(&rows, |row| row.contact_id);
    let policy = contacts_policy(conn, run.account_id, settings, Some(category), contacts, now, purpose);
    let mut policy = policy.await?;
    for row in rows {
        if !row.is_reachable {
            continue;
        }
        let facts = HoldFacts {
            category: Some(category),
            person: policy.person(row.contact_id),
            time_zone: row.time_zone.map(ZoneName::stored),
            phone: row.phone,
            due_at: row.held_since.unwrap_or(now),
            expires_at: None,
        };
        match policy.policy.decide(&facts) {
            HoldDecision::Free => {}
            HoldDecision::Held { cause, until } => checked.held.push((row.id, cause, until)),
            HoldDecision::TooLong(cause) => checked.too_long.push((row.id.into(), cause)),
        }
    }
    let held = checked.held.iter().map(|(id, _, _)| *id);
    let held_or_failed: HashSet<Uuid> = held.chain(checked.too_long.iter().map(|(id, _)| id.0)).collect();
    checked.free.retain(|send| !held_or_failed.contains(&send.0));
    Ok(checked)
}

/// The category of the run's template now.
async fn category(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<Option<Category>> {
    let row: Option<TextRow> = sql("SELECT t.category AS text FROM campaigns c
         JOIN message_templates t ON t.account_id = c.account_id AND t.id = c.template_id
         WHERE c.account_id = $1 AND c.id = $2")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(|row| parse_enum(&row.text)).transpose()?)
}

async fn due_sends(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    sends: &[SendId],
    purpose: Purpose,
) -> DbResult<Vec<DueSendRow>> {
    let rows = sql(format!(
        include_str!("due_sends.sql"),
        keys = key_rows("$2", "id"),
        look_up = match purpose {
            Purpose::Start => "FOR UPDATE",
            Purpose::Precheck => FENCE,
        },
        has_opted_out = HAS_OPTED_OUT,
        scope = USER_ID_SCOPE,
        fence = FENCE,
    ))
    .bind(run.account_id)
    .bind(uuids(sends))
    .bind(smallest(sends.iter().map(|send| &send.0)))
    .bind(run.campaign_id)
    .load(conn)
    .await?;
    Ok(rows)
}

/// Holds the sends that wait by a decision.
pub(super) async fn hold(conn: &mut AsyncPgConnection, run: QueuedRun, checked: &CheckedSends) -> DbResult<()> {
    let held = &checked.held;
    if held.is_empty() {
        return Ok(());
    }
    let until = held.iter().enumerate().map(|(position, (_, _, until))| {
        let microseconds = i64::try_from(position % SPREAD).unwrap_or(0);
        *until + Duration::microseconds(microseconds)
    });
    sql(format!(
        "UPDATE campaign_sends s SET retry_at = k.until, hold_reason = k.cause, held_since = coalesce(s.held_since, now())
         FROM {keys} k WHERE s.account_id = $1 AND s.id = k.id AND s.id >= $5 AND s.status = 'pending'
           AND s.started_at IS NULL",
        keys = key_rows("$2, $3, $4", "id, cause, until"),
    ))
    .bind(run.account_id)
    .bind(collect_column(held, |(id, _, _)| *id))
    .bind(collect_column(held, |(_, cause, _)| cause.as_str().to_owned()))
    .bind(until.collect::<Vec<_>>())
    .bind(smallest(held.iter().map(|(id, _, _)| id)))
    .execute(conn)
    .await?;
    Ok(())
}

/// Fails sends that were held for too long. The caller MUST hold the run.
pub(super) async fn fail(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    too_long: &[(SendId, HoldCause)],
) -> DbResult<()> {
    if too_long.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = too_long.iter().map(|(send, _)| send.0).collect();
    let mut sends = lock_sends(conn, run.account_id, ids, vec![]).await?;
    for (id, cause) in too_long {
        // It cannot have started meanwhile, unless another worker took the run over.
        if let Some(send) = sends.by_id(*id).filter(|send| send.waits()) {
            let now = send.now();
            send.advance(SendStatus::Failed, now, None, Some(&held_too_long(*cause)));
        }
    }
    SendChanges::of(sends).write(conn, run.account_id).await?;
    Ok(())
}

/// [`fail`] in a transaction of its own: the claim that found the sends has locked the queue entry before the campaign.
pub(super) async fn fail_claimed(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    too_long: &[(SendId, HoldCause)],
) -> DbResult<()> {
    super::rows::share_lock(conn, run).await?;
    let held: Option<FlagRow> = sql("SELECT true AS yes FROM campaign_queue q
         JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
         WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3 AND c.status = 'sending'
           AND c.paused_at IS NULL")
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(worker)
    .get_result(&mut *conn)
    .await
    .optional()?;
    match held {
        Some(_) => fail(conn, run, too_long).await,
        None => Ok(()),
    }
}

/// Makes held sends due, because the settings have changed since they were checked. False: there may be more of them.
pub(super) async fn release(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    changed_at: Option<OffsetDateTime>,
) -> DbResult<bool> {
    let released = sql(concat!(
        "WITH held AS MATERIALIZED (SELECT id FROM campaign_sends
           WHERE account_id = $1 AND campaign_id = $2 AND retry_at > now() AND status = 'pending'
             AND started_at IS NULL AND hold_reason IS NOT NULL AND ",
        id_of_campaign!("id"),
        " ORDER BY retry_at LIMIT $3)
         UPDATE campaign_sends s SET retry_at = now() - h.n * interval '1 microsecond'
         FROM (SELECT id, row_number() OVER () AS n FROM held LIMIT (SELECT count(*) FROM held)) h
         WHERE s.account_id = $1 AND s.id = h.id AND s.id >= (SELECT first_id(frozen_at) FROM campaigns
           WHERE account_id = $1 AND id = $2) AND s.status = 'pending' AND s.started_at IS NULL"
    ))
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(RELEASE_BATCH)
    .execute(&mut *conn)
    .await?;
    if i64::try_from(released).is_ok_and(|released| released >= RELEASE_BATCH) {
        return Ok(false);
    }
    sql("UPDATE campaign_queue SET checked_settings_at = $3 WHERE account_id = $1 AND campaign_id = $2")
        .bind(run.account_id)
        .bind(run.campaign_id)
        .bind(changed_at)
        .execute(conn)
        .await?;
    Ok(true)
}

/// The run does not wait any more.
pub(super) async fn end_wait(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<()> {
    sql("UPDATE campaign_queue SET waiting_until = NULL, held = 0 WHERE account_id = $1 AND campaign_id = $2")
        .bind(run.account_id)
        .bind(run.campaign_id)
        .execute(conn)
        .await?;
    Ok(())
}
