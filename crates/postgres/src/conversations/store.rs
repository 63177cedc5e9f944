//! The store of conversations and their messages.

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::dsl;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::analytics::MessageRollupDelta;
use recado_domain::conversations::{
    BegunReply, ContactRequestOutcome, Conversation, ConversationEvent, ConversationQuery, ConversationStatus,
    ConversationStore, Direction, Message, MessageOrigin, MessageStatus, QuotedMessage, ReplyDraft, ReplyFacts,
    ReplyResult, transition,
};
use recado_domain::messaging::{AddressKind, SendStatus};
use recado_domain::shared::{AccountId, ConversationId, CursorPage, CursorQuery, MessageId, StoreError, TimeCursor};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::contact_requests;
use super::messages::{
    COLUMNS, DIRECT_COLUMNS, MessageRow, fail_pending, find, lock_messages, message_written_since, reply_written_since,
    write_messages,
};
use crate::analytics::{count_conversations_of, count_messages};
use crate::campaigns::usage;
use crate::contacts::{opt_out_now, set_wa_ids};
use crate::errors::{DbResult, parse_enum};
use crate::media::keep_uploads;
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::{conversations, messages};
use crate::sql::{FENCE, Sql, limit_hint, sql};
use crate::transactions::in_tenant;
use crate::whatsapp::{USER_ID_SCOPE, find_profile};

#[derive(Clone, Debug)]
pub struct PgConversations {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgConversations {
    /// `owner` finds replies without a known outcome, across all accounts.
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = conversations, check_for_backend(Pg))]
struct ConversationRow {
    id: Uuid,
    contact_id: Uuid,
    status: String,
    last_message_at: OffsetDateTime,
    created_at: OffsetDateTime,
}

impl TryFrom<ConversationRow> for Conversation {
    type Error = StoreError;

    fn try_from(row: ConversationRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            status: parse_enum(&row.status)?,
            last_message_at: row.last_message_at,
            created_at: row.created_at,
        })
    }
}

/// The facts on which the decision about a reply is based.
#[derive(QueryableByName)]
struct FactsRow {
    #[diesel(embed)]
    conversation: ConversationRow,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_inbound_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    profile_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    quoted_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    quoted_wa_message_id: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

const CONVERSATION: &str = "v.id, v.contact_id, v.status, v.last_message_at, v.created_at";

/// Conversations of contacts that are not deleted. Each contact is looked up by its key, as in a campaign's list of
/// sends.
fn live_conversations() -> String {
    format!(
        "conversations v JOIN LATERAL (SELECT * FROM contacts k
           WHERE k.account_id = v.account_id AND k.id = v.contact_id {FENCE}) c ON c.deleted_at IS NULL"
    )
}

fn page_query(account: AccountId, query: &ConversationQuery) -> Sql<'static> {
    let after = query.page.cursor.unwrap_or(TimeCursor::LAST);
    let status_condition = if query.status.is_some() {
        " AND v.status = $5"
    } else {
        ""
    };
    let ordered = format!(
        "SELECT {CONVERSATION} FROM {live}
         WHERE v.account_id = $1 AND (v.last_message_at, v.id) < ($2, $3){status_condition}
         ORDER BY v.last_message_at DESC, v.id DESC",
        live = live_conversations(),
    );
    let page = sql(limit_hint(ordered, "$4"))
        .bind(account)
        .bind(after.at)
        .bind(after.id)
        .bind(query.page.limit + 1);
    match query.status {
        None => page,
        Some(status) => page.bind(status.as_str()),
    }
}

fn conversation_query<'a>(account: AccountId, id: ConversationId, lock: &str) -> Sql<'a> {
    sql(format!(
        "SELECT {CONVERSATION} FROM {live} WHERE v.account_id = $1 AND v.id = $2 {lock}",
        live = live_conversations(),
    ))
    .bind(account)
    .bind(id)
}

async fn find_conversation(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ConversationId,
    lock: &str,
) -> DbResult<Option<Conversation>> {
    let row: Option<ConversationRow> = conversation_query(account, id, lock)
        .get_result(conn)
        .await
        .optional()?;
    Ok(row.map(Conversation::try_from).transpose()?)
}

