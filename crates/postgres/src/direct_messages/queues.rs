//! The queues of direct messages: one row for each number with messages that are not started.

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{NEVER_CONFIRMED, SendResult};
use recado_domain::direct_messages::{
    DirectMessageQueue, EXPIRED, HoldReason, LeavingMessage, NumberQueue, QueueInputs,
};
use recado_domain::holds::held_too_long;
use recado_domain::messaging::{AddressKind, Category, ErrorClass, ErrorCodes, SendStatus};
use recado_domain::shared::{AccountId, MessageId, ProfileId, StoreError};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::changes::{self, find, lock, write};
use super::creation::{DueTime, make_due};
use super::departures::{departures, due, due_messages, hold_messages, release_held};
use super::facts::numbers;
use super::hand_over::move_due;
use super::{read_profile, stored_profile};
use crate::contacts::{opt_out_now, set_wa_ids};
use crate::errors::{DbResult, parse_enum};
use crate::holds::{Purpose, hold_settings};
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{FENCE, FlagRow, PlannedEachTime, collect_column, key_rows, sql};
use crate::transactions::in_tenant;
use crate::whatsapp::find_profile;

/// The most messages of a held queue that fail together because they have expired.
const EXPIRED_BATCH: i64 = 100;

/// The first messages of a held queue that expire in time. Later ones wait for the end of a hold.
const EXPIRY_WINDOW: i64 = 1000;

#[derive(Clone, Debug)]
pub struct PgDirectMessageQueues {
    tenants: TenantPool,
    owner: OwnerPool,
    codes: ErrorCodes,
}

impl PgDirectMessageQueues {
    /// `owner` claims queues and finds unknown outcomes, across all accounts.
    pub fn new(tenants: TenantPool, owner: OwnerPool, codes: ErrorCodes) -> Self {
        Self { tenants, owner, codes }
    }
}

#[derive(QueryableByName)]
struct QueueRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    profile_id: Uuid,
}

#[derive(QueryableByName)]
struct UnknownRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

/// Renews the lease. False: another worker has leased the queue.
async fn renew(conn: &mut AsyncPgConnection, queue: NumberQueue, worker: Uuid, lease: Duration) -> DbResult<bool> {
    let renewed = sql(
        "UPDATE direct_message_queues SET leased_until = now() + $4 * interval '1 microsecond'
         WHERE account_id = $1 AND profile_id = $2 AND worker = $3",
    )
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .bind(worker)
    .bind(lease)
    .execute(conn)
    .await?;
    Ok(renewed > 0)
}

