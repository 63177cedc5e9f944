//! State machines of a conversation and of its messages.

use crate::messaging::SendStatus;
use crate::shared::string_enum;

string_enum! {
    /// The status of a conversation.
    ConversationStatus {
        /// The conversation needs attention.
        Open = "open",
        /// A member closed the conversation. The next message opens it again.
        Closed = "closed",
    }
}

/// An event in the life of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationEvent {
    /// Either side writes a message.
    Message,
    /// A member opens the conversation.
    Open,
    /// A member closes the conversation.
    Close,
}

/// The status after an event. Every event is allowed in every status.
pub fn transition(from: ConversationStatus, event: ConversationEvent) -> ConversationStatus {
    use ConversationStatus::{Closed, Open};
    match (from, event) {
        (Open | Closed, ConversationEvent::Message | ConversationEvent::Open) => Open,
        (Open | Closed, ConversationEvent::Close) => Closed,
    }
}

impl From<ConversationStatus> for ConversationEvent {
    fn from(status: ConversationStatus) -> Self {
        match status {
            ConversationStatus::Open => Self::Open,
            ConversationStatus::Closed => Self::Close,
        }
    }
}

string_enum! {
    /// Who wrote a message: `inbound` is the contact, `outbound` the account.
    #[schemars(rename = "MessageDirection")]
    Direction {
        /// The contact.
        Inbound = "inbound",
        /// The account.
        Outbound = "outbound",
    }
}

string_enum! {
    /// The delivery status of a message.
    MessageStatus {
        /// Inbound: the message is stored.
        Received = "received",
        /// Outbound: WhatsApp has not yet accepted the message.
        Pending = "pending",
        /// WhatsApp accepted the message.
        Sent = "sent",
        /// The message reached the phone.
        Delivered = "delivered",
        /// The contact opened the message.
        Read = "read",
        /// The message will not be delivered.
        Failed = "failed",
    }
}

impl MessageStatus {
    /// The status after a status update, by the rules of sends. None if the update is outdated, and for every inbound
    /// message.
    pub fn advance(self, update: SendStatus) -> Option<Self> {
        let sent = match self {
            Self::Received => return None,
            Self::Pending => SendStatus::Pending,
            Self::Sent => SendStatus::Sent,
            Self::Delivered => SendStatus::Delivered,
            Self::Read => SendStatus::Read,
            Self::Failed => SendStatus::Failed,
        };
        sent.advance(update).map(Self::from)
    }
}

impl From<SendStatus> for MessageStatus {
    fn from(status: SendStatus) -> Self {
        match status {
            SendStatus::Pending => Self::Pending,
            SendStatus::Sent => Self::Sent,
            SendStatus::Delivered => Self::Delivered,
            SendStatus::Read => Self::Read,
            SendStatus::Failed => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversation_transitions_match_the_table() {
        use ConversationEvent::{Close, Message, Open};
        let rows: Vec<String> = ConversationStatus::ALL
            .iter()
            .map(|&from| {
                format!(
                    "{from}: {}",
                    [Message, Open, Close]
                        .map(|event| transition(from, event))
                        .map(ConversationStatus::as_str)
                        .join(" ")
                )
            })
            .collect();
        assert_eq!(rows, ["open: open open closed", "closed: open open closed"]);
        for &target in ConversationStatus::ALL {
            assert_eq!(transition(ConversationStatus::Open, target.into()), target);
        }
    }

    #[test]
    fn message_status_updates_match_the_table() {
        let rows: Vec<String> = MessageStatus::ALL
            .iter()
            .map(|&from| {
                let cells = SendStatus::ALL
                    .iter()
                    .map(|&update| from.advance(update).map_or("-", MessageStatus::as_str));
                format!("{from}: {}", cells.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let expected = [
            "received: - - - - -",
            "pending: - sent delivered read failed",
            "sent: - - delivered read failed",
            "delivered: - - - read -",
            "read: - - - - -",
            "failed: - - - - -",
        ];
        assert_eq!(rows, expected);
    }
}