/// A page of the conversation's own messages, and one of its direct messages, merged. Each is read in the order of its
/// index. The newest month is read first, and earlier months only if the page is not full. Of a month after the cursor
/// one index entry is read.
fn messages_query<'a>(account: AccountId, id: ConversationId, page: &CursorQuery<TimeCursor>) -> Sql<'a> {
    let after = page.cursor.unwrap_or(TimeCursor::LAST);
    let own = format!(
        "SELECT {COLUMNS} FROM messages m
         WHERE m.account_id = $1 AND m.conversation_id = $2 AND (m.created_at, m.id) < ($3, $4)
         ORDER BY m.created_at DESC, m.id DESC"
    );
    let direct = format!(
        "SELECT {DIRECT_COLUMNS} FROM direct_messages m
         WHERE m.account_id = $1 AND m.conversation_id = $2 AND (m.sent_at, m.id) < ($3, $4)
         ORDER BY m.sent_at DESC, m.id DESC"
    );
    let (own, direct) = (limit_hint(own, "$5"), limit_hint(direct, "$5"));
    sql(format!(
        "SELECT * FROM (({own}) UNION ALL ({direct})) AS shown ORDER BY created_at DESC, id DESC LIMIT $5"
    ))
    .bind(account)
    .bind(id)
    .bind(after.at)
    .bind(after.id)
    .bind(page.limit + 1)
}

/// Writes a locked conversation and updates the counters if its status changed.
async fn write_conversation(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    before: ConversationStatus,
    now: &Conversation,
) -> DbResult<()> {
    diesel::update(conversations::table.find((account.0, now.id.0)))
        .set((
            conversations::status.eq(now.status.as_str()),
            conversations::last_message_at.eq(now.last_message_at),
            conversations::updated_at.eq(dsl::now),
        ))
        .execute(&mut *conn)
        .await?;
    let changes = [(before, -1), (now.status, 1)];
    count_conversations_of(conn, account, now.contact_id, &changes).await
}

async fn set_status(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ConversationId,
    status: ConversationStatus,
) -> DbResult<Option<Conversation>> {
    let Some(before) = find_conversation(conn, account, id, "FOR NO KEY UPDATE OF v").await? else {
        return Ok(None);
    };
    let now = Conversation {
        status: transition(before.status, status.into()),
        ..before
    };
    write_conversation(conn, account, before.status, &now).await?;
    Ok(Some(now))
}

async fn reply_facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ConversationId,
    quoted: Option<MessageId>,
) -> DbResult<Option<ReplyFacts>> {
    let query = sql(format!(
        "SELECT {CONVERSATION}, v.last_inbound_at, c.phone, c.wa_id, now() AS now,
           CASE WHEN c.phone IS NULL THEN fitting_user_id($1, c.id, c.wa_user_id, n.scope) END AS wa_user_id,
           q.id AS quoted_id, q.wa_message_id AS quoted_wa_message_id, n.id AS profile_id
         FROM {live} LEFT JOIN LATERAL (SELECT p.id, {USER_ID_SCOPE} AS scope FROM whatsapp_profiles p
           WHERE p.account_id = $1
           ORDER BY p.id <> v.profile_id, p.verification_state <> 'verified', p.created_at, p.id LIMIT 1) n ON true
         LEFT JOIN LATERAL (SELECT m.id, m.wa_message_id FROM messages m
           WHERE m.account_id = $1 AND m.id = $3 AND m.conversation_id = v.id AND m.created_at >= $4
           UNION ALL SELECT d.id, d.wa_message_id FROM direct_messages d
           WHERE d.account_id = $1 AND d.id = $3 AND d.conversation_id = v.id) q ON true
         WHERE v.account_id = $1 AND v.id = $2",
        live = live_conversations(),
    ))
    .bind(account)
    .bind(id)
    .bind(quoted)
    .bind(quoted.map_or(OffsetDateTime::UNIX_EPOCH, |quoted| message_written_since(quoted.0)));
    let row: Option<FactsRow> = query.get_result(&mut *conn).await.optional()?;
    let Some(row) = row else { return Ok(None) };
    let profile = match row.profile_id {
        None => None,
        Some(profile) => find_profile(conn, account, profile.into()).await?,
    };
    Ok(Some(ReplyFacts {
        conversation: row.conversation.try_into()?,
        last_inbound_at: row.last_inbound_at,
        phone: row.phone,
        wa_id: row.wa_id,
        wa_user_id: row.wa_user_id,
        profile,
        quoted: row.quoted_id.map(|id| QuotedMessage {
            id: id.into(),
            wa_message_id: row.quoted_wa_message_id,
        }),
        now: row.now,
    }))
}