/// Locks the queue's row if the worker's lease is current.
async fn lock_leased(conn: &mut AsyncPgConnection, queue: NumberQueue, worker: Uuid) -> DbResult<bool> {
    let locked: Option<FlagRow> = sql("SELECT true AS yes FROM direct_message_queues
         WHERE account_id = $1 AND profile_id = $2 AND worker = $3 FOR UPDATE")
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .bind(worker)
    .get_result(conn)
    .await
    .optional()?;
    Ok(locked.is_some())
}

/// Marks the started messages of the queue as unknown.
async fn mark_unknown(conn: &mut AsyncPgConnection, queue: NumberQueue) -> DbResult<()> {
    sql("UPDATE direct_messages SET unknown_at = now(), updated_at = now()
         WHERE account_id = $1 AND profile_id = $2 AND status = 'pending' AND started_at IS NOT NULL
           AND unknown_at IS NULL")
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .execute(conn)
    .await?;
    Ok(())
}

async fn start(
    conn: &mut AsyncPgConnection,
    queue: NumberQueue,
    worker: Uuid,
    limit: i64,
    lease: Duration,
    is_number_removed: bool,
) -> DbResult<Option<Vec<LeavingMessage>>> {
    if !renew(conn, queue, worker, lease).await? {
        return Ok(None);
    }
    let account = queue.account_id;
    let rows = due_messages(conn, queue, limit).await?;
    let settings = hold_settings(conn, account).await?;
    let departures = departures(conn, queue, rows, is_number_removed, settings, Purpose::Start).await?;
    hold_messages(conn, account, &departures).await?;
    fail(conn, account, &departures.failed).await?;
    mark_started(conn, account, &departures.leaving).await?;
    Ok(Some(departures.leaving))
}

/// Marks messages as started, with the texts that they leave with.
async fn mark_started(conn: &mut AsyncPgConnection, account: AccountId, leaving: &[LeavingMessage]) -> DbResult<()> {
    if leaving.is_empty() {
        return Ok(());
    }
    sql(format!(
        "UPDATE direct_messages m SET started_at = now(), due_at = NULL, hold_reason = NULL, hold_rule = NULL, text = k.text,
           by_user_id = k.by_user_id, is_marketing = k.is_marketing, updated_at = now()
         FROM {keys} k WHERE m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2, $3, $4, $5", "id, text, by_user_id, is_marketing"),
    ))
    .bind(account)
    .bind(collect_column(leaving, |message| message.id.0))
    .bind(collect_column(leaving, |message| message.content.template_text()))
    .bind(collect_column(leaving, |message| {
        message.to.kind() == AddressKind::UserId
    }))
    .bind(collect_column(leaving, |message| {
        message.content.category() == Some(Category::Marketing)
    }))
    .execute(conn)
    .await?;
    Ok(())
}

/// Fails messages that were not sent.
async fn fail(conn: &mut AsyncPgConnection, account: AccountId, failed: &[(MessageId, String)]) -> DbResult<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let mut locked = lock(conn, account, failed.iter().map(|(id, _)| id.0).collect(), vec![]).await?;
    for (id, message) in failed {
        if let Some(locked) = find(&mut locked, Some(id.0), "") {
            locked.advance(SendStatus::Failed, None, Some(message));
        }
    }
    write(conn, account, &mut locked).await?;
    Ok(())
}

async fn record(
    conn: &mut AsyncPgConnection,
    queue: NumberQueue,
    results: &[(MessageId, SendResult)],
    codes: ErrorCodes,
) -> DbResult<()> {
    let account = queue.account_id;
    if results.iter().any(|(_, result)| may_be_due_again(result)) {
        // The worker may have lost the queue, and its new worker may have deleted the row.
        make_due(conn, account, &[(stored_profile(queue.profile_id), DueTime::AT_ONCE)]).await?;
    }
    let mut locked = lock(conn, account, results.iter().map(|(id, _)| id.0).collect(), vec![]).await?;
    let (mut contacts, mut wa_ids, mut opt_outs) = (Vec::new(), Vec::new(), Vec::new());
    for (id, result) in results {
        let Some(message) = find(&mut locked, Some(id.0), "") else {
            continue;
        };
        message.apply(result);
        if let SendResult::Sent { wa_id: Some(wa_id), .. } = result {
            contacts.push(message.contact());
            wa_ids.push(wa_id.clone());
        }
        let opted_out = |code: i64| codes.class(code) == ErrorClass::OptedOut;
        if matches!(result, SendResult::Failed { code: Some(code), .. } if opted_out(*code)) {
            opt_outs.push(message.contact());
        }
    }
    set_wa_ids(conn, account, contacts, wa_ids).await?;
    opt_out_now(conn, account, &opt_outs).await?;
    write(conn, account, &mut locked).await?;
    Ok(())
}

/// Whether the message did not leave.
fn may_be_due_again(result: &SendResult) -> bool {
    match result {
        SendResult::Deferred { .. } | SendResult::Throttled { .. } | SendResult::Released => true,
        SendResult::Sent { .. } | SendResult::Failed { .. } | SendResult::Unknown => false,
    }
}

/// Releases a queue of this worker. Without waiting messages it is deleted.
async fn release(
    conn: &mut AsyncPgConnection,
    queue: NumberQueue,
    worker: Uuid,
    hold: Option<(HoldReason, Duration)>,
) -> DbResult<()> {
    if !lock_leased(conn, queue, worker).await? {
        return Ok(());
    }
    if hold.is_some() {
        fail_expired(conn, queue).await?;
    }
    // A statement of its own has a new snapshot (READ COMMITTED): it sees messages whose insert committed while this
    // transaction waited for the queue's row.
    sql(include_str!("release.sql"))
        .bind(queue.account_id)
        .bind(stored_profile(queue.profile_id))
        .bind(hold.map(|(reason, _)| reason.as_str()))
        .bind(hold.map_or(Duration::ZERO, |(_, delay)| delay))
        .bind(EXPIRY_WINDOW)
        .execute(&mut *conn)
        .await?;
    sql(
        "DELETE FROM direct_message_queues WHERE account_id = $1 AND profile_id = $2 AND worker IS NULL
           AND due_at = 'infinity'",
    )
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct ExpiredRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    /// The setting that held the message until it expired.
    #[diesel(sql_type = Nullable<Text>)]
    hold_rule: Option<String>,
}

async fn fail_expired(conn: &mut AsyncPgConnection, queue: NumberQueue) -> DbResult<()> {
    let expired: Vec<ExpiredRow> = sql(
        "SELECT id, CASE WHEN due_at >= expires_at THEN hold_rule END AS hold_rule
         FROM direct_messages
         WHERE account_id = $1 AND profile_id = $2 AND due_at <= now() AND expires_at <= now()
         ORDER BY due_at, id LIMIT $3 FOR NO KEY UPDATE",
    )
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .bind(EXPIRED_BATCH)
    .load(conn)
    .await?;
    let mut failed = Vec::with_capacity(expired.len());
    for row in expired {
        let cause = row.hold_rule.as_deref().map(parse_enum).transpose()?;
        failed.push((row.id.into(), cause.map_or_else(|| EXPIRED.to_owned(), held_too_long)));
    }
    fail(conn, queue.account_id, &failed).await
}

async fn inputs(conn: &mut AsyncPgConnection, queue: NumberQueue) -> DbResult<Option<QueueInputs>> {
    let active: Option<FlagRow> = sql("SELECT status = 'active' AS yes FROM accounts WHERE id = $1")
        .bind(queue.account_id)
        .get_result(conn)
        .await
        .optional()?;
    let Some(active) = active else { return Ok(None) };
    let (profile, successor) = match queue.profile_id {
        None => (None, numbers(conn, queue.account_id).await?.into_iter().next()),
        Some(profile) => (find_profile(conn, queue.account_id, profile).await?, None),
    };
    Ok(Some(QueueInputs {
        profile,
        is_active: active.yes,
        held: held(conn, queue).await?,
        successor,
    }))
}

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(sql_type = Text)]
    hold_reason: String,
    #[diesel(sql_type = Timestamptz)]
    held_until: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Why and how long the messages of a queue are still held.
