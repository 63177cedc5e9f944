//! Conversations and messages.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use super::{ConversationStatus, Direction, MessageStatus, ReplyRefusal, Sender};
use crate::campaigns::Pricing;
use crate::contacts::Referral;
use crate::shared::schema::Timestamp;
use crate::shared::{
    ContactId, ConversationId, CursorQuery, FieldErrors, GatewayError, MessageId, StoreError, TimeCursor,
    redacted_debug, timestamp,
};

/// What is said with one contact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Conversation {
    /// The conversation's id.
    pub id: ConversationId,
    /// The contact it is held with; a contact has one conversation.
    pub contact_id: ContactId,
    /// Whether somebody still looks after it.
    pub status: ConversationStatus,
    /// When the latest message was written, by either side.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub last_message_at: OffsetDateTime,
    /// When the conversation began here.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// A message of a conversation.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub struct Message {
    /// The message's id.
    pub id: MessageId,
    /// The conversation that it belongs to.
    pub conversation_id: ConversationId,
    /// Who wrote it.
    pub direction: Direction,
    /// WhatsApp's word for its kind, for example `text`, `image` or `button`.
    #[schemars(example = &"text")]
    #[serde(rename = "type")]
    pub kind: String,
    /// What can be read of it: the text, a caption, a button's label; null where nothing can.
    #[schemars(example = "Oi! Ainda tem o bolo de cenoura?")]
    pub text: Option<String>,
    /// What became of it.
    pub status: MessageStatus,
    /// WhatsApp's id of the message; null while it is not known.
    #[schemars(example = "wamid.HBgNNTUxMTk2MTIzNDU2NxUCABIYFDNBNjY0")]
    pub wa_message_id: Option<String>,
    /// The ad or post that the message came from; null for every other message.
    pub referral: Option<Referral>,
    /// What WhatsApp says about the price of the message; null before a status named it, and of inbound messages.
    pub pricing: Option<Pricing>,
    /// When it was written, by the clock of whoever wrote it.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(Message {
    id,
    conversation_id,
    direction,
    kind,
    status
});

/// Asks for conversations, the one with the latest message first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationQuery {
    /// Only these.
    pub status: Option<ConversationStatus>,
    /// Which part of the list.
    pub page: CursorQuery<TimeCursor>,
}

/// What the platform tells of a sender, in the order of the telling.
#[derive(Clone, Debug, PartialEq)]
pub enum InboundEvent {
    /// They wrote.
    Message(InboundMessage),
    /// They want marketing messages no more, or again.
    Preference {
        /// Who.
        sender: Sender,
        /// Whether the contact accepts marketing messages.
        opted_in: bool,
        at: OffsetDateTime,
    },
    /// They have another number, or another user id.
    NumberChanged {
        /// Who, by what they were known as.
        sender: Sender,
        /// What they are known as now.
        now: Sender,
    },
}

/// A message from outside.
#[derive(Clone, PartialEq)]
pub struct InboundMessage {
    /// The platform's id of it; the same message may come any number of times.
    pub wa_message_id: String,
    /// Who wrote it.
    pub sender: Sender,
    /// When they wrote it, by the platform's clock.
    pub at: OffsetDateTime,
    /// The platform's word for its kind.
    pub kind: String,
    /// What can be read of it.
    pub text: Option<String>,
    /// Whether an opt-out word in `text` counts: the contact typed it, or pressed a template's button with this label.
    pub can_opt_out: bool,
    /// The ad or post that led to the message.
    pub referral: Option<Box<Referral>>,
    /// What else it holds: ids of media, a location, what it answers.
    pub payload: Value,
}

redacted_debug!(InboundMessage { at, kind, can_opt_out });

/// Why an operation on conversations did not happen.
#[derive(Debug, Error)]
pub enum ConversationError {
    /// No such conversation in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The state of things does not allow a reply.
    #[error(transparent)]
    Refused(#[from] ReplyRefusal),
    /// The platform did not take the reply.
    #[error(transparent)]
    Gateway(GatewayError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ConversationError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