/// Inserts a pending reply. Locks the conversation first, as callbacks of the same contact do, so that the two cannot
/// deadlock.
async fn begin_reply(conn: &mut AsyncPgConnection, account: AccountId, reply: &ReplyDraft) -> DbResult<BegunReply> {
    let Some(before) = find_conversation(conn, account, reply.conversation_id, "FOR NO KEY UPDATE OF v").await? else {
        return Ok(BegunReply::Missing);
    };
    let now = Conversation {
        status: transition(before.status, ConversationEvent::Message),
        last_message_at: before.last_message_at.max(reply.created_at),
        ..before
    };
    write_conversation(conn, account, before.status, &now).await?;
    let media = reply.content.media_id();
    let values = (
        messages::account_id.eq(account.0),
        messages::id.eq(reply.id.0),
        messages::conversation_id.eq(reply.conversation_id.0),
        messages::direction.eq(Direction::Outbound.as_str()),
        messages::type_.eq(reply.content.message_type()),
        messages::text.eq(reply.text.as_deref()),
        messages::status.eq(MessageStatus::Pending.as_str()),
        messages::payload.eq(
            json!({ "profile_id": reply.profile_id, "template_id": reply.template_id,
            "content": reply.content }),
        ),
        messages::created_at.eq(reply.created_at),
        messages::origin.eq(MessageOrigin::Reply.as_str()),
        messages::caption.eq(reply.content.caption()),
        messages::by_user_id.eq(reply.address == AddressKind::UserId),
        messages::context.eq(reply.context.as_ref().map(|context| json!(context))),
        messages::media_ids.eq(media.map(|id| vec![id.0])),
    );
    let insert = diesel::insert_into(messages::table).values(values);
    insert.execute(&mut *conn).await?;
    let mut delta = MessageRollupDelta::default();
    delta.add(reply.created_at, MessageStatus::Pending);
    count_messages(conn, account, &delta).await?;
    if let Some(media) = media {
        keep_uploads(conn, account, &BTreeMap::from([(media, reply.created_at)])).await?;
    }
    let stored: MessageRow = sql(format!(
        "SELECT {COLUMNS} FROM messages m WHERE m.account_id = $1 AND m.id = $2 AND m.created_at = $3"
    ))
    .bind(account)
    .bind(reply.id)
    .bind(reply.created_at)
    .get_result(&mut *conn)
    .await?;
    let message = Message::try_from(stored)?;
    match reply.monthly_limit {
        Some(limit) if !reserve(conn, account, &message, limit).await? => Ok(BegunReply::QuotaExceeded),
        _ => Ok(BegunReply::Stored(Box::new(message))),
    }
}

/// Reserves one message of the month's quota for a template reply. False: the quota is exceeded, and the caller MUST
/// roll back.
async fn reserve(conn: &mut AsyncPgConnection, account: AccountId, message: &Message, limit: i64) -> DbResult<bool> {
    let Some(month) = message.reserved_month() else {
        return Ok(true);
    };
    usage::reserve(conn, account, month, 1).await?;
    Ok(usage::used(conn, account, month).await? <= limit)
}

/// The lock of the conversation lets a concurrent request wait, and then find this one.
async fn begin_contact_request(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    request: &ReplyDraft,
) -> DbResult<ContactRequestOutcome> {
    find_conversation(conn, account, request.conversation_id, "FOR NO KEY UPDATE OF v").await?;
    if contact_requests::is_asked(conn, account, request).await? {
        return Ok(ContactRequestOutcome::AskedAlready);
    }
    Ok(match begin_reply(conn, account, request).await? {
        BegunReply::Stored(stored) => ContactRequestOutcome::Stored(stored),
        BegunReply::Missing | BegunReply::QuotaExceeded => ContactRequestOutcome::Missing,
    })
}

async fn record_reply(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: MessageId,
    result: &ReplyResult,
) -> DbResult<Option<Message>> {
    let since = reply_written_since(id.0);
    let mut locked = lock_messages(conn, account, &[(id.0, since)], vec![], since).await?;
    let Some(message) = find(&mut locked, Some(id.0), "") else {
        return Ok(None);
    };
    match result {
        ReplyResult::Sent { message_id, .. } => {
            message.set_message_id(message_id);
            message.advance(SendStatus::Sent, None);
        }
        ReplyResult::Failed { message: reason, .. } => message.advance(SendStatus::Failed, Some(reason)),
        ReplyResult::Unknown => {}
    }
    write_messages(conn, account, &mut locked).await?;
    let Some(message) = locked.pop() else {
        return Ok(None);
    };
    let contact = message.contact();
    match result {
        ReplyResult::Sent { wa_id: Some(wa_id), .. } => {
            set_wa_ids(conn, account, vec![contact], vec![wa_id.clone()]).await?;
        }
        ReplyResult::Failed { opted_out: true, .. } => opt_out_now(conn, account, &[contact]).await?,
        ReplyResult::Sent { .. } | ReplyResult::Failed { .. } | ReplyResult::Unknown => {}
    }
    Ok(Some(message.into_message()))
}

