//! The messages that Recado sends.

use time::{Duration, OffsetDateTime};

use super::{ButtonValue, HeaderLocation, HeaderType, MessageContent, TextParameter};
use crate::shared::{MessageId, SendId, redacted_debug, string_enum};

/// The service window: how long after the contact's last message a free-form message may be sent.
pub const WINDOW: Duration = Duration::hours(24);

/// One template message to one contact.
#[derive(Clone, PartialEq)]
pub struct OutboundTemplate {
    /// Recado's id of the send. Every status update echoes it.
    pub send_id: SendId,
    pub to: Addressee,
    /// WhatsApp's id of the message that this one quotes.
    pub reply_to: Option<String>,
    pub template: String,
    pub language: String,
    /// The values of a text header, in order.
    pub header: Vec<TextParameter>,
    /// The file of a media header.
    pub header_file: Option<OutboundFile>,
    /// The location of the header.
    pub header_location: Option<HeaderLocation>,
    /// When the template's limited-time offer ends. None if it has no end.
    pub offer_expires_at: Option<OffsetDateTime>,
    /// The body's values, in order.
    pub body: Vec<TextParameter>,
    /// The values of the buttons that have a placeholder.
    pub buttons: Vec<ButtonValue>,
    pub cards: Vec<OutboundCard>,
}

redacted_debug!(OutboundTemplate {
    send_id,
    template,
    language
});

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundFile {
    pub kind: HeaderType,
    pub source: FileSource,
}

/// Where WhatsApp gets a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// WhatsApp's media id of a file that was uploaded.
    Id(String),
    /// A URL that WhatsApp fetches.
    Link(String),
}

/// A card of a carousel message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundCard {
    /// The header.
    pub file: OutboundFile,
    /// The body's values, in order.
    pub body: Vec<TextParameter>,
    /// The values of the buttons.
    pub buttons: Vec<ButtonValue>,
}

/// One free-form message to one contact. WhatsApp accepts it within 24 hours of the contact's last message.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboundMessage {
    /// Recado's id of the message. Every status update echoes it.
    pub message_id: MessageId,
    pub to: Addressee,
    /// WhatsApp's id of the message that this one quotes.
    pub reply_to: Option<String>,
    pub content: MessageContent,
    /// Where WhatsApp gets the file of `content`. None if it has no file.
    pub file: Option<FileSource>,
}

redacted_debug!(OutboundMessage { message_id });

impl OutboundMessage {
    /// A text that quotes no message.
    pub fn text(message_id: MessageId, to: Addressee, text: impl Into<String>) -> Self {
        Self {
            message_id,
            to,
            reply_to: None,
            content: MessageContent::Text(text.into()),
            file: None,
        }
    }
}

/// The recipient of a message.
#[derive(Clone, PartialEq, Eq)]
pub enum Addressee {
    /// A number, E.164.
    Phone(String),
    /// WhatsApp's user id of a contact who hides the phone number.
    User(String),
}

redacted_debug!(
    enum Addressee {
        Phone,
        User,
    }
);

string_enum! {
    /// The kind of address that a message left to.
    AddressKind {
        Phone = "phone",
        UserId = "user_id",
    }
}

impl AddressKind {
    /// By whether the message was addressed by user id.
    pub fn of(by_user_id: bool) -> Self {
        if by_user_id { Self::UserId } else { Self::Phone }
    }
}

impl Addressee {
    /// The address of a contact: its phone number, else that of its `wa_id`, else its user id.
    pub(crate) fn first_of(phone: Option<String>, wa_id: Option<&str>, user_id: Option<String>) -> Option<Self> {
        let phone = phone.or_else(|| wa_id.map(|id| format!("+{id}")));
        phone.map(Self::Phone).or_else(|| user_id.map(Self::User))
    }

    pub fn kind(&self) -> AddressKind {
        AddressKind::of(matches!(self, Self::User(_)))
    }

    /// The number or the user id.
    pub fn value(&self) -> &str {
        match self {
            Self::Phone(value) | Self::User(value) => value,
        }
    }
}
