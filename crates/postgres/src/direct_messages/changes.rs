//! State changes of direct messages: messages are locked, changed in memory by the domain's rules, and written back in
//! one statement with statistics, quota and events.

use std::collections::BTreeMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Date as SqlDate, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::analytics::MessageRollupDelta;
use recado_domain::campaigns::{MessageStatusEvent, SendResult};
use recado_domain::conversations::MessageStatus;
use recado_domain::costs::{CostEntry, CostRollupDelta};
use recado_domain::direct_messages::{Advance, CONTACT_DELETED, DirectStatus, HoldReason, MessageState};
use recado_domain::messaging::{AddressKind, PriceChange, SendStatus, StatusPricing};
use recado_domain::shared::{AccountId, ContactId, StoreError};
use serde_json::Value;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::read_profile;
use crate::analytics::count_messages;
use crate::campaigns::usage;
use crate::costs::{Priced, count_costs, set_rates};
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pricing::stored;
use crate::sql::{IdRow, collect_column, key_rows, sql, unknown_limit};

#[derive(QueryableByName)]
struct LockedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Bool)]
    is_started: bool,
    #[diesel(sql_type = Bool)]
    by_user_id: bool,
    #[diesel(sql_type = Timestamptz)]
    send_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Text>)]
    client_reference: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_message_id: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    error_code: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    error_message: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    pricing: Option<Value>,
    #[diesel(sql_type = SqlUuid)]
    profile_id: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    template_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    conversation_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlDate>)]
    quota_month: Option<Date>,
    /// Whether its contact is erased: then it gets no id of WhatsApp and no text, and has no events.
    #[diesel(sql_type = Bool)]
    is_erased: bool,
}

/// A locked message and its changes.
pub(crate) struct LockedMessage {
    row: LockedRow,
    before: DirectStatus,
    status: DirectStatus,
    pricing: Option<StatusPricing>,
    pricing_before: Option<StatusPricing>,
    /// What changed in the price.
    price_change: PriceChange,
    /// Set if a status was applied.
    new_status: Option<SendStatus>,
    is_unknown: bool,
    /// Set if the message is due again after this time.
    again_in: Option<Duration>,
    attempt: i32,
    hold_reason: Option<HoldReason>,
    changed: bool,
}

impl TryFrom<LockedRow> for LockedMessage {
    type Error = StoreError;

    fn try_from(row: LockedRow) -> Result<Self, StoreError> {
        let status = parse_enum(&row.status)?;
        let pricing = stored(row.pricing.as_ref())?;
        Ok(Self {
            pricing_before: pricing.clone(),
            pricing,
            price_change: PriceChange::Nothing,
            row,
            before: status,
            status,
            new_status: None,
            is_unknown: false,
            again_in: None,
            attempt: 0,
            hold_reason: None,
            changed: false,
        })
    }
}

impl LockedMessage {
    pub(crate) fn contact(&self) -> Uuid {
        self.row.contact_id
    }

    pub(crate) fn set_message_id(&mut self, wa_message_id: &str) {
        if self.row.wa_message_id.is_none() && !self.row.is_erased {
            self.row.wa_message_id = Some(wa_message_id.to_owned());
            self.changed = true;
        }
    }

    pub(crate) fn set_pricing(&mut self, pricing: Option<StatusPricing>) {
        let change = StatusPricing::apply(&mut self.pricing, pricing);
        self.changed |= change != PriceChange::Nothing;
        self.price_change = self.price_change.max(change);
        if let Some(pricing) = self.pricing.as_mut().filter(|pricing| pricing.profile_id.is_none()) {
            pricing.profile_id = read_profile(self.row.profile_id);
            pricing.template_id = self.row.template_id.map(Into::into);
        }
    }

    /// Sets the rate of the price again.
    pub(crate) fn reprice(&mut self) {
        if self.pricing.is_some() {
            self.price_change = PriceChange::Price;
            self.changed = true;
        }
    }

    /// What the message added to the rollup of costs, and what it adds now.
    fn costs(&self) -> (Option<CostEntry>, Option<CostEntry>) {
        let before = self.pricing_before.as_ref().filter(|price| price.since.is_some());
        let entry = |price: Option<&StatusPricing>, status: DirectStatus| {
            let is_charged = status.as_send().is_some_and(SendStatus::is_charged);
            price
                .filter(|_| is_charged)
                .map(|price| CostEntry::of(price, Uuid::nil()))
        };
        (entry(before, self.before), entry(self.pricing.as_ref(), self.status))
    }

    /// Applies a status, unless the message already has a later one.
    pub(crate) fn advance(&mut self, status: SendStatus, code: Option<i64>, message: Option<&str>) {
        let Some(next) = self.status.advance(status) else {
            return;
        };
        self.status = next;
        self.new_status = Some(status);
        self.changed = true;
        if next == DirectStatus::Failed {
            self.row.error_code = code;
            self.row.error_message = message.filter(|_| !self.row.is_erased).map(str::to_owned);
        }
    }