#[derive(QueryableByName)]
#[diesel(table_name = messages, check_for_backend(Pg))]
struct PendingRow {
    account_id: Uuid,
    id: Uuid,
    created_at: OffsetDateTime,
}

#[async_trait]
impl ConversationStore for PgConversations {
    async fn list(
        &self,
        account: AccountId,
        query: &ConversationQuery,
    ) -> Result<CursorPage<Conversation>, StoreError> {
        let statement = page_query(account, query);
        let rows: Vec<ConversationRow> = self.tenants.in_index_order().read_rows(account, statement).await?;
        let rows = rows.into_iter().map(Conversation::try_from);
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(CursorPage::cut(rows, query.page.limit, |row| TimeCursor {
            at: row.last_message_at,
            id: row.id.0,
        }))
    }

    async fn messages(
        &self,
        account: AccountId,
        id: ConversationId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<Option<CursorPage<Message>>, StoreError> {
        let conversation = conversation_query(account, id, "");
        let messages = messages_query(account, id, query);
        let (found, rows) = self
            .tenants
            .in_index_order()
            .read_both::<ConversationRow, MessageRow, _, _>(account, conversation, messages)
            .await?;
        if found.is_empty() {
            return Ok(None);
        }
        let rows = rows.into_iter().map(Message::try_from);
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(CursorPage::cut(rows, query.limit, |row| TimeCursor {
            at: row.created_at,
            id: row.id.0,
        })))
    }

    async fn set_status(
        &self,
        account: AccountId,
        id: ConversationId,
        status: ConversationStatus,
    ) -> Result<Option<Conversation>, StoreError> {
        in_tenant!(self.tenants, account, |conn| set_status(conn, account, id, status))
    }

    async fn reply_facts(
        &self,
        account: AccountId,
        id: ConversationId,
        quoted: Option<MessageId>,
    ) -> Result<Option<ReplyFacts>, StoreError> {
        in_tenant!(self.tenants, account, |conn| reply_facts(conn, account, id, quoted))
    }

    async fn begin_reply(&self, account: AccountId, reply: &ReplyDraft) -> Result<BegunReply, StoreError> {
        in_tenant!(self.tenants, account, |conn| begin_reply(conn, account, reply),
            unless BegunReply::QuotaExceeded)
    }

    async fn begin_contact_request(
        &self,
        account: AccountId,
        request: &ReplyDraft,
    ) -> Result<ContactRequestOutcome, StoreError> {
        in_tenant!(self.tenants, account, |conn| begin_contact_request(
            conn, account, request
        ))
    }

    async fn template_language(&self, account: AccountId) -> Result<Option<String>, StoreError> {
        in_tenant!(self.tenants, account, |conn| contact_requests::template_language(
            conn, account
        ))
    }

    async fn record_reply(
        &self,
        account: AccountId,
        id: MessageId,
        result: &ReplyResult,
    ) -> Result<Option<Message>, StoreError> {
        in_tenant!(self.tenants, account, |conn| record_reply(conn, account, id, result))
    }

    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError> {
        let query = sql("SELECT account_id, id, created_at FROM messages
             WHERE status = 'pending' AND recorded_at <= now() - $1 * interval '1 microsecond'
             ORDER BY recorded_at LIMIT $2")
        .bind(ttl)
        .bind(limit);
        let mut pending: BTreeMap<AccountId, Vec<(Uuid, OffsetDateTime)>> = BTreeMap::new();
        for row in self.owner.rows::<PendingRow>(query).await? {
            let replies = pending.entry(row.account_id.into()).or_default();
            replies.push((row.id, row.created_at));
        }
        let mut failed = 0;
        for (account, replies) in pending {
            failed += in_tenant!(self.tenants, account, |conn| fail_pending(conn, account, &replies))?;
        }
        Ok(failed)
    }
}
