//! State changes of replies: messages are locked, changed in memory by the domain's rules, and written back in one
//! statement.

use std::collections::BTreeMap;

use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Jsonb, Nullable, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::analytics::MessageRollupDelta;
use recado_domain::campaigns::MessageStatusEvent;
use recado_domain::campaigns::NEVER_CONFIRMED;
use recado_domain::conversations::{Direction, Message, MessageOrigin, MessageStatus};
use recado_domain::costs::{CostEntry, CostRollupDelta};
use recado_domain::direct_messages::RequestedContent;
use recado_domain::messaging::{AddressKind, PriceChange, SendStatus, StatusPricing};
use recado_domain::shared::{AccountId, ContactId, ProfileId, StoreError, TemplateId};
use serde_json::Value;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use crate::analytics::count_messages;
use crate::campaigns::usage;
use crate::costs::{Priced, count_costs, set_rates};
use crate::deterministic_ids::time_of;
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::outbox;
use crate::pricing::{published, stored};
use crate::schema::messages;
use crate::sql::{collect_column, key_rows, sql, unknown_limit};

/// The file `f` of a message as it is published.
macro_rules! published_file {
    () => {
        "(SELECT jsonb_agg(jsonb_build_object('id', f.id, 'type', f.type,
      'mime_type', f.mime_type, 'file_name', f.file_name, 'size', f.size, 'sha256', f.sha256, 'reason', f.reason,
      'state', CASE WHEN f.state = 'ready' AND f.expires_at <= now() THEN 'expired' ELSE f.state END,
      'expires_at', f.expires_at))
    FROM message_media f WHERE f.account_id = m.account_id AND "
    };
}

/// The columns of a [`MessageRow`]. The statement MUST use the alias `m` for the table.
pub(super) const COLUMNS: &str = concat!(
    "NULL::jsonb AS content,
    m.id, m.conversation_id, m.direction, m.type AS type_, m.text, m.status, m.wa_message_id,
    m.referral, m.pricing, m.created_at, m.origin, m.caption, m.interactive, m.context, m.deleted_at, m.by_user_id,
    CASE WHEN m.media_ids IS NOT NULL THEN ",
    published_file!(),
    "f.id = ANY (m.media_ids)) END AS media"
);

/// The same columns of a direct message (`m`). It is shown from the time at which WhatsApp accepted it.
pub(super) const DIRECT_COLUMNS: &str = concat!(
    "m.request -> 'content' AS content,
    m.id, m.conversation_id, 'outbound' AS direction, m.kind AS type_, m.text, m.status, m.wa_message_id,
    NULL::jsonb AS referral, m.pricing, m.sent_at AS created_at, 'api' AS origin, NULL::text AS caption,
    NULL::jsonb AS interactive, NULL::jsonb AS context, NULL::timestamptz AS deleted_at, m.by_user_id,
    ",
    published_file!(),
    "f.id = m.media_id) AS media"
);

#[derive(QueryableByName)]
#[diesel(table_name = messages, check_for_backend(Pg))]
pub(super) struct MessageRow {
    id: Uuid,
    conversation_id: Uuid,
    direction: String,
    type_: String,
    text: Option<String>,
    status: String,
    wa_message_id: Option<String>,
    referral: Option<Value>,
    pricing: Option<Value>,
    created_at: OffsetDateTime,
    origin: Option<String>,
    caption: Option<String>,
    interactive: Option<Value>,
    context: Option<Value>,
    deleted_at: Option<OffsetDateTime>,
    by_user_id: bool,
    #[diesel(sql_type = Nullable<Jsonb>)]
    media: Option<Value>,
    /// What a direct message consists of; null for every other message.
    #[diesel(sql_type = Nullable<Jsonb>)]
    content: Option<Value>,
}

impl MessageRow {
    /// Sets the fields that a direct message has in its content only. That of an erased message is a JSON null.
    fn with_content(mut self) -> Result<Self, StoreError> {
        let content: Option<Option<RequestedContent>> = self
            .content
            .take()
            .map(serde_json::from_value)
            .transpose()
            .map_err(corrupt)?;
        if let Some(Some(RequestedContent::FreeForm(content))) = content {
            content.kind().clone_into(&mut self.type_);
            self.text = content.text().map(str::to_owned);
            self.caption = content.caption().map(str::to_owned);
        }
        Ok(self)
    }
}

/// The previous version stored no origin.
fn origin_of(direction: Direction, stored: Option<&str>) -> Result<MessageOrigin, StoreError> {
    match (stored, direction) {
        (Some(origin), _) => parse_enum(origin),
        (None, Direction::Inbound) => Ok(MessageOrigin::Contact),
        (None, Direction::Outbound) => Ok(MessageOrigin::Reply),
    }
}

