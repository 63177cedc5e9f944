//! Applies inbound events to an account in a fixed number of statements, whatever the size of the batch.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::analytics::MessageRollupDelta;
use recado_domain::conversations::{
    Consent, ContactIdentity, ConversationState, ConversationStatus, Direction, IdentityReport, InboundEvent,
    InboundItem, Inbox, InboxChanges, InboxKeys, InboxStore, MessageStatus, OptOutRules, ReceiveOutcome,
    ReceivingNumber,
};
use recado_domain::shared::{AccountId, ContactId, ConversationId, StoreError};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::contact_requests::load_asked;
use super::erased_senders;
use super::files::{change_message, insert_files};
use super::inbox_contacts::write_contacts;
use super::messages::CLOCK_DIFFERENCE;
use super::opt_out_replies::{self, OptOutRow};
use super::received::{StoredMessageRow, by_wa_message_id, quoted_messages, write_messages};
use crate::analytics::{count_contacts, count_conversations, count_messages};
use crate::contacts::user_ids;
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::{DbResult, parse_enum};
use crate::pool::TenantPool;
use crate::sql::{collect_column, key_rows, sql, unknown_limit};
use crate::transactions::in_tenant;
use crate::whatsapp::USER_ID_SCOPE;

/// Maximum tries to apply a batch when a concurrent transaction inserts the same new contact.
const MAX_ATTEMPTS: usize = 3;

#[derive(Clone)]
pub struct PgInbox {
    tenants: TenantPool,
    report: Arc<dyn IdentityReport>,
    erased: ErasedOptOuts,
}

impl PgInbox {
    pub fn new(tenants: TenantPool, report: Arc<dyn IdentityReport>) -> Self {
        let erased = ErasedOptOuts::default();
        Self {
            tenants,
            report,
            erased,
        }
    }

    /// New contacts of erased people who had opted out are opted out.
    #[must_use]
    pub fn with_erased_opt_outs(self, erased: ErasedOptOuts) -> Self {
        Self { erased, ..self }
    }
}

#[async_trait]
impl InboxStore for PgInbox {
    async fn receive(
        &self,
        account: AccountId,
        phone_number_id: &str,
        items: &[InboundItem],
    ) -> Result<ReceiveOutcome, StoreError> {
        let mut attempts_left = MAX_ATTEMPTS;
        loop {
            let result = in_tenant!(self.tenants, account, |conn| receive(
                conn,
                account,
                phone_number_id,
                items,
                &self.erased
            ));
            attempts_left -= 1;
            match result {
                Err(StoreError::Duplicate { .. }) if attempts_left > 0 => {}
                result => {
                    let (outcome, same_persons) = result?;
                    self.report.same_persons(same_persons);
                    return Ok(outcome);
                }
            }
        }
    }
}

#[derive(QueryableByName)]
struct ProfileRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Bool)]
    is_addressed: bool,
    #[diesel(sql_type = Bool)]
    is_verified: bool,
    /// Whether `last_inbound_at` is old enough to be written again.
    #[diesel(sql_type = Bool)]
    is_stale: bool,
    /// The scope of the user ids that the number reports.
    #[diesel(sql_type = Text)]
    scope: String,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
    #[diesel(embed)]
    opt_outs: OptOutRow,
}

#[derive(QueryableByName)]
struct ContactIdentityRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    same_person_as: Option<Uuid>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    opted_out_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    consent_at: Option<OffsetDateTime>,
}

impl From<ContactIdentityRow> for ContactIdentity {
    fn from(row: ContactIdentityRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            phone: row.phone,
            wa_id: row.wa_id,
            wa_user_id: row.wa_user_id,
            user_ids: Vec::new(),
            same_person_as: row.same_person_as.map(ContactId),
            consent: Consent {
                opted_out_at: row.opted_out_at,
                changed_at: row.consent_at,
            },
        }
    }
}

#[derive(QueryableByName)]
struct ErasingRow {
    /// A stored message. None: the batch has none, and this is the only row.
    #[diesel(embed)]
    message: Option<StoredMessageRow>,
    #[diesel(sql_type = Bool)]
    is_erasing: bool,
}

#[derive(QueryableByName)]
struct ConversationStateRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    profile_id: Option<Uuid>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Timestamptz)]
    last_message_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_inbound_at: Option<OffsetDateTime>,
}

impl TryFrom<ConversationStateRow> for ConversationState {
    type Error = StoreError;

