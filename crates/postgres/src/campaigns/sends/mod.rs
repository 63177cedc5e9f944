//! State changes of sends: sends are locked, changed in memory by the domain's rules, and written back in a few
//! statements together with the counters and the month's usage.

mod costs;
mod message_ids;

use std::collections::BTreeMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{
    Array, BigInt, Bool, Date as SqlDate, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid,
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{CounterChange, MessageStatusEvent, SendCounts, SendResult};
use recado_domain::costs::CostRollupDelta;
use recado_domain::messaging::{AddressKind, PriceChange, SendStatus, StatusPricing};
use recado_domain::shared::{AccountId, Amount, CampaignId, SendId};
use serde_json::Value;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::smallest;
use super::{budgets, send_times, usage};
use crate::costs::{count_costs, set_rates};
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pricing::stored;
use crate::sql::{IdRow, collect_column, key_rows, sql};

#[derive(QueryableByName)]
struct SendRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    started_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    retry_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    unknown_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    sent_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    delivered_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    read_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    failed_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<BigInt>)]
    error_code: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    error_message: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_message_id: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    pricing: Option<Value>,
    /// What the campaign's budget has reserved for the send.
    #[diesel(sql_type = Nullable<Text>)]
    reserved_amount: Option<String>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    profile_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    template_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    budget_currency: Option<String>,
    /// Whether its contact is erased: then it gets no id of WhatsApp and no text, and has no events.
    #[diesel(sql_type = Bool)]
    is_erased: bool,
    /// Those of the requested message ids that belong to earlier tries of this send.
    #[diesel(sql_type = Array<Text>)]
    superseded: Vec<String>,
    #[diesel(sql_type = Bool)]
    by_user_id: bool,
    #[diesel(sql_type = Bool)]
    never_confirmed: bool,
    /// Whether the campaign is sending.
    #[diesel(sql_type = Bool)]
    sending: bool,
    /// Whether the run that this send belongs to has finished. A retry may run since, whose sends count in its month.
    #[diesel(sql_type = Bool)]
    finished: bool,
    #[diesel(sql_type = Nullable<SqlDate>)]
    quota_month: Option<Date>,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

pub(crate) struct LockedSend {
    row: SendRow,
    status: SendStatus,
    status_before: SendStatus,
    sent_at_before: Option<OffsetDateTime>,
    pricing: Option<StatusPricing>,
    pricing_before: Option<StatusPricing>,
    /// What changed in the price.
    price_change: PriceChange,
    held_reservation_before: bool,
    /// What the campaign's budget reserves for the send. Set by [`set_reservation`](Self::set_reservation).
    reserved: Option<Amount>,
    reserved_before: Option<Amount>,
    changed: bool,
    message_id_is_new: bool,
}

impl LockedSend {
    pub(crate) fn campaign(&self) -> CampaignId {
        self.row.campaign_id.into()
    }

    pub(crate) fn contact(&self) -> Uuid {
        self.row.contact_id
    }

    /// The database's time when the send was locked.
    pub(crate) fn now(&self) -> OffsetDateTime {
        self.row.now
    }

    /// Whether it can start.
    pub(crate) fn waits(&self) -> bool {
        self.status == SendStatus::Pending && self.row.started_at.is_none()
    }

    /// When the outcome became unknown. `None` for a send that waits or has an outcome.
    pub(crate) fn unknown_since(&self) -> Option<OffsetDateTime> {
        let started = self.row.started_at.filter(|_| self.status == SendStatus::Pending)?;
        Some(self.row.unknown_at.unwrap_or(started))
    }

    fn status_event(&self) -> Option<MessageStatusEvent> {
        (!self.row.is_erased).then(|| MessageStatusEvent {
            id: self.row.id,
            campaign_id: Some(self.campaign()),
            conversation_id: None,
            contact_id: self.row.contact_id.into(),
            wa_message_id: self.row.wa_message_id.clone(),
            status: self.status,
            error_code: self.row.error_code,
            error_message: self.row.error_message.clone(),
            address: self.row.started_at.map(|_| AddressKind::of(self.row.by_user_id)),
            client_reference: None,
        })
    }

    /// Whether a message of the month's quota is reserved for this send. The start of a run reserves one for each send,
    /// and its end releases those of pending sends that were not started: WhatsApp may have the others.
    fn holds_reservation(&self) -> bool {
        self.status == SendStatus::Pending && (self.row.sending || self.row.started_at.is_some())
    }

    pub(crate) fn set_message_id(&mut self, message_id: &str) {
        if self.row.wa_message_id.is_none() && !self.row.is_erased {
            self.row.wa_message_id = Some(message_id.to_owned());
            self.message_id_is_new = true;
            self.changed = true;
        }
    }

