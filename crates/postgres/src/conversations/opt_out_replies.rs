//! The account's opt-out words, and its replies to opt-outs: direct messages that commit with the opt-out.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::AsyncPgConnection;
use recado_domain::conversations::{
    InboundEvent, InboundItem, OptOutAnswer, OptOutReply, OptOutRules, OptOutWord, ReceivingNumber,
};
use recado_domain::direct_messages::{AutomaticText, NewDirectMessage};
use recado_domain::messaging::WINDOW;
use recado_domain::shared::{AccountId, StoreError, UserId};
use serde_json::Value;
use uuid::Uuid;

use crate::deterministic_ids;
use crate::direct_messages::{insert_messages, wake_queue};
use crate::errors::{DbResult, corrupt};
use crate::settings::WordTimes;

/// The columns of `account_settings`.
#[derive(QueryableByName)]
pub(super) struct OptOutRow {
    #[diesel(sql_type = Nullable<Jsonb>)]
    opt_out_words: Option<Value>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    opt_out_words_since: Option<Value>,
    #[diesel(sql_type = Nullable<Text>)]
    opt_out_reply: Option<String>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    opt_out_reply_by: Option<Uuid>,
}

impl TryFrom<OptOutRow> for OptOutRules {
    type Error = StoreError;

    fn try_from(row: OptOutRow) -> Result<Self, StoreError> {
        let words: Option<Vec<String>> = row
            .opt_out_words
            .map(serde_json::from_value)
            .transpose()
            .map_err(corrupt)?;
        let words = words.unwrap_or_default().into_iter();
        let since = WordTimes::stored(row.opt_out_words_since)?;
        let words = words.map(|text| OptOutWord {
            since: since.of(&text),
            text,
        });
        let set_by = UserId(row.opt_out_reply_by.unwrap_or_default());
        Ok(Self {
            words: words.collect(),
            reply: row.opt_out_reply.map(|text| OptOutReply { text, set_by }),
        })
    }
}

/// Locks the queue of the number if the batch may have a reply.
pub(super) async fn prepare(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    number: &ReceivingNumber,
    rules: &OptOutRules,
    items: &[InboundItem],
) -> DbResult<()> {
    let opt_out_at = |item: &InboundItem| match &item.event {
        InboundEvent::Message(message) => {
            let is_opt_out = message
                .text
                .as_deref()
                .is_some_and(|text| rules.is_opt_out(text, message.at));
            is_opt_out.then_some(message.at)
        }
        _ => None,
    };
    let first = items
        .iter()
        .filter_map(opt_out_at)
        .min()
        .filter(|_| rules.reply.is_some());
    match first.and_then(|at| at.checked_add(WINDOW)) {
        Some(ends) => wake_queue(conn, account, number.profile_id, number.now, ends).await,
        None => Ok(()),
    }
}

/// Queues the replies.
pub(super) async fn queue(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    number: &ReceivingNumber,
    reply: Option<OptOutReply>,
    answers: &[OptOutAnswer],
) -> DbResult<()> {
    let Some(reply) = reply.filter(|_| !answers.is_empty()) else {
        return Ok(());
    };
    let message = |answer: &OptOutAnswer| {
        let text = AutomaticText {
            contact: answer.contact_id,
            number: number.profile_id,
            text: reply.text.clone(),
            created_by: reply.set_by,
            expires_at: answer.window_ends_at,
        };
        let id = deterministic_ids::reply_id(answer.message_id.0, number.now);
        NewDirectMessage::automatic(id.into(), text, number.now)
    };
    let messages: Vec<NewDirectMessage> = answers.iter().map(message).collect();
    insert_messages(conn, account, &messages, number.now).await
}
