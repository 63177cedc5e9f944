//! Decides on due messages: which leave, which the account's settings hold, and which fail.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::direct_messages::{
    Departure, DepartureFacts, LeavingMessage, NumberQueue, RequestedContent, RequestedTemplate, departure,
};
use recado_domain::holds::HoldCause;
use recado_domain::shared::{AccountId, MessageId, StoreError, ZoneName};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::creation::{DueTime, make_due};
use super::facts::{ContactKey, contacts, requested_templates};
use super::stored_profile;
use crate::billing;
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::holds::{ContactsPolicy, HoldSettings, Purpose, contacts_policy, hold_settings};
use crate::sql::{collect_column, key_rows, sql};

/// The most batches of due messages that are held before the next batch is counted.
const MAX_HELD_BATCHES: usize = 40;

#[derive(QueryableByName)]
pub(super) struct DueRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Jsonb)]
    content: Value,
    #[diesel(sql_type = Timestamptz)]
    expires_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    send_at: OffsetDateTime,
    /// The setting that held the message until it expired.
    #[diesel(sql_type = Nullable<Text>)]
    hold_rule: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    time_zone: Option<String>,
    #[diesel(sql_type = Integer)]
    attempts: i32,
}

#[derive(QueryableByName)]
struct ProfileRow {
    #[diesel(sql_type = SqlUuid)]
    profile_id: Uuid,
}

pub(super) async fn due_messages(
    conn: &mut AsyncPgConnection,
    queue: NumberQueue,
    limit: i64,
) -> DbResult<Vec<DueRow>> {
    let rows = sql(
        "SELECT id, contact_id, request -> 'content' AS content, expires_at, send_at, attempts,
           CASE WHEN due_at >= expires_at THEN hold_rule END AS hold_rule,
           (SELECT time_zone FROM contacts c WHERE c.account_id = m.account_id AND c.id = m.contact_id) AS time_zone
         FROM direct_messages m WHERE account_id = $1 AND profile_id = $2 AND due_at <= now()
         ORDER BY due_at, id LIMIT $3 FOR NO KEY UPDATE OF m",
    )
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .bind(limit)
    .load(conn)
    .await?;
    Ok(rows)
}

/// Decides on due messages. `settings`: those that hold messages, if there are any.
pub(super) async fn departures(
    conn: &mut AsyncPgConnection,
    queue: NumberQueue,
    rows: Vec<DueRow>,
    is_number_removed: bool,
    settings: Option<HoldSettings>,
    purpose: Purpose,
) -> DbResult<Departures> {
    let account = queue.account_id;
    let keys = rows.iter().map(|row| row.contact_id.to_string()).collect();
    let contacts = contacts(conn, account, ContactKey::Id, keys).await?;
    let contents: Vec<RequestedContent> = rows
        .iter()
        .map(|row| serde_json::from_value(row.content.clone()).map_err(corrupt))
        .collect::<Result<_, StoreError>>()?;
    let templates = requested_templates(conn, account, contents.iter()).await?;
    let (billing, now) = billing::entitlement(conn, account).await?;
    let has_plan = billing.messages_per_month(now).is_some();
    let mut departures = Departures {
        settings_at: settings.as_ref().map(|settings| settings.changed_at),
        ..Departures::default()
    };
    let recipients = collect_column(&rows, |row| row.contact_id);
    let mut policy = match settings {
        Some(settings) => contacts_policy(conn, account, settings, None, recipients, now, purpose).await?,
        None => ContactsPolicy::off(now),
    };
    for (row, content) in rows.into_iter().zip(contents) {
        let key: Option<&RequestedTemplate> = content.template_key();
        let facts = DepartureFacts {
            id: row.id.into(),
            contact: contacts.get(&row.contact_id.to_string()).cloned(),
            template: key.and_then(|key| templates.get(key)).cloned(),
            content,
            has_plan,
            number: queue.profile_id,
            is_number_removed,
            expires_at: row.expires_at,
            send_at: row.send_at,
            held_by: row.hold_rule.as_deref().map(parse_enum).transpose()?,
            time_zone: row.time_zone.map(ZoneName::stored),
            person: policy.person(row.contact_id),
            attempts: row.attempts.unsigned_abs(),
            now,
        };
        match departure(facts, &mut policy.policy) {
            Departure::Leave(message) => departures.leaving.push(*message),
            Departure::Hold { cause, until } => departures.held.push((row.id, cause, until)),
            Departure::Fail(message) => departures.failed.push((row.id.into(), message)),
        }
    }
    Ok(departures)
}

