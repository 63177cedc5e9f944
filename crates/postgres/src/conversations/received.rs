//! The messages of the inbox: those that inbound messages quote, and the received ones.

use std::collections::HashMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::{
    InboundEvent, InboundItem, MessageContext, NewMessage, ReceivedMessage, received_event,
};
use recado_domain::shared::{AccountId, MessageId, ProfileId};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::outbox;
use crate::sql::{FENCE, collect_column, key_rows, sql, unknown_limit};

/// A message with WhatsApp's id of it.
#[derive(QueryableByName)]
pub(super) struct StoredMessageRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    wa_message_id: String,
}

pub(super) fn by_wa_message_id(rows: Vec<StoredMessageRow>) -> HashMap<String, MessageId> {
    rows.into_iter().map(|row| (row.wa_message_id, row.id.into())).collect()
}

/// How long a message can be quoted here: the partitions before it are not searched.
const QUOTED_FOR: Duration = Duration::days(90);

/// The stored messages that a batch quotes.
pub(super) async fn quoted_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    items: &[InboundItem],
) -> DbResult<HashMap<String, MessageId>> {
    let mut quoted: Vec<String> = Vec::new();
    let mut since: Option<OffsetDateTime> = None;
    for item in items {
        if let InboundEvent::Message(message) | InboundEvent::Echo(message) = &item.event
            && let Some(id) = &message.quoted
        {
            quoted.push(id.clone());
            let of_message = message.at.saturating_sub(QUOTED_FOR);
            since = Some(since.map_or(of_message, |since| since.min(of_message)));
        }
    }
    let Some(since) = since else {
        return Ok(HashMap::new());
    };
    let rows: Vec<StoredMessageRow> = sql(format!(
        "SELECT m.id, m.wa_message_id FROM {keys} k
         JOIN messages m ON m.account_id = $1 AND m.wa_message_id = k.wa_message_id AND m.created_at >= $3
         UNION ALL SELECT m.id, m.wa_message_id FROM {keys} k
         JOIN direct_messages m ON m.account_id = $1 AND m.wa_message_id = k.wa_message_id",
        keys = key_rows("$2", "wa_message_id"),
    ))
    .bind(account)
    .bind(quoted)
    .bind(since)
    .load(conn)
    .await?;
    Ok(by_wa_message_id(rows))
}

/// A stored message to whose event an endpoint subscribes.
#[derive(QueryableByName)]
struct ReceivedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    profile_id: Option<Uuid>,
}

pub(super) async fn write_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    messages: &[NewMessage],
) -> DbResult<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let json_of = |value: Option<&MessageContext>| value.map(|context| json!(context));
    let rows: Vec<ReceivedRow> = sql(format!(
        include_str!("write_messages.sql"),
        fence = FENCE,
        limit = unknown_limit("count(*) FROM referred"),
    ))
    .bind(account)
    .bind(collect_column(messages, |new| new.id.0))
    .bind(collect_column(messages, |new| new.conversation_id.0))
    .bind(collect_column(messages, |new| new.direction.as_str().to_owned()))
    .bind(collect_column(messages, |new| new.message.kind.clone()))
    .bind(collect_column(messages, |new| new.message.text.clone()))
    .bind(collect_column(messages, |new| new.status().as_str().to_owned()))
    .bind(collect_column(messages, |new| new.message.wa_message_id.clone()))
    .bind(collect_column(messages, |new| new.message.payload.clone()))
    .bind(collect_column(messages, |new| {
        new.message.referral.as_ref().map(|referral| json!(referral))
    }))
    .bind(collect_column(messages, |new| new.message.at))
    .bind(collect_column(messages, |new| new.origin().as_str().to_owned()))
    .bind(collect_column(messages, |new| new.message.caption.clone()))
    .bind(collect_column(messages, |new| new.message.interactive.clone()))
    .bind(collect_column(messages, |new| json_of(new.context.as_ref())))
    .bind(collect_column(messages, |new| new.file.as_ref().map(|(id, _)| id.0)))
    .load(&mut *conn)
    .await?;
    let rows: HashMap<Uuid, ReceivedRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let received = messages.iter().filter_map(|new| {
        rows.get(&new.id.0).map(|row| ReceivedMessage {
            profile_id: row.profile_id.map(ProfileId),
            new,
        })
    });
    outbox::append(conn, account, &[received_event(received.collect())]).await
}