    /// Applies the result of a call.
    pub(super) fn apply(&mut self, result: &SendResult) {
        let state = MessageState {
            status: self.status,
            is_started: self.row.is_started,
        };
        match state.after(result) {
            Advance::To(_) => self.apply_final(result),
            Advance::Unknown => {
                self.is_unknown = true;
                self.changed = true;
            }
            Advance::Again {
                delay,
                counts,
                is_throttled,
            } => {
                self.again_in = Some(delay);
                self.attempt = i32::from(counts);
                self.hold_reason = is_throttled.then_some(HoldReason::Throttled);
                self.changed = true;
            }
            Advance::Nothing => {}
        }
        if let SendResult::Sent {
            message_id: Some(id), ..
        } = result
        {
            self.set_message_id(id);
        }
    }

    fn apply_final(&mut self, result: &SendResult) {
        match result {
            SendResult::Failed { code, message } => self.advance(SendStatus::Failed, *code, Some(message)),
            _ => self.advance(SendStatus::Sent, None, None),
        }
    }

    /// Cancels the message. False: it was started, or has ended otherwise.
    pub(super) fn cancel(&mut self) -> bool {
        match self.status.cancel(self.row.is_started) {
            None => false,
            Some(cancelled) => {
                self.changed |= self.status != cancelled;
                self.status = cancelled;
                true
            }
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.status == DirectStatus::Pending
    }

    /// Whether the message begins to count as sent.
    fn becomes_sent(&self) -> bool {
        let is_accepted = |status| {
            matches!(
                status,
                DirectStatus::Sent | DirectStatus::Delivered | DirectStatus::Read
            )
        };
        is_accepted(self.status) && !is_accepted(self.before)
    }

    fn status_event(&self) -> Option<MessageStatusEvent> {
        Some(MessageStatusEvent {
            id: self.row.id,
            campaign_id: None,
            conversation_id: self.row.conversation_id.map(Into::into),
            contact_id: ContactId(self.row.contact_id),
            wa_message_id: self.row.wa_message_id.clone(),
            status: self.new_status.filter(|_| !self.row.is_erased)?,
            error_code: self.row.error_code,
            error_message: self.row.error_message.clone(),
            address: self.row.is_started.then(|| AddressKind::of(self.row.by_user_id)),
            client_reference: Some(self.row.client_reference.clone()),
        })
    }
}

impl Priced for LockedMessage {
    fn price_change(&self) -> PriceChange {
        self.price_change
    }

    fn contact(&self) -> Uuid {
        self.row.contact_id
    }

    fn price(&self) -> Option<&StatusPricing> {
        self.pricing.as_ref()
    }

    fn price_mut(&mut self) -> Option<(&mut StatusPricing, Option<&str>)> {
        Some((self.pricing.as_mut()?, None))
    }
}

/// Locks the messages with these ids or WhatsApp message ids, in the order of their ids.
pub(crate) async fn lock(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: Vec<Uuid>,
    wa_message_ids: Vec<String>,
) -> DbResult<Vec<LockedMessage>> {
    let rows: Vec<LockedRow> = sql(format!(
        include_str!("lock.sql"),
        id_keys = key_rows("$2", "id"),
        message_keys = key_rows("$3", "wa_message_id"),
        limit = unknown_limit("cardinality($2) + cardinality($3)"),
    ))
    .bind(account)
    .bind(ids)
    .bind(wa_message_ids)
    .load(conn)
    .await?;
    let locked = rows.into_iter().map(LockedMessage::try_from);
    Ok(locked.collect::<Result<_, _>>()?)
}

/// Fails at most `limit` messages to a contact that have not left. Returns how many were found.
pub(crate) async fn fail_unsent(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contact: ContactId,
    limit: i64,
) -> DbResult<i64> {
    let found: Vec<IdRow> = sql("SELECT id FROM direct_messages
         WHERE account_id = $1 AND contact_id = $2 AND status = 'pending' AND started_at IS NULL ORDER BY id LIMIT $3")
    .bind(account)
    .bind(contact)
    .bind(limit)
    .load(&mut *conn)
    .await?;
    let mut locked = lock(conn, account, collect_column(&found, |row| row.id), vec![]).await?;
    for message in locked
        .iter_mut()
        .filter(|message| message.is_pending() && !message.row.is_started)
    {
        message.advance(SendStatus::Failed, None, Some(CONTACT_DELETED));
    }
    write(conn, account, &mut locked).await?;
    Ok(i64::try_from(found.len()).unwrap_or(i64::MAX))
}

/// Finds a message by its id, else by its WhatsApp message id.
pub(crate) fn find<'a>(
    locked: &'a mut [LockedMessage],
    id: Option<Uuid>,
    wa_message_id: &str,
) -> Option<&'a mut LockedMessage> {
    let by_id = locked.iter().position(|message| Some(message.row.id) == id);
    let matches = |message: &LockedMessage| message.row.wa_message_id.as_deref() == Some(wa_message_id);
    let position = by_id.or_else(|| locked.iter().position(matches))?;
    locked.get_mut(position)
}