    /// Applies a status, unless the send already has a later one.
    pub(crate) fn advance(
        &mut self,
        status: SendStatus,
        at: OffsetDateTime,
        error_code: Option<i64>,
        error_message: Option<&str>,
    ) {
        let Some(next) = self.status.advance(status) else {
            return;
        };
        self.status = next;
        self.changed = true;
        self.row.unknown_at = None;
        match next {
            SendStatus::Pending => {}
            SendStatus::Sent => self.row.sent_at = Some(at),
            SendStatus::Delivered => self.row.delivered_at = Some(at),
            SendStatus::Read => self.row.read_at = Some(at),
            SendStatus::Failed => {
                self.row.failed_at = Some(at);
                self.row.error_code = error_code;
                self.row.error_message = error_message.filter(|_| !self.row.is_erased).map(str::to_owned);
            }
        }
        if matches!(next, SendStatus::Delivered | SendStatus::Read) {
            // WhatsApp accepted the message before, even if that status update is late or lost.
            self.row.sent_at.get_or_insert(at);
        }
        if next == SendStatus::Read {
            // A message that was read was delivered before.
            self.row.delivered_at.get_or_insert(at);
        }
    }

    /// Fails a send whose outcome never became known. `never_confirmed` records this: the message may have arrived.
    pub(crate) fn fail_unconfirmed(&mut self, message: &str) {
        self.advance(SendStatus::Failed, self.row.now, None, Some(message));
        self.row.never_confirmed = true;
    }

    /// Applies the result of the call to WhatsApp.
    pub(crate) fn apply_result(&mut self, result: &SendResult) {
        let now = self.row.now;
        match result {
            SendResult::Sent { message_id, .. } => {
                if let Some(message_id) = message_id {
                    self.set_message_id(message_id);
                }
                self.advance(SendStatus::Sent, now, None, None);
            }
            SendResult::Failed { code, message } => self.advance(SendStatus::Failed, now, *code, Some(message)),
            SendResult::Unknown if self.status == SendStatus::Pending => {
                self.row.unknown_at.get_or_insert(now);
                self.changed = true;
            }
            SendResult::Deferred { delay } if self.can_be_released() => {
                self.row.attempts = self.row.attempts.saturating_add(1);
                self.row.retry_at = now.checked_add((*delay).max(Duration::ZERO));
                self.release();
            }
            SendResult::Throttled { delay } if self.can_be_released() => {
                self.row.retry_at = now.checked_add((*delay).max(Duration::ZERO));
                self.release();
            }
            SendResult::Released if self.can_be_released() => self.release(),
            // A status update was faster, or the run has ended and `SEND_UNKNOWN_TTL` resolves the send.
            SendResult::Unknown | SendResult::Deferred { .. } | SendResult::Throttled { .. } | SendResult::Released => {
            }
        }
    }

    /// A send of a finished run stays as it is: no worker would claim it again.
    fn can_be_released(&self) -> bool {
        self.status == SendStatus::Pending && !self.row.finished
    }

    /// Makes the send claimable again.
    fn release(&mut self) {
        self.row.started_at = None;
        self.row.unknown_at = None;
        self.changed = true;
    }
}

/// Sends of one account, locked until the transaction ends, in the order of their ids.
pub(crate) struct LockedSends(Vec<LockedSend>);

/// Locks the sends with these send ids or message ids, in the order of the send ids. The campaign of each send is
/// locked first, as everywhere.
///
/// The ids are an item of FROM, not `IN (SELECT unnest(...))`. When another transaction changed a row while this one
/// waited for its lock, PostgreSQL rechecks the condition. The recheck finds the rows of such a subquery for the first
/// locked row only, so the other sends would be left out and their results lost.
///
/// Message ids are looked up first, so that the smallest send id is known: it selects the partitions.
pub(crate) async fn lock_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    mut ids: Vec<Uuid>,
    message_ids: Vec<String>,
) -> DbResult<LockedSends> {
    ids.extend(sent_message_ids(conn, account, &message_ids).await?);
    ids.sort_unstable();
    ids.dedup();
    let smallest = smallest(&ids);
    let rows: Vec<SendRow> = sql(format!(
        include_str!("../lock_sends.sql"),
        keys = key_rows("$2", "id"),
        message_keys = key_rows("$3", "wa_message_id"),
        oldest_message = OLDEST_MESSAGE,
    ))
    .bind(account)
    .bind(ids)
    .bind(message_ids)
    .bind(smallest)
    .load(conn)
    .await?;
    let mut sends = Vec::with_capacity(rows.len());
    for row in rows {
        let status: SendStatus = parse_enum(&row.status)?;
        let pricing = stored(row.pricing.as_ref())?;
        let mut send = LockedSend {
            pricing_before: pricing.clone(),
            pricing,
            price_change: PriceChange::Nothing,
            status,
            status_before: status,
            sent_at_before: row.sent_at,
            row,
            held_reservation_before: false,
            reserved: None,
            reserved_before: None,
            changed: false,
            message_id_is_new: false,
        };
        send.held_reservation_before = send.holds_reservation();
        sends.push(send);
    }
    Ok(LockedSends(sends))
}