async fn held(conn: &mut AsyncPgConnection, queue: NumberQueue) -> DbResult<Option<(HoldReason, Duration)>> {
    let row: Option<HeldRow> = sql("SELECT hold_reason, held_until, now() AS now FROM direct_message_queues
         WHERE account_id = $1 AND profile_id = $2 AND hold_reason IS NOT NULL AND held_until > now()")
    .bind(queue.account_id)
    .bind(stored_profile(queue.profile_id))
    .get_result(conn)
    .await
    .optional()?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some((parse_enum(&row.hold_reason)?, row.held_until - row.now)))
}

async fn fail_unconfirmed(conn: &mut AsyncPgConnection, account: AccountId, ids: Vec<Uuid>) -> DbResult<u64> {
    let mut locked = changes::lock(conn, account, ids, vec![]).await?;
    let before = locked.iter().filter(|message| message.is_pending()).count();
    for message in &mut locked {
        // A status update may have resolved it since it was found: `sent` could still advance to `failed`.
        if message.is_pending() {
            message.advance(SendStatus::Failed, None, Some(NEVER_CONFIRMED));
        }
    }
    write(conn, account, &mut locked).await?;
    Ok(u64::try_from(before).unwrap_or(u64::MAX))
}

#[async_trait]
impl DirectMessageQueue for PgDirectMessageQueues {
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<NumberQueue>, StoreError> {
        let query = sql(include_str!("take.sql")).bind(worker).bind(lease);
        let taken = self.owner.row_if_any::<QueueRow>(PlannedEachTime(query)).await?;
        let Some(row) = taken else { return Ok(None) };
        let queue = NumberQueue {
            account_id: row.account_id.into(),
            profile_id: read_profile(row.profile_id),
        };
        in_tenant!(self.tenants, queue.account_id, |conn| mark_unknown(conn, queue))?;
        Ok(Some(queue))
    }

