//! The states of a conversation and of a message in it.

use crate::campaigns::SendStatus;
use crate::shared::string_enum;

string_enum! {
    /// Whether somebody still looks after a conversation.
    ConversationStatus {
        /// Somebody may be waiting for an answer.
        Open = "open",
        /// Done with, until the next message.
        Closed = "closed",
    }
}

/// What happens to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationEvent {
    /// A message is written, by either side.
    Message,
    /// A member sets it to open.
    Open,
    /// A member sets it to closed.
    Close,
}

/// The status after an event. Everything is allowed in every status.
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
    /// What became of a message.
    MessageStatus {
        /// Inbound: it is here.
        Received = "received",
        /// Outbound: not known to have left.
        Pending = "pending",
        /// The platform accepted it.
        Sent = "sent",
        /// It reached the phone.
        Delivered = "delivered",
        /// It was opened.
        Read = "read",
        /// It will not arrive.
        Failed = "failed",
    }
}

impl MessageStatus {
    /// The status after news of it, by the rules of sends; none when the news is old. Nothing is news of an inbound
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
