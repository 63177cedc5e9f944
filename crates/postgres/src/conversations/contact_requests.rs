//! Contact requests: at most one in `REQUEST_INTERVAL` to a contact, and the requests that inbound cards answer.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::{ANSWERED_WITHIN, InboundEvent, InboundItem, Inbox, REQUEST_INTERVAL, ReplyDraft};
use recado_domain::shared::{AccountId, ConversationId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{FlagRow, Sql, TextRow, key_rows, sql, uuids};

/// The condition for a request that has not failed. The statement MUST use the alias `m` for the table.
const IS_REQUEST: &str = "m.type = 'contact_request' AND m.status <> 'failed'";

/// Whether the contact was asked within `REQUEST_INTERVAL` before the request.
pub(super) async fn is_asked(conn: &mut AsyncPgConnection, account: AccountId, request: &ReplyDraft) -> DbResult<bool> {
    let asked: FlagRow = sql(format!(
        "SELECT EXISTS (SELECT 1 FROM messages m
           WHERE m.account_id = $1 AND m.conversation_id = $2 AND m.created_at > $3 AND {IS_REQUEST}) AS yes"
    ))
    .bind(account)
    .bind(request.conversation_id.0)
    .bind(request.created_at.saturating_sub(REQUEST_INTERVAL))
    .get_result(conn)
    .await?;
    Ok(asked.yes)
}

pub(super) async fn template_language(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<Option<String>> {
    let row: Option<TextRow> = sql("SELECT language AS text FROM message_templates
         WHERE account_id = $1 AND deleted_at IS NULL
         GROUP BY language ORDER BY count(*) DESC, max(created_at) DESC, language LIMIT 1")
    .bind(account)
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(|row| row.text))
}

#[derive(QueryableByName)]
struct RequestRow {
    #[diesel(sql_type = SqlUuid)]
    conversation_id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

/// Loads the contact requests that the cards of the batch may answer. Without a card this reads nothing.
pub(super) async fn load_asked(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    inbox: Inbox,
    items: &[InboundItem],
    scope: &str,
) -> DbResult<Inbox> {
    let conversations = inbox.answering(items, scope);
    let earliest = items.iter().filter_map(card_time).min();
    let Some(earliest) = earliest.filter(|_| !conversations.is_empty()) else {
        return Ok(inbox);
    };
    let since = earliest.saturating_sub(ANSWERED_WITHIN);
    let rows: Vec<RequestRow> = requests(account, &conversations, since).load(conn).await?;
    let requests = rows.into_iter().map(|row| (row.conversation_id.into(), row.created_at));
    Ok(inbox.asked(requests.collect()))
}

fn card_time(item: &InboundItem) -> Option<OffsetDateTime> {
    match &item.event {
        InboundEvent::Message(message) if message.answered_wa_id.is_some() => Some(message.at),
        _ => None,
    }
}

fn requests<'a>(account: AccountId, conversations: &[ConversationId], since: OffsetDateTime) -> Sql<'a> {
    sql(format!(
        "SELECT m.conversation_id, m.created_at FROM {keys} k
         JOIN messages m ON m.account_id = $1 AND m.conversation_id = k.conversation_id AND m.created_at >= $3
         WHERE {IS_REQUEST}",
        keys = key_rows("$2", "conversation_id"),
    ))
    .bind(account)
    .bind(uuids(conversations))
    .bind(since)
}
