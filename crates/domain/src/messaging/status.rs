//! The status of a message that Recado sends. It only moves forward.

use crate::shared::string_enum;

string_enum! {
    /// The status of a send.
    SendStatus {
        /// WhatsApp is not known to have the message: it waits, is in flight, or its outcome is unknown.
        Pending = "pending",
        /// WhatsApp accepted the message.
        Sent = "sent",
        /// The message reached the phone.
        Delivered = "delivered",
        /// The recipient opened the message.
        Read = "read",
        /// The message will not arrive.
        Failed = "failed",
    }
}

impl SendStatus {
    /// Whether the price of a message in this status counts as cost.
    pub fn is_charged(self) -> bool {
        matches!(self, Self::Delivered | Self::Read)
    }

    /// State machine of status updates: pending, sent, delivered, read. `failed` is final, and follows only from
    /// pending or sent. None: the update is outdated and changes nothing.
    pub fn advance(self, update: Self) -> Option<Self> {
        use SendStatus::{Delivered, Failed, Pending, Read, Sent};
        match (self, update) {
            (Pending, Sent | Delivered | Read | Failed) | (Sent, Delivered | Read | Failed) | (Delivered, Read) => {
                Some(update)
            }
            (Pending, Pending)
            | (Sent, Pending | Sent)
            | (Delivered, Pending | Sent | Delivered | Failed)
            | (Read | Failed, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_status_machine_matches_its_table() {
        let rows: Vec<String> = SendStatus::ALL
            .iter()
            .map(|&from| {
                let cells: Vec<&str> = SendStatus::ALL
                    .iter()
                    .map(|&to| from.advance(to).map_or("-", SendStatus::as_str))
                    .collect();
                format!("{from}: {}", cells.join(" "))
            })
            .collect();
        assert_eq!(
            rows,
            [
                "pending: - sent delivered read failed",
                "sent: - - delivered read failed",
                "delivered: - - - read -",
                "read: - - - - -",
                "failed: - - - - -",
            ]
        );
    }
}