impl TryFrom<MessageRow> for Message {
    type Error = StoreError;

    fn try_from(row: MessageRow) -> Result<Self, StoreError> {
        let row = row.with_content()?;
        let direction = parse_enum(&row.direction)?;
        let media = row.media.map(serde_json::from_value).transpose().map_err(corrupt)?;
        let origin = origin_of(direction, row.origin.as_deref())?;
        let is_ours = matches!(origin, MessageOrigin::Reply | MessageOrigin::Api);
        Ok(Self {
            id: row.id.into(),
            conversation_id: row.conversation_id.into(),
            direction,
            origin,
            address: is_ours.then(|| AddressKind::of(row.by_user_id)),
            media: media.unwrap_or_default(),
            caption: row.caption,
            interactive: row.interactive,
            context: row.context.map(serde_json::from_value).transpose().map_err(corrupt)?,
            deleted_at: row.deleted_at,
            kind: row.type_,
            text: row.text,
            status: parse_enum(&row.status)?,
            wa_message_id: row.wa_message_id,
            referral: row.referral.map(serde_json::from_value).transpose().map_err(corrupt)?,
            pricing: published(row.pricing.as_ref())?,
            created_at: row.created_at,
        })
    }
}

#[derive(QueryableByName)]
struct LockedRow {
    #[diesel(sql_type = Bool)]
    is_erased: bool,
    #[diesel(embed)]
    message: MessageRow,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    /// The number that sent the message.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    profile_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    template_id: Option<Uuid>,
}

/// A locked outbound message.
pub(crate) struct LockedMessage {
    message: Message,
    status_before: MessageStatus,
    contact_id: ContactId,
    /// Whether its contact is erased: then it gets no id of WhatsApp and no text, and has no events.
    is_erased: bool,
    profile_id: Option<ProfileId>,
    template_id: Option<TemplateId>,
    pricing: Option<StatusPricing>,
    pricing_before: Option<StatusPricing>,
    /// What changed in the price.
    price_change: PriceChange,
    error_message: Option<String>,
    changed: bool,
    /// Set if a status was applied.
    new_status: Option<SendStatus>,
}

impl LockedMessage {
    pub(crate) fn set_message_id(&mut self, wa_message_id: &str) {
        if self.message.wa_message_id.is_none() && !self.is_erased {
            self.message.wa_message_id = Some(wa_message_id.to_owned());
            self.changed = true;
        }
    }

    /// Stores the pricing of a status update.
    pub(crate) fn set_pricing(&mut self, pricing: Option<StatusPricing>) {
        let change = StatusPricing::apply(&mut self.pricing, pricing);
        self.changed |= change != PriceChange::Nothing;
        self.price_change = self.price_change.max(change);
        if let Some(pricing) = self.pricing.as_mut().filter(|pricing| pricing.profile_id.is_none()) {
            pricing.profile_id = self.profile_id;
            pricing.template_id = self.template_id;
        }
    }

    /// Sets the rate of the price again.
    pub(crate) fn reprice(&mut self) {
        if self.pricing.is_some() {
            self.price_change = PriceChange::Price;
            self.changed = true;
        }
    }

    /// What the message added to the rollup of costs, and what it adds now. What the business writes in its own app
    /// is in no rollup.
    fn costs(&self) -> (Option<CostEntry>, Option<CostEntry>) {
        if self.message.origin == MessageOrigin::BusinessApp {
            return (None, None);
        }
        let before = self.pricing_before.as_ref().filter(|price| price.since.is_some());
        let entry = |price: Option<&StatusPricing>, status: MessageStatus| {
            let is_charged = matches!(status, MessageStatus::Delivered | MessageStatus::Read);
            price
                .filter(|_| is_charged)
                .map(|price| CostEntry::of(price, Uuid::nil()))
        };
        (
            entry(before, self.status_before),
            entry(self.pricing.as_ref(), self.message.status),
        )
    }

