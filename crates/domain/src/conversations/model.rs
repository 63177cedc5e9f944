//! Conversations and messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::{Date, OffsetDateTime};

use super::{ConversationStatus, Direction, MessageStatus, Sender};
use crate::contacts::Referral;
use crate::direct_messages::{ContentKind, month_of};
use crate::media::{AnnouncedFile, MessageFile};
use crate::messaging::{AddressKind, Pricing};
use crate::shared::{
    ContactId, ConversationId, CursorQuery, MessageId, TimeCursor, redacted_debug, string_enum, timestamp,
};

/// The messages that an account and one contact exchange outside campaigns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub id: ConversationId,
    /// The contact of the conversation. A contact has one conversation.
    pub contact_id: ContactId,
    /// `open` while the conversation needs attention, `closed` when a member has closed it.
    pub status: ConversationStatus,
    pub last_message_at: OffsetDateTime,
    pub created_at: OffsetDateTime,
}

/// A message of a conversation.
#[derive(Clone, PartialEq)]
pub struct Message {
    pub id: MessageId,
    pub conversation_id: ConversationId,
    /// Who wrote the message: the contact (`inbound`) or the account (`outbound`).
    pub direction: Direction,
    /// WhatsApp's type of the message, for example `text`, `image` or `button`.
    pub kind: String,
    /// The readable text of the message: its text, a caption or a button's label.
    pub text: Option<String>,
    pub status: MessageStatus,
    /// Who caused the message to be written.
    pub origin: MessageOrigin,
    /// WhatsApp's id of the message. None until WhatsApp accepts the message.
    pub wa_message_id: Option<String>,
    /// The files of the message.
    pub media: Vec<MessageFile>,
    /// The text below a file.
    pub caption: Option<String>,
    /// What the contact pressed or filled in.
    pub interactive: Option<Value>,
    /// The message that this one quotes.
    pub context: Option<MessageContext>,
    /// When the author revoked the message. Its text and files are gone.
    pub deleted_at: Option<OffsetDateTime>,
    /// The ad or post that led to the message.
    pub referral: Option<Referral>,
    /// The price that WhatsApp reports for the message. None until a status update contains one, and for inbound
    /// messages.
    pub pricing: Option<Pricing>,
    /// The kind of address that a reply or direct message left to. None for other messages.
    pub address: Option<AddressKind>,
    /// When the message was written, by the clock of the side that wrote it.
    pub created_at: OffsetDateTime,
}

redacted_debug!(Message {
    id,
    conversation_id,
    direction,
    kind,
    status,
    origin
});

impl Message {
    /// The month whose quota holds a reservation for the message while it is pending. Only a template reply has one.
    pub fn reserved_month(&self) -> Option<Date> {
        let is_template_reply = self.origin == MessageOrigin::Reply && self.kind == ContentKind::Template.as_str();
        is_template_reply.then(|| month_of(self.created_at))
    }
}

string_enum! {
    /// Where a message was written.
    MessageOrigin {
        /// By the contact.
        Contact = "contact",
        /// As a reply in Recado.
        Reply = "reply",
        /// By an API call for one message.
        Api = "api",
        /// In the business's own WhatsApp app.
        BusinessApp = "business_app",
    }
}

/// The message that another one quotes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageContext {
    /// The quoted message of the conversation; null if it is unknown.
    pub message_id: Option<MessageId>,
    /// WhatsApp's id of the quoted message.
    #[schemars(example = &"wamid.HBgNNTUxMTk2MTIzNDU2NxUCABIYFDNBNjY0")]
    pub wa_message_id: String,
}

redacted_debug!(MessageContext { message_id });

/// A query for conversations, latest message first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationQuery {
    /// Only conversations with this status.
    pub status: Option<ConversationStatus>,
    pub page: CursorQuery<TimeCursor>,
}

/// An inbound event, as WhatsApp reports it. Its serialized form is stored while it waits for a verified number.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub enum InboundEvent {
    /// The contact wrote a message.
    Message(InboundMessage),
    /// The business wrote a message in its own app. `sender` is the recipient.
    Echo(InboundMessage),
    /// The author of a message revoked it.
    Revoked {
        wa_message_id: String,
        direction: Direction,
        #[serde(with = "timestamp")]
        at: OffsetDateTime,
    },
    /// The author of a message changed its text.
    Edited {
        wa_message_id: String,
        direction: Direction,
        text: String,
    },
    /// The contact refuses marketing messages, or accepts them again.
    Preference {
        sender: Sender,
        /// Whether the contact accepts marketing messages.
        opted_in: bool,
        #[serde(with = "timestamp")]
        at: OffsetDateTime,
    },
    /// The contact has a new number or user id.
    NumberChanged {
        /// The sender with the previous ids.
        sender: Sender,
        /// The sender with the new ids.
        now: Sender,
    },
    /// WhatsApp named the recipient of a message of the account.
    Recipient {
        recipient: Sender,
        #[serde(with = "timestamp")]
        at: OffsetDateTime,
    },
}

redacted_debug!(
    enum InboundEvent {
        Message,
        Echo,
        Revoked,
        Edited,
        Preference,
        NumberChanged,
        Recipient,
    }
);

/// A message from a contact.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// WhatsApp's id of the message. WhatsApp may deliver the same message several times.
    pub wa_message_id: String,
    pub sender: Sender,
    /// When the message was written, by WhatsApp's clock.
    #[serde(with = "timestamp")]
    pub at: OffsetDateTime,
    /// WhatsApp's type of the message.
    pub kind: String,
    /// The readable text, if the message has one.
    pub text: Option<String>,
    /// Whether an opt-out word in `text` counts: the contact typed it, or pressed a template's button with this label.
    pub can_opt_out: bool,
    /// The ad or post that led to the message.
    pub referral: Option<Box<Referral>>,
    /// The rest of the content: media ids, a location, the message that it answers.
    pub payload: Value,
    /// The text below a file.
    #[serde(default)]
    pub caption: Option<String>,
    /// What the contact pressed (`id` and `title`) or filled in.
    #[serde(default)]
    pub interactive: Option<Value>,
    /// WhatsApp's id of the message that this one quotes.
    #[serde(default)]
    pub quoted: Option<String>,
    /// The file of the message.
    #[serde(default)]
    pub file: Option<AnnouncedFile>,
    /// The phone number, digits only, of a card by which the sender answers a contact request.
    #[serde(default)]
    pub answered_wa_id: Option<String>,
}

redacted_debug!(InboundMessage { at, kind, can_opt_out });