/// Rows of `sent_messages` are kept for 45 days; older ones may be in a partition that was not removed yet.
const OLDEST_MESSAGE: &str = "now() - interval '45 days'";

/// Returns the ids of the sends with these message ids.
async fn sent_message_ids(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    message_ids: &[String],
) -> DbResult<Vec<Uuid>> {
    if message_ids.is_empty() {
        return Ok(vec![]);
    }
    let rows: Vec<IdRow> = sql(format!(
        "SELECT m.send_id AS id FROM {keys} k
         JOIN sent_messages m ON m.account_id = $1 AND m.wa_message_id = k.wa_message_id
           AND m.recorded_at >= {OLDEST_MESSAGE}",
        keys = key_rows("$2", "wa_message_id"),
    ))
    .bind(account)
    .bind(message_ids.to_vec())
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

impl LockedSends {
    /// Finds a send by its id, else by its message id. The message id of an earlier try finds nothing.
    pub(crate) fn find(&mut self, id: Option<SendId>, message_id: &str) -> Option<&mut LockedSend> {
        let by_id = id.and_then(|id| self.0.binary_search_by_key(&id.0, |send| send.row.id).ok());
        let by_message = || {
            self.0
                .iter()
                .position(|send| send.row.wa_message_id.as_deref() == Some(message_id))
        };
        let position = by_id.or_else(by_message)?;
        let found = self.0.get_mut(position)?;
        (!found.row.superseded.iter().any(|earlier| earlier == message_id)).then_some(found)
    }

    pub(crate) fn by_id(&mut self, id: SendId) -> Option<&mut LockedSend> {
        let position = self.0.binary_search_by_key(&id.0, |send| send.row.id).ok()?;
        self.0.get_mut(position)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LockedSend> {
        self.0.iter_mut()
    }
}

#[derive(Clone, Copy, Default)]
struct UsageDelta {
    sent: i64,
    reserved: i64,
}

/// Changed sends with the resulting changes of counters, usage and webhook events.
pub(crate) struct SendChanges {
    sends: Vec<LockedSend>,
    counts: BTreeMap<Uuid, SendCounts>,
    usage: BTreeMap<Date, UsageDelta>,
    events: Vec<MessageStatusEvent>,
}

impl SendChanges {
    pub(crate) fn of(LockedSends(sends): LockedSends) -> Self {
        let sends: Vec<LockedSend> = sends.into_iter().filter(|send| send.changed).collect();
        let mut transitions: BTreeMap<Uuid, Vec<CounterChange>> = BTreeMap::new();
        let mut usage: BTreeMap<Date, UsageDelta> = BTreeMap::new();
        let mut events = vec![];
        for send in &sends {
            if send.status_before != send.status {
                events.extend(send.status_event());
                let transition = CounterChange {
                    from: send.status_before,
                    to: send.status,
                };
                transitions.entry(send.row.campaign_id).or_default().push(transition);
            }
            if let Some(month) = send.row.quota_month {
                let delta = usage.entry(month).or_default();
                delta.sent += i64::from(is_accepted(send.status)) - i64::from(is_accepted(send.status_before));
                delta.reserved += i64::from(send.holds_reservation()) - i64::from(send.held_reservation_before);
            }
        }
        usage.retain(|_, delta| delta.sent != 0 || delta.reserved != 0);
        let counts = transitions
            .into_iter()
            .map(|(campaign, transitions)| (campaign, SendCounts::deltas(transitions)))
            .collect();
        Self {
            sends,
            counts,
            usage,
            events,
        }
    }

    /// Executes a fixed number of statements, plus one per campaign and one per month. They run in the order of their
    /// keys, so concurrent writes wait for each other and never deadlock.
    /// Returns the change of costs, for `check_alerts`.
    pub(crate) async fn write(mut self, conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<CostRollupDelta> {
        if self.sends.is_empty() {
            return Ok(CostRollupDelta::default());
        }
        set_rates(conn, account, &mut self.sends).await?;
        for send in &mut self.sends {
            send.set_reservation()?;
        }
        let costs = LockedSend::cost_delta(&self.sends);
        budgets::change_reserved(conn, account, LockedSend::reservation_changes(&self.sends)).await?;
        write_sends(conn, account, self.sends).await?;
        for (campaign, delta) in self.counts {
            sql("INSERT INTO campaign_counter_slots AS n
                   (account_id, campaign_id, slot, created_at, pending, sent, delivered, read, failed)
                 SELECT account_id, campaign_id, counter_slot(total), created_at, $3, $4, $5, $6, $7
                 FROM campaign_counter_slots WHERE account_id = $1 AND campaign_id = $2 AND slot = 0
                 ON CONFLICT (account_id, campaign_id, slot) DO UPDATE
                   SET pending = n.pending + excluded.pending, sent = n.sent + excluded.sent,
                     delivered = n.delivered + excluded.delivered, read = n.read + excluded.read,
                     failed = n.failed + excluded.failed")
            .bind(account)
            .bind(campaign)
            .bind(delta.pending)
            .bind(delta.sent)
            .bind(delta.delivered)
            .bind(delta.read)
            .bind(delta.failed)
            .execute(&mut *conn)
            .await?;
        }
        for (month, delta) in self.usage {
            usage::change(conn, account, month, delta.sent, delta.reserved).await?;
        }
        count_costs(conn, account, &costs).await?;
        outbox::append(conn, account, &MessageStatusEvent::events(&self.events)).await?;
        Ok(costs)
    }
}

fn is_accepted(status: SendStatus) -> bool {
    matches!(status, SendStatus::Sent | SendStatus::Delivered | SendStatus::Read)
}

async fn write_sends(conn: &mut AsyncPgConnection, account: AccountId, sends: Vec<LockedSend>) -> DbResult<()> {
    let times =
        |time: fn(&SendRow) -> Option<OffsetDateTime>| sends.iter().map(|send| time(&send.row)).collect::<Vec<_>>();
    let smallest = smallest(sends.iter().map(|send| &send.row.id));
    let query = sql(format!(
        "UPDATE campaign_sends s SET status = w.status, attempts = w.attempts, started_at = w.started_at,
           retry_at = w.retry_at, unknown_at = w.unknown_at, sent_at = w.sent_at, delivered_at = w.delivered_at,
           read_at = w.read_at, failed_at = w.failed_at, error_code = w.error_code, error_message = w.error_message,
           wa_message_id = w.wa_message_id, never_confirmed = w.never_confirmed, pricing = w.pricing,
           reserved_amount = w.reserved::numeric, hold_reason = NULL
         FROM {keys} w WHERE s.account_id = $1 AND s.id = w.id AND s.id >= $18",
        keys = key_rows(
            "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17",
            "id, status, attempts, started_at, retry_at, unknown_at, sent_at, delivered_at, read_at, failed_at, \
             error_code, error_message, wa_message_id, never_confirmed, pricing, reserved",
        ),
    ))
    .bind(account)
    .bind(sends.iter().map(|send| send.row.id).collect::<Vec<_>>())
    .bind(collect_column(&sends, |send| send.status.as_str().to_owned()))
    .bind(sends.iter().map(|send| send.row.attempts).collect::<Vec<_>>())
    .bind(times(|row| row.started_at))
    .bind(times(|row| row.retry_at))
    .bind(times(|row| row.unknown_at))
    .bind(times(|row| row.sent_at))
    .bind(times(|row| row.delivered_at))
    .bind(times(|row| row.read_at))
    .bind(times(|row| row.failed_at))
    .bind(sends.iter().map(|send| send.row.error_code).collect::<Vec<_>>())
    .bind(collect_column(&sends, |send| send.row.error_message.clone()))
    .bind(collect_column(&sends, |send| send.row.wa_message_id.clone()))
    .bind(sends.iter().map(|send| send.row.never_confirmed).collect::<Vec<_>>())
    .bind(collect_column(&sends, |send| {
        send.pricing.as_ref().map(StatusPricing::to_stored)
    }))
    .bind(collect_column(&sends, |send| send.reserved))
    .bind(smallest);
    query.execute(&mut *conn).await?;
    let sent_now = sends.iter().filter(|send| send.sent_at_before.is_none());
    let sent_now = sent_now.filter_map(|send| Some((send.row.campaign_id, send.row.sent_at?, send.row.id)));
    send_times::insert(conn, account, sent_now).await?;
    LockedSend::insert_message_ids(conn, account, &sends).await
}