    /// Applies a status, unless the message already has a later one.
    pub(crate) fn advance(&mut self, status: SendStatus, error_message: Option<&str>) {
        let Some(next) = self.message.status.advance(status) else {
            return;
        };
        self.message.status = next;
        self.changed = true;
        self.new_status = Some(status);
        if next == MessageStatus::Failed {
            self.error_message = error_message.filter(|_| !self.is_erased).map(str::to_owned);
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.message.status == MessageStatus::Pending
    }

    pub(super) fn contact(&self) -> Uuid {
        self.contact_id.0
    }

    fn status_event(&self) -> Option<MessageStatusEvent> {
        Some(MessageStatusEvent {
            id: self.message.id.0,
            campaign_id: None,
            conversation_id: Some(self.message.conversation_id),
            contact_id: self.contact_id,
            wa_message_id: self.message.wa_message_id.clone(),
            status: self.new_status.filter(|_| !self.is_erased)?,
            error_code: None,
            error_message: self.error_message.clone(),
            address: self.message.address,
            client_reference: None,
        })
    }

    pub(super) fn into_message(self) -> Message {
        Message {
            pricing: self.pricing.map(|pricing| pricing.pricing),
            ..self.message
        }
    }
}

impl Priced for LockedMessage {
    fn price_change(&self) -> PriceChange {
        self.price_change
    }

    fn contact(&self) -> Uuid {
        self.contact_id.0
    }

    fn price(&self) -> Option<&StatusPricing> {
        self.pricing.as_ref()
    }

    fn price_mut(&mut self) -> Option<(&mut StatusPricing, Option<&str>)> {
        Some((self.pricing.as_mut()?, None))
    }
}

/// How much the clocks of this server, the database and WhatsApp may differ.
pub(super) const CLOCK_DIFFERENCE: Duration = Duration::days(1);

/// The longest time between a reply and a status update of it.
const LATEST_STATUS: Duration = Duration::days(45);

/// The time before which the reply with an id was not written. The id was made then, and begins with its time.
pub(crate) fn reply_written_since(id: Uuid) -> OffsetDateTime {
    time_of(id).saturating_sub(CLOCK_DIFFERENCE)
}

/// The time before which the message with an id was not written. WhatsApp repeats a callback for seven days, so an
/// inbound message may be that much older than its id. A message that was held may be older still.
pub(super) fn message_written_since(id: Uuid) -> OffsetDateTime {
    time_of(id).saturating_sub(Duration::days(15))
}

/// The time before which no reply was written whose status updates have these times.
pub(crate) fn replies_written_since(times: impl Iterator<Item = OffsetDateTime>) -> OffsetDateTime {
    let first = times.min().unwrap_or(OffsetDateTime::UNIX_EPOCH);
    first.saturating_sub(LATEST_STATUS)
}

/// Locks the outbound messages with these ids or WhatsApp message ids, in the order of their ids. Each id has the time
/// before which its message was not written: partitions before it are not read. `since` is that time for the WhatsApp
/// message ids, by WhatsApp's clock; the last 45 days are searched in any case.
///
/// There is no upper bound: for a range between two parameters the planner expects so few rows that it would read all
/// messages of that time instead of looking up the ids.
pub(crate) async fn lock_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[(Uuid, OffsetDateTime)],
    wa_message_ids: Vec<String>,
    since: OffsetDateTime,
) -> DbResult<Vec<LockedMessage>> {
    let query = sql(format!(
        include_str!("lock_messages.sql"),
        columns = COLUMNS,
        limit = unknown_limit("cardinality($2) + cardinality($4)"),
        id_keys = key_rows("$2, $3", "id, since"),
        message_keys = key_rows("$4", "wa_message_id"),
    ))
    .bind(account)
    .bind(collect_column(ids, |(id, _)| *id))
    .bind(collect_column(ids, |(_, since)| *since))
    .bind(wa_message_ids)
    .bind(since);
    let rows: Vec<LockedRow> = query.load(conn).await?;
    let locked = rows.into_iter().map(|row| {
        let pricing = stored(row.message.pricing.as_ref())?;
        let message: Message = row.message.try_into()?;
        Ok(LockedMessage {
            pricing_before: pricing.clone(),
            pricing,
            price_change: PriceChange::Nothing,
            profile_id: row.profile_id.map(Into::into),
            template_id: row.template_id.map(Into::into),
            status_before: message.status,
            message,
            contact_id: row.contact_id.into(),
            is_erased: row.is_erased,
            error_message: None,
            changed: false,
            new_status: None,
        })
    });
    Ok(locked.collect::<Result<_, StoreError>>()?)
}

/// Finds a message by its id, else by its WhatsApp message id.
pub(crate) fn find<'a>(
    locked: &'a mut [LockedMessage],
    id: Option<Uuid>,
    wa_message_id: &str,
) -> Option<&'a mut LockedMessage> {
    let by_id = locked.iter().position(|locked| Some(locked.message.id.0) == id);
    let by_message = || {
        let matches = |locked: &LockedMessage| locked.message.wa_message_id.as_deref() == Some(wa_message_id);
        locked.iter().position(matches)
    };
    let position = by_id.or_else(by_message)?;
    locked.get_mut(position)
}