    fn try_from(row: ConversationStateRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            profile_id: row.profile_id.map(Into::into),
            status: parse_enum(&row.status)?,
            last_message_at: row.last_message_at,
            last_inbound_at: row.last_inbound_at,
        })
    }
}

async fn receive(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    phone_number_id: &str,
    items: &[InboundItem],
    erased: &ErasedOptOuts,
) -> DbResult<(ReceiveOutcome, usize)> {
    let (number, opt_outs) = match lock_inbox(conn, account, phone_number_id).await? {
        Ok(found) => found,
        Err(outcome) => return Ok((outcome, 0)),
    };
    let (items, message_keys) = partition_keys(items, number.now);
    opt_out_replies::prepare(conn, account, &number, &opt_outs, &items).await?;
    let loaded = load_inbox(conn, account, &InboxKeys::of(&items), &message_keys, &number.scope).await?;
    let (inbox, statuses_before) = (loaded.inbox, loaded.statuses);
    let items = match loaded.is_erasing {
        true => erased_senders::remove(conn, account, items).await?,
        false => items,
    };
    let inbox = inbox.quoting(quoted_messages(conn, account, &items).await?);
    let inbox = load_asked(conn, account, inbox, &items, &number.scope).await?;
    let changes = inbox.with_opt_outs(opt_outs.clone()).apply(items, &number);
    write_contacts(conn, account, &changes, erased).await?;
    write_conversations(conn, account, &changes).await?;
    let deltas = CountDeltas::of(&changes, &statuses_before);
    insert_files(conn, account, (number.profile_id, phone_number_id), &changes.messages).await?;
    write_messages(conn, account, &changes.messages).await?;
    opt_out_replies::queue(conn, account, &number, opt_outs.reply, &changes.opt_out_answers).await?;
    let mut all_found = true;
    for change in &changes.message_changes {
        all_found &= change_message(conn, account, change, number.now).await?;
    }
    count_contacts(conn, account, None, deltas.new_contacts).await?;
    count_conversations(conn, account, &deltas.conversations).await?;
    count_messages(conn, account, &deltas.messages).await?;
    let outcome = match all_found {
        true => ReceiveOutcome::Received,
        false => ReceiveOutcome::ReceivedEarly,
    };
    Ok((outcome, changes.same_persons))
}

/// How long WhatsApp repeats a callback that was not accepted.
const REPEATED_FOR: Duration = Duration::days(7);

/// The WhatsApp id of a message, and the time before which no message with this id was written.
type MessageKey = (String, OffsetDateTime);

/// A message keeps the time that WhatsApp gave it. A time far in the future, for which no partition may exist, becomes
/// `now`. Returns the items, and the keys of their messages.
fn partition_keys(items: &[InboundItem], now: OffsetDateTime) -> (Vec<InboundItem>, Vec<MessageKey>) {
    let mut keys = Vec::new();
    let mut items = items.to_vec();
    for item in &mut items {
        let (InboundEvent::Message(message) | InboundEvent::Echo(message)) = &mut item.event else {
            continue;
        };
        let since = if message.at > now.saturating_add(CLOCK_DIFFERENCE) {
            message.at = now;
            now.saturating_sub(REPEATED_FOR)
        } else {
            // A message that was held was stored without the fraction of its second.
            message.at.saturating_sub(Duration::SECOND)
        };
        keys.push((message.wa_message_id.clone(), since));
    }
    (items, keys)
}

/// The changes of a batch to counters and rollups.
struct CountDeltas {
    new_contacts: i64,
    conversations: Vec<(ConversationStatus, i64)>,
    messages: MessageRollupDelta,
}

impl CountDeltas {
    /// `statuses_before` holds the earlier status of each existing conversation.
    fn of(changes: &InboxChanges, statuses_before: &HashMap<ConversationId, ConversationStatus>) -> Self {
        let mut conversations = Vec::new();
        for conversation in &changes.conversations {
            conversations.extend(statuses_before.get(&conversation.id).map(|&status| (status, -1)));
            conversations.push((conversation.status, 1));
        }
        let mut messages = MessageRollupDelta::default();
        // What the business writes in its own app counts towards no month, so it is in no rollup.
        for new in changes
            .messages
            .iter()
            .filter(|new| new.direction == Direction::Inbound)
        {
            messages.add(new.message.at, MessageStatus::Received);
        }
        Self {
            new_contacts: i64::try_from(changes.new_contacts.len()).unwrap_or(i64::MAX),
            conversations,
            messages,
        }
    }
}