/// Writes changed messages with their statistics, quota and events. Returns the change of costs, for `check_alerts`.
pub(crate) async fn write(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    locked: &mut [LockedMessage],
) -> DbResult<CostRollupDelta> {
    show_in_conversations(conn, account, locked).await?;
    set_rates(conn, account, locked).await?;
    let changed: Vec<&LockedMessage> = locked.iter().filter(|message| message.changed).collect();
    if changed.is_empty() {
        return Ok(CostRollupDelta::default());
    }
    write_rows(conn, account, &changed).await?;
    let mut delta = MessageRollupDelta::default();
    for message in &changed {
        if let (Some(from), Some(to)) = (as_reply(message.before), as_reply(message.status)) {
            delta.advance(message.row.send_at, from, to);
        }
    }
    count_messages(conn, account, &delta).await?;
    let mut returned: BTreeMap<Date, i64> = BTreeMap::new();
    for month in changed
        .iter()
        .filter(|message| !message.is_pending())
        .filter_map(|message| message.row.quota_month)
    {
        *returned.entry(month).or_default() += 1;
    }
    // An accepted message counts in the statistics from now on, any other one does not count any more.
    for (month, count) in returned {
        usage::change(conn, account, month, 0, -count).await?;
    }
    let mut costs = CostRollupDelta::default();
    for message in &changed {
        let (before, after) = message.costs();
        costs.replace(before, after);
    }
    count_costs(conn, account, &costs).await?;
    let events: Vec<MessageStatusEvent> = changed.into_iter().filter_map(LockedMessage::status_event).collect();
    outbox::append(conn, account, &MessageStatusEvent::events(&events)).await?;
    Ok(costs)
}

async fn write_rows(conn: &mut AsyncPgConnection, account: AccountId, changed: &[&LockedMessage]) -> DbResult<()> {
    let text = |value: fn(&LockedMessage) -> Option<String>| changed.iter().map(|row| value(row)).collect::<Vec<_>>();
    let flag = |value: fn(&LockedMessage) -> bool| changed.iter().map(|row| value(row)).collect::<Vec<bool>>();
    let again_in = changed.iter().map(|message| message.again_in);
    let microseconds = again_in.map(|delay| delay.map(|delay| i64::try_from(delay.whole_microseconds()).unwrap_or(0)));
    sql(format!(
        include_str!("write.sql"),
        keys = key_rows(
            "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14",
            "id, status, wa_message_id, error_code, error_message, pricing, conversation_id, is_pending, is_unknown,
             again_in, attempt, hold_reason, becomes_sent",
        ),
    ))
    .bind(account)
    .bind(changed.iter().map(|message| message.row.id).collect::<Vec<_>>())
    .bind(
        changed
            .iter()
            .map(|message| message.status.as_str().to_owned())
            .collect::<Vec<_>>(),
    )
    .bind(text(|message| message.row.wa_message_id.clone()))
    .bind(changed.iter().map(|message| message.row.error_code).collect::<Vec<_>>())
    .bind(text(|message| message.row.error_message.clone()))
    .bind(collect_column(changed, |message| {
        message.pricing.as_ref().map(StatusPricing::to_stored)
    }))
    .bind(
        changed
            .iter()
            .map(|message| message.row.conversation_id)
            .collect::<Vec<_>>(),
    )
    .bind(flag(LockedMessage::is_pending))
    .bind(flag(|message| message.is_unknown))
    .bind(microseconds.collect::<Vec<_>>())
    .bind(changed.iter().map(|message| message.attempt).collect::<Vec<_>>())
    .bind(text(|message| {
        message.hold_reason.map(|reason| reason.as_str().to_owned())
    }))
    .bind(flag(LockedMessage::becomes_sent))
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct ConversationRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
}

/// Shows messages that were sent in the conversations of their contacts, without opening one.
async fn show_in_conversations(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    locked: &mut [LockedMessage],
) -> DbResult<()> {
    let sent = locked.iter().filter(|message| message.becomes_sent());
    let contacts: Vec<Uuid> = sent.map(|message| message.row.contact_id).collect();
    if contacts.is_empty() {
        return Ok(());
    }
    let shown: Vec<ConversationRow> = sql(format!(
        "WITH shown AS (SELECT v.id, v.contact_id FROM {keys} k
           JOIN conversations v ON v.account_id = $1 AND v.contact_id = k.contact_id
           ORDER BY v.id FOR NO KEY UPDATE OF v)
         UPDATE conversations v SET last_message_at = greatest(v.last_message_at, now())
         FROM shown WHERE v.account_id = $1 AND v.id = shown.id RETURNING v.id, v.contact_id",
        keys = key_rows("$2", "contact_id"),
    ))
    .bind(account)
    .bind(contacts)
    .load(conn)
    .await?;
    for message in locked.iter_mut().filter(|message| message.becomes_sent()) {
        let of_contact = shown.iter().find(|row| row.contact_id == message.row.contact_id);
        message.row.conversation_id = of_contact.map(|row| row.id);
    }
    Ok(())
}

/// The status under which a message counts in the statistics of replies.
fn as_reply(status: DirectStatus) -> Option<MessageStatus> {
    status.as_send().map(MessageStatus::from)
}