/// Releases the reservations of messages that are pending no more. An accepted one counts in the rollups from now on.
async fn release_quota(conn: &mut AsyncPgConnection, account: AccountId, changed: &[&LockedMessage]) -> DbResult<()> {
    let mut released: BTreeMap<Date, i64> = BTreeMap::new();
    for locked in changed {
        let was_pending = locked.status_before == MessageStatus::Pending;
        if let Some(month) = locked
            .message
            .reserved_month()
            .filter(|_| was_pending && !locked.is_pending())
        {
            *released.entry(month).or_default() += 1;
        }
    }
    for (month, count) in released {
        usage::change(conn, account, month, 0, -count).await?;
    }
    Ok(())
}

/// Writes changed messages with their rollups and webhook events. A WhatsApp message id that another message has stays
/// with that message. Returns the change of costs, for `check_alerts`.
pub(crate) async fn write_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    locked: &mut [LockedMessage],
) -> DbResult<CostRollupDelta> {
    set_rates(conn, account, locked).await?;
    let changed: Vec<&LockedMessage> = locked.iter().filter(|locked| locked.changed).collect();
    if changed.is_empty() {
        return Ok(CostRollupDelta::default());
    }
    let ids: Vec<Uuid> = changed.iter().map(|locked| locked.message.id.0).collect();
    let statuses: Vec<String> = changed
        .iter()
        .map(|locked| locked.message.status.as_str().to_owned())
        .collect();
    let wa_message_ids: Vec<Option<String>> = changed
        .iter()
        .map(|locked| locked.message.wa_message_id.clone())
        .collect();
    let errors: Vec<Option<String>> = changed.iter().map(|locked| locked.error_message.clone()).collect();
    let pricings = changed
        .iter()
        .map(|locked| locked.pricing.as_ref().map(StatusPricing::to_stored));
    sql(format!(
        "UPDATE messages m SET status = w.status, error_message = coalesce(w.error_message, m.error_message),
           pricing = w.pricing,
           wa_message_id = CASE WHEN m.wa_message_id IS NULL AND NOT EXISTS (SELECT 1 FROM messages o
             WHERE o.account_id = $1 AND o.wa_message_id = w.wa_message_id
               AND o.created_at >= w.since) THEN w.wa_message_id
             ELSE m.wa_message_id END
         FROM {keys} w WHERE m.account_id = $1 AND m.id = w.id AND m.created_at = w.created_at",
        keys = key_rows(
            "$2, $3, $4, $5, $6, $7, $8",
            "id, status, wa_message_id, error_message, pricing, created_at, since"
        ),
    ))
    .bind(account)
    .bind(ids)
    .bind(statuses)
    .bind(wa_message_ids)
    .bind(errors)
    .bind(pricings.collect::<Vec<_>>())
    .bind(collect_column(&changed, |locked| locked.message.created_at))
    .bind(collect_column(&changed, |locked| {
        locked.message.created_at.saturating_sub(CLOCK_DIFFERENCE)
    }))
    .execute(&mut *conn)
    .await?;
    let mut delta = MessageRollupDelta::default();
    // What the business writes in its own app is in no rollup.
    let counted = changed
        .iter()
        .filter(|locked| locked.message.origin != MessageOrigin::BusinessApp);
    for LockedMessage {
        message, status_before, ..
    } in counted
    {
        delta.advance(message.created_at, *status_before, message.status);
    }
    count_messages(conn, account, &delta).await?;
    release_quota(conn, account, &changed).await?;
    let costs = cost_delta(&changed);
    count_costs(conn, account, &costs).await?;
    let events: Vec<MessageStatusEvent> = changed.into_iter().filter_map(LockedMessage::status_event).collect();
    outbox::append(conn, account, &MessageStatusEvent::events(&events)).await?;
    Ok(costs)
}

fn cost_delta(changed: &[&LockedMessage]) -> CostRollupDelta {
    let mut costs = CostRollupDelta::default();
    for message in changed {
        let (before, after) = message.costs();
        costs.replace(before, after);
    }
    costs
}

/// Fails messages whose outcome was never confirmed.
pub(super) async fn fail_pending(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    pending: &[(Uuid, OffsetDateTime)],
) -> DbResult<u64> {
    let mut locked = lock_messages(conn, account, pending, vec![], OffsetDateTime::UNIX_EPOCH).await?;
    // A status update may have resolved them since they were found.
    locked.retain(|message| message.is_pending());
    locked
        .iter_mut()
        .for_each(|message| message.advance(SendStatus::Failed, Some(NEVER_CONFIRMED)));
    write_messages(conn, account, &mut locked).await?;
    Ok(u64::try_from(locked.len()).unwrap_or(u64::MAX))
}
