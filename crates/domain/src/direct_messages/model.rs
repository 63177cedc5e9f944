//! A direct message and the queue of a number.

use time::OffsetDateTime;

use super::status::Progress;
use super::{DirectStatus, HoldReason, Phase};
use crate::campaigns::FailureClass;
use crate::messaging::{AddressKind, Category, Pricing};
use crate::shared::{
    AccountId, ApiKeyId, ContactId, ConversationId, CursorQuery, MessageId, ProfileId, TemplateId, TimeCursor, UserId,
    redacted_debug, string_enum,
};

string_enum! {
    /// What a message consists of.
    ContentKind {
        Template = "template",
        Text = "text",
        Media = "media",
        Interactive = "interactive",
    }
}

/// The template of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageTemplate {
    pub id: TemplateId,
    pub name: String,
    pub language: String,
    pub category: Category,
}

/// A message to one person.
#[derive(Clone, PartialEq)]
pub struct DirectMessage {
    pub id: MessageId,
    pub contact_id: ContactId,
    /// The contact's number now.
    pub phone: Option<String>,
    /// WhatsApp's user id of the contact now.
    pub wa_user_id: Option<String>,
    /// The sending number. None: the account had no number when the message was made. It is simulated, unless the account
    /// has connected one before it leaves.
    pub profile_id: Option<ProfileId>,
    pub kind: ContentKind,
    pub template: Option<MessageTemplate>,
    pub status: DirectStatus,
    /// When the start committed, just before WhatsApp was called. None: not started, or the message certainly did not
    /// leave.
    pub started_at: Option<OffsetDateTime>,
    /// Whether the outcome of the call is unknown.
    pub is_unknown: bool,
    /// What keeps the message, or the whole queue of its number, back.
    pub hold_reason: Option<HoldReason>,
    /// When a held message is looked at again.
    pub retry_at: Option<OffsetDateTime>,
    pub send_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
    pub sent_at: Option<OffsetDateTime>,
    /// The account's own key of the message, unique for ever.
    pub client_reference: Option<String>,
    pub wa_message_id: Option<String>,
    pub error_code: Option<i64>,
    pub error_message: Option<String>,
    /// Whether another message could reach the contact. None: it did not fail.
    pub failure_class: Option<FailureClass>,
    /// When another message could reach the contact, for [`FailureClass::Later`].
    pub retry_after: Option<OffsetDateTime>,
    pub pricing: Option<Pricing>,
    /// The kind of address that the message left to. None: it has not left.
    pub address: Option<AddressKind>,
    /// The conversation that shows the message, if the contact had one when it was sent.
    pub conversation_id: Option<ConversationId>,
    /// The user who made the message; for an API key its creator.
    pub created_by: UserId,
    pub api_key_id: Option<ApiKeyId>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// The store's time of the read.
    pub now: OffsetDateTime,
}

redacted_debug!(DirectMessage {
    id,
    kind,
    status,
    send_at
});

impl DirectMessage {
    fn progress(&self) -> Progress {
        Progress {
            status: self.status,
            is_started: self.started_at.is_some(),
            is_unknown: self.is_unknown,
            is_held: self.hold_reason.is_some(),
            send_at: self.send_at,
        }
    }

    /// What the message waits for. None: it is not pending.
    pub fn phase(&self) -> Option<Phase> {
        self.progress().phase(self.now)
    }

    /// The reason and the next attempt of a held message.
    pub fn hold(&self) -> Option<(HoldReason, Option<OffsetDateTime>)> {
        let reason = self.hold_reason.filter(|_| self.phase() == Some(Phase::Held))?;
        Some((reason, self.retry_at))
    }
}

/// A query for direct messages, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectMessageQuery {
    pub status: Option<DirectStatus>,
    pub phase: Option<Phase>,
    pub contact_id: Option<ContactId>,
    pub profile_id: Option<ProfileId>,
    pub template_id: Option<TemplateId>,
    pub client_reference: Option<String>,
    /// `created_at` is at or after this time.
    pub since: Option<OffsetDateTime>,
    /// `created_at` is before this time.
    pub until: Option<OffsetDateTime>,
    pub page: CursorQuery<TimeCursor>,
}

/// The queue of a number's direct messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberQueue {
    pub account_id: AccountId,
    /// None: the messages that were made when the account had no number.
    pub profile_id: Option<ProfileId>,
}