/// Locks the account's numbers, so that its batches are applied one after the other. Otherwise two batches of a new
/// sender, or one batch twice, would both find no contact and both insert one. Returns the verified profile that has
/// the number: the lock also keeps it verified until the batch commits. Also returns the account's rules of opt-outs.
async fn lock_inbox(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    phone_number_id: &str,
) -> DbResult<Result<(ReceivingNumber, OptOutRules), ReceiveOutcome>> {
    let rows: Vec<ProfileRow> = sql(format!(
        "SELECT p.id, p.phone_number_id = $2 AS is_addressed, p.verification_state = 'verified' AS is_verified,
           p.last_inbound_at IS NULL OR p.last_inbound_at < now() - interval '10 seconds' AS is_stale,
           {USER_ID_SCOPE} AS scope, now() AS now, s.opt_out_words, s.opt_out_words_since,
           s.opt_out_reply, s.opt_out_reply_by
         FROM whatsapp_profiles p LEFT JOIN account_settings s ON s.account_id = p.account_id
         WHERE p.account_id = $1 ORDER BY p.id FOR NO KEY UPDATE OF p",
    ))
    .bind(account)
    .bind(phone_number_id)
    .load(&mut *conn)
    .await?;
    let Some(row) = rows.into_iter().find(|row| row.is_addressed) else {
        return Ok(Err(ReceiveOutcome::NoNumber));
    };
    if !row.is_verified {
        return Ok(Err(ReceiveOutcome::NotVerified));
    }
    if row.is_stale {
        sql("UPDATE whatsapp_profiles SET last_inbound_at = now() WHERE account_id = $1 AND id = $2")
            .bind(account)
            .bind(row.id)
            .execute(conn)
            .await?;
    }
    let number = ReceivingNumber {
        profile_id: row.id.into(),
        scope: row.scope,
        now: row.now,
    };
    Ok(Ok((number, row.opt_outs.try_into()?)))
}

/// Locks contacts by phone number, `wa_id` or user id, with those of the same persons. The outer condition checks the
/// keys of the contacts again, because another transaction may change them before the rows are locked. The user ids that
/// numbers reported change only under the lock of the inbox.
fn contacts_by_keys() -> String {
    let ids_by = |array: &str, column: &str| {
        format!(
            "SELECT c.id, false AS is_reported FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.{column} = k.value
             WHERE c.deleted_at IS NULL",
            keys = key_rows(array, "value")
        )
    };
    let reported_by = |condition: &str| {
        format!(
            "SELECT i.contact_id, true FROM {keys} k JOIN contact_identities i ON i.account_id = $1 AND {condition}",
            keys = key_rows("$4", "value")
        )
    };
    format!(
        "WITH found AS (SELECT i.id, bool_or(i.is_reported) AS is_reported
           FROM ({phones} UNION {wa_ids} UNION {user_ids} UNION {reported} UNION {parents}) i GROUP BY i.id {limit})
         SELECT c.id, c.name, c.phone, c.wa_id, c.wa_user_id, c.same_person_as, c.opted_out_at, c.consent_at
         FROM (SELECT f.id, bool_or(f.is_reported) AS is_reported FROM (
             SELECT f.id, f.is_reported FROM found f
             UNION ALL SELECT p.id, true FROM found f
             JOIN contacts o ON o.account_id = $1 AND o.id = f.id AND o.same_person_as IS NOT NULL
             CROSS JOIN LATERAL same_person_contacts($1, o.id) p (id) WHERE p.id <> f.id) f GROUP BY f.id) k
         JOIN contacts c ON c.account_id = $1 AND c.id = k.id
         WHERE c.deleted_at IS NULL
           AND (k.is_reported OR c.phone = ANY ($2) OR c.wa_id = ANY ($3) OR c.wa_user_id = ANY ($4))
         ORDER BY c.id FOR NO KEY UPDATE OF c",
        phones = ids_by("$2", "phone"),
        wa_ids = ids_by("$3", "wa_id"),
        user_ids = ids_by("$4", "wa_user_id"),
        reported = reported_by("i.scope = $5 AND i.wa_user_id = k.value"),
        parents = reported_by("i.parent_user_id = k.value"),
        limit = unknown_limit("cardinality($2) + cardinality($3) + 3 * cardinality($4)"),
    )
}