/// Due messages by their departure.
#[derive(Default)]
pub(super) struct Departures {
    pub(super) leaving: Vec<LeavingMessage>,
    held: Vec<(Uuid, HoldCause, OffsetDateTime)>,
    pub(super) failed: Vec<(MessageId, String)>,
    /// The last change of the settings that hold messages.
    settings_at: Option<OffsetDateTime>,
}

/// Holds messages until they are due again.
pub(super) async fn hold_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    departures: &Departures,
) -> DbResult<()> {
    let held = &departures.held;
    if held.is_empty() {
        return Ok(());
    }
    sql(format!(
        "UPDATE direct_messages m SET due_at = k.until, hold_rule = k.cause, held_settings_at = $5, hold_reason = NULL,
           updated_at = now()
         FROM {keys} k WHERE m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2, $3, $4", "id, cause, until"),
    ))
    .bind(account)
    .bind(collect_column(held, |(id, _, _)| *id))
    .bind(collect_column(held, |(_, cause, _)| cause.as_str().to_owned()))
    .bind(collect_column(held, |(_, _, until)| *until))
    .bind(departures.settings_at)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct DueCountRow {
    #[diesel(sql_type = BigInt)]
    n: i64,
    /// Whether the account's settings hold messages.
    #[diesel(sql_type = Bool)]
    may_hold: bool,
}

pub(super) async fn due(conn: &mut AsyncPgConnection, queue: NumberQueue, limit: u32) -> DbResult<u32> {
    for _ in 0..MAX_HELD_BATCHES {
        let row: DueCountRow = sql(
            "SELECT count(*) AS n, EXISTS (SELECT FROM account_settings WHERE account_id = $1
               AND (quiet_hours IS NOT NULL OR max_marketing_per_contact IS NOT NULL)) AS may_hold
             FROM (SELECT 1 FROM direct_messages
               WHERE account_id = $1 AND profile_id = $2 AND due_at <= now() ORDER BY due_at LIMIT $3) d",
        )
        .bind(queue.account_id)
        .bind(stored_profile(queue.profile_id))
        .bind(i64::from(limit))
        .get_result(&mut *conn)
        .await?;
        if row.n == 0 || !row.may_hold || !hold_due(conn, queue, limit).await? {
            return Ok(u32::try_from(row.n).unwrap_or(limit));
        }
    }
    // The rest is held when it starts.
    Ok(limit)
}

/// Holds those of the first due messages that the account's settings hold. False: there are none.
async fn hold_due(conn: &mut AsyncPgConnection, queue: NumberQueue, limit: u32) -> DbResult<bool> {
    let rows = due_messages(conn, queue, i64::from(limit)).await?;
    let settings = hold_settings(conn, queue.account_id).await?;
    let departures = departures(conn, queue, rows, false, settings, Purpose::Precheck).await?;
    hold_messages(conn, queue.account_id, &departures).await?;
    Ok(!departures.held.is_empty())
}

/// Makes held messages due.
pub(super) async fn release_held(conn: &mut AsyncPgConnection, account: AccountId, ids: Vec<Uuid>) -> DbResult<u64> {
    let profiles: Vec<ProfileRow> = sql(format!(
        "SELECT DISTINCT m.profile_id FROM {keys} k JOIN direct_messages m ON m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(ids.clone())
    .load(&mut *conn)
    .await?;
    let queues: Vec<_> = profiles
        .into_iter()
        .map(|row| (row.profile_id, DueTime::AT_ONCE))
        .collect();
    // Queues are locked before messages.
    make_due(conn, account, &queues).await?;
    let released = sql(format!(
        "WITH held AS MATERIALIZED (SELECT m.id FROM {keys} k
           JOIN direct_messages m ON m.account_id = $1 AND m.id = k.id
           WHERE m.hold_rule IS NOT NULL AND m.due_at IS NOT NULL ORDER BY m.id FOR NO KEY UPDATE OF m)
         UPDATE direct_messages m SET due_at = least(m.due_at, now()),
           held_settings_at = (SELECT holds_changed_at FROM account_settings WHERE account_id = $1)
         FROM held h WHERE m.account_id = $1 AND m.id = h.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(ids)
    .execute(conn)
    .await?;
    Ok(u64::try_from(released).unwrap_or(u64::MAX))
}