    async fn inputs(&self, queue: NumberQueue) -> Result<Option<QueueInputs>, StoreError> {
        in_tenant!(self.tenants, queue.account_id, |conn| inputs(conn, queue))
    }

    async fn due(&self, queue: NumberQueue, limit: u32) -> Result<u32, StoreError> {
        in_tenant!(self.tenants, queue.account_id, |conn| due(conn, queue, limit))
    }

    async fn start(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        limit: u32,
        lease: Duration,
        is_number_removed: bool,
    ) -> Result<Option<Vec<LeavingMessage>>, StoreError> {
        let limit = i64::from(limit);
        in_tenant!(self.tenants, queue.account_id, |conn| start(
            conn,
            queue,
            worker,
            limit,
            lease,
            is_number_removed
        ))
    }

    async fn record(&self, queue: NumberQueue, results: &[(MessageId, SendResult)]) -> Result<(), StoreError> {
        let (account, codes) = (queue.account_id, self.codes);
        in_tenant!(self.tenants, account, |conn| record(conn, queue, results, codes))
    }

    async fn release(&self, queue: NumberQueue, worker: Uuid) -> Result<(), StoreError> {
        in_tenant!(self.tenants, queue.account_id, |conn| release(
            conn, queue, worker, None
        ))
    }

    async fn hold(
        &self,
        queue: NumberQueue,
        worker: Uuid,
        reason: HoldReason,
        delay: Duration,
    ) -> Result<(), StoreError> {
        let hold = Some((reason, delay));
        in_tenant!(self.tenants, queue.account_id, |conn| release(
            conn, queue, worker, hold
        ))
    }

    async fn hand_over(&self, queue: NumberQueue, worker: Uuid, number: ProfileId) -> Result<(), StoreError> {
        in_tenant!(self.tenants, queue.account_id, |conn| async {
            if lock_leased(conn, queue, worker).await? {
                move_due(conn, queue, number).await?;
            }
            release(conn, queue, worker, None).await
        })
    }

    async fn abandon(&self, queue: NumberQueue, worker: Uuid) -> Result<(), StoreError> {
        in_tenant!(self.tenants, queue.account_id, |conn| async {
            if lock_leased(conn, queue, worker).await? {
                mark_unknown(conn, queue).await?;
            }
            release(conn, queue, worker, None).await
        })
    }

    async fn release_holds(&self, limit: i64) -> Result<u64, StoreError> {
        let query = sql(format!(include_str!("held_by_old_settings.sql"), fence = FENCE)).bind(limit);
        let mut held: BTreeMap<AccountId, Vec<Uuid>> = BTreeMap::new();
        for row in self.owner.rows::<UnknownRow>(query).await? {
            held.entry(row.account_id.into()).or_default().push(row.id);
        }
        let mut released = 0;
        for (account, ids) in held {
            released += in_tenant!(self.tenants, account, |conn| release_held(conn, account, ids.clone()))?;
        }
        Ok(released)
    }

    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError> {
        let query = sql("SELECT account_id, id FROM direct_messages
             WHERE status = 'pending' AND started_at <= now() - $1 * interval '1 microsecond'
             ORDER BY started_at LIMIT $2")
        .bind(ttl)
        .bind(limit);
        let mut unknown: BTreeMap<AccountId, Vec<Uuid>> = BTreeMap::new();
        for row in self.owner.rows::<UnknownRow>(query).await? {
            unknown.entry(row.account_id.into()).or_default().push(row.id);
        }
        let mut failed = 0;
        for (account, ids) in unknown {
            failed += in_tenant!(self.tenants, account, |conn| fail_unconfirmed(
                conn,
                account,
                ids.clone()
            ))?;
        }
        Ok(failed)
    }
}
