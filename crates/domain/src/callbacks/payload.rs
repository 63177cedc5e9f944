//! What a callback of WhatsApp reports.

use thiserror::Error;
use time::OffsetDateTime;

use crate::conversations::{InboundEvent, Sender};
use crate::messaging::{Pricing, SendStatus, StatusPricing};
use crate::shared::{SendId, redacted_debug};
use crate::templates::{CategoryUpdate, Review};
use crate::whatsapp::verification::BusinessUpdate;

/// One change in a callback.
#[derive(Clone, Debug, PartialEq)]
pub enum CallbackChange {
    /// A status update of a message that Recado sent.
    Status(ReceivedStatus),
    /// A message, preference or number change of a contact.
    Inbound(ReceivedInbound),
    Template(TemplateUpdate),
    /// An update of a business account or of one of its numbers.
    Account(BusinessUpdate),
}

/// A status update, with the number that the message was sent from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedStatus {
    /// WhatsApp's id of the number.
    pub phone_number_id: String,
    pub update: StatusUpdate,
    /// The recipient, if WhatsApp names its user id.
    pub recipient: Option<Sender>,
}

/// The recipient of a message that Recado sent, as a status update names it.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedRecipient {
    pub send_id: SendId,
    pub recipient: Sender,
    /// The time of the status, by WhatsApp's clock.
    pub at: OffsetDateTime,
}

redacted_debug!(NamedRecipient { send_id, at });

impl NamedRecipient {
    /// None without a user id, or if WhatsApp does not name the send.
    pub fn of(status: &ReceivedStatus) -> Option<Self> {
        Some(Self {
            send_id: status.update.send_id?,
            recipient: status
                .recipient
                .clone()
                .filter(|recipient| recipient.user_id.is_some())?,
            at: status.update.at,
        })
    }
}

/// An inbound event, with the number that received it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedInbound {
    /// WhatsApp's id of the number.
    pub phone_number_id: String,
    pub event: InboundEvent,
}

/// What WhatsApp reports about a message that Recado sent.
#[derive(Clone, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Recado's id of the send, which WhatsApp echoes.
    pub send_id: Option<SendId>,
    /// WhatsApp's id of the message.
    pub message_id: String,
    /// Never `Pending`.
    pub status: SendStatus,
    /// When the status was reached, by WhatsApp's clock.
    pub at: OffsetDateTime,
    /// WhatsApp's error code.
    pub error_code: Option<i64>,
    /// WhatsApp's error message.
    pub error_message: Option<String>,
    /// The price that the status names.
    pub pricing: Option<Pricing>,
}

redacted_debug!(StatusUpdate {
    send_id,
    status,
    at,
    error_code,
    pricing
});

impl StatusUpdate {
    /// The price, with the status that names it.
    pub fn status_pricing(&self) -> Option<StatusPricing> {
        Some(StatusPricing::new(self.pricing.clone()?, self.status))
    }
}

/// A change of a template that WhatsApp reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateUpdate {
    /// WhatsApp's id of the business account.
    pub waba_id: String,
    /// WhatsApp's id of the template.
    pub meta_template_id: String,
    pub change: TemplateChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateChange {
    /// A new review status.
    Review(Review),
    /// A new quality score.
    Quality(String),
    /// A new category, or a scheduled one.
    Category(CategoryUpdate),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the body is not a WhatsApp callback")]
pub struct Unreadable;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallbackPayload {
    /// In the order of the callback.
    pub changes: Vec<CallbackChange>,
    /// The parts that are not supported.
    pub unread: Vec<Unread>,
}

/// A callback field, or a message type within it, that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// WhatsApp's name of the field.
    pub field: String,
    /// WhatsApp's name of the message type. None: the whole field is not supported.
    pub kind: Option<String>,
}