/// The rows that a batch may change.
struct LoadedInbox {
    inbox: Inbox,
    /// The statuses of the conversations.
    statuses: HashMap<ConversationId, ConversationStatus>,
    /// Whether the erasure of a contact is running.
    is_erasing: bool,
}

/// Loads and locks the contacts and conversations that the batch may change. An erasure that this waited for is visible
/// to its last statement.
async fn load_inbox(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    keys: &InboxKeys,
    message_keys: &[MessageKey],
    scope: &str,
) -> DbResult<LoadedInbox> {
    let contacts: Vec<ContactIdentityRow> = sql(contacts_by_keys())
        .bind(account)
        .bind(keys.phones.clone())
        .bind(keys.wa_ids.clone())
        .bind(keys.user_ids.clone())
        .bind(scope.to_owned())
        .load(&mut *conn)
        .await?;
    let mut contacts: Vec<ContactIdentity> = contacts.into_iter().map(ContactIdentity::from).collect();
    let mut reported = user_ids(conn, account, collect_column(&contacts, |contact| contact.id.0)).await?;
    for contact in &mut contacts {
        contact.user_ids = reported.remove(&contact.id).unwrap_or_default();
    }
    let conversations: Vec<ConversationStateRow> = sql(format!(
        "SELECT v.id, v.contact_id, v.profile_id, v.status, v.last_message_at, v.last_inbound_at
         FROM {keys} k JOIN conversations v ON v.account_id = $1 AND v.contact_id = k.contact_id
         ORDER BY v.id FOR NO KEY UPDATE OF v",
        keys = key_rows("$2", "contact_id"),
    ))
    .bind(account)
    .bind(contacts.iter().map(|contact| contact.id.0).collect::<Vec<_>>())
    .load(&mut *conn)
    .await?;
    let conversations = conversations.into_iter().map(ConversationState::try_from);
    let conversations: Vec<ConversationState> = conversations.collect::<Result<_, StoreError>>()?;
    let statuses = conversations
        .iter()
        .map(|conversation| (conversation.id, conversation.status))
        .collect();
    let stored: Vec<ErasingRow> = sql(format!(
        "SELECT m.id, m.wa_message_id, e.is_erasing
         FROM (SELECT EXISTS (SELECT FROM erasures WHERE account_id = $1 AND state = 'running') AS is_erasing) e
         LEFT JOIN (SELECT m.id, m.wa_message_id FROM {keys} k
           JOIN messages m ON m.account_id = $1 AND m.wa_message_id = k.wa_message_id
             AND m.created_at >= k.since) m ON true",
        keys = key_rows("$2, $3", "wa_message_id, since"),
    ))
    .bind(account)
    .bind(collect_column(message_keys, |(id, _)| id.clone()))
    .bind(collect_column(message_keys, |(_, since)| *since))
    .load(conn)
    .await?;
    let is_erasing = stored.iter().any(|row| row.is_erasing);
    let messages = stored.into_iter().filter_map(|row| row.message).collect();
    Ok(LoadedInbox {
        inbox: Inbox::new(contacts, conversations, by_wa_message_id(messages)),
        statuses,
        is_erasing,
    })
}

async fn write_conversations(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    InboxChanges { conversations, .. }: &InboxChanges,
) -> DbResult<()> {
    if conversations.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO conversations (account_id, id, contact_id, profile_id, status, last_message_at, last_inbound_at)
         SELECT $1, t.* FROM unnest($2, $3, $4, $5, $6, $7)
           AS t (id, contact_id, profile_id, status, last_message_at, last_inbound_at)
         ON CONFLICT (account_id, id) DO UPDATE SET profile_id = excluded.profile_id, status = excluded.status,
           last_message_at = excluded.last_message_at, last_inbound_at = excluded.last_inbound_at, updated_at = now()",
    )
    .bind(account)
    .bind(collect_column(conversations, |conversation| conversation.id.0))
    .bind(collect_column(conversations, |conversation| conversation.contact_id.0))
    .bind(collect_column(conversations, |conversation| {
        conversation.profile_id.map(Uuid::from)
    }))
    .bind(collect_column(conversations, |conversation| {
        conversation.status.as_str().to_owned()
    }))
    .bind(collect_column(conversations, |conversation| {
        conversation.last_message_at
    }))
    .bind(collect_column(conversations, |conversation| {
        conversation.last_inbound_at
    }))
    .execute(conn)
    .await?;
    Ok(())
}
