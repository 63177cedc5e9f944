//! One message to one contact: its status only ever moves forward.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::{FailureClass, Pricing};
use crate::shared::schema::Timestamp;
use crate::shared::string_enum;
use crate::shared::{ContactId, SendId, redacted_debug, timestamp};

string_enum! {
    /// What became of a send.
    SendStatus {
        /// Not known to have left: waiting, in flight, or unknown.
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

/// The error message of a send whose unknown outcome was not resolved in time.
pub const NEVER_CONFIRMED: &str = "the outcome is unknown: WhatsApp did not confirm whether it has the message";

impl SendStatus {
    /// The status after news of it: forward along pending, sent, delivered, read; `failed` is final and comes only
    /// from pending or sent. None: the news is old and changes nothing.
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

/// The contact that a message went to.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SendContact {
    /// The contact's name.
    #[schemars(example = &"Ana Lima")]
    pub name: String,
    /// The contact's phone number in E.164 form; null when it has none any more.
    #[schemars(example = &"+5511961234567")]
    pub phone: Option<String>,
    /// The contact's e-mail address; null when it is not known.
    #[schemars(example = &"ana@example.com")]
    pub email: Option<String>,
}

redacted_debug!(SendContact {});

/// One message of a campaign to one contact.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CampaignSend {
    /// The id of this send.
    pub id: SendId,
    /// The id of the contact that it goes to.
    pub contact_id: ContactId,
    /// What became of the message.
    pub status: SendStatus,
    /// When WhatsApp accepted the message; null when it did not.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub sent_at: Option<OffsetDateTime>,
    /// WhatsApp's error code, where the send failed by one; else null.
    #[schemars(example = 131026)]
    pub error_code: Option<i64>,
    /// Why the send failed; null when it did not.
    #[schemars(example = &"Message undeliverable")]
    pub error_message: Option<String>,
    /// Of a failed send, what trying it again would come to: `again` it may succeed at any time, `later` from
    /// `retry_after` on, `never` it would fail again. Null for a send that did not fail.
    pub failure_class: Option<FailureClass>,
    /// When a failed send of class `later` may be tried again; else null.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub retry_after: Option<OffsetDateTime>,
    /// WhatsApp's id of the message; null before it was accepted.
    #[schemars(example = &"wamid.HBgNNTUxMTk2MTIzNDU2NxUCABEYEjVBQ0Q3")]
    pub wa_message_id: Option<String>,
    /// What WhatsApp says about the price of the message; null before a status named it.
    pub pricing: Option<Pricing>,
    /// The contact that it goes to.
    pub contacts: SendContact,
}

redacted_debug!(CampaignSend {
    id,
    contact_id,
    status,
    error_code
});

/// What a message is made for.
#[derive(Clone, PartialEq)]
pub struct Recipient {
    /// Their name.
    pub name: String,
    /// E.164.
    pub phone: String,
    /// Their e-mail address.
    pub email: Option<String>,
    /// Whatever the account knows of them.
    pub attributes: Map<String, Value>,
}

redacted_debug!(Recipient {});

/// How many sends are in each status now: a send that was read is no longer counted as delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SendCounts {
    /// All sends; the sum of the other numbers.
    #[schemars(example = 1840)]
    pub total: i64,
    /// Not sent yet, or not known to have been.
    #[schemars(example = 0)]
    pub pending: i64,
    /// Accepted by WhatsApp, and nothing more is known.
    #[schemars(example = 212)]
    pub sent: i64,
    /// On the phone, and not opened.
    #[schemars(example = 640)]
    pub delivered: i64,
    /// Opened.
    #[schemars(example = 980)]
    pub read: i64,
    /// Failed: they will not arrive.
    #[schemars(example = 8)]
    pub failed: i64,
}

/// A change of the counters: one send left a status for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterChange {
    /// Before.
    pub from: SendStatus,
    /// After.
    pub to: SendStatus,
}

impl SendCounts {
    /// The counter of a status.
    pub fn of(&self, status: SendStatus) -> i64 {
        match status {
            SendStatus::Pending => self.pending,
            SendStatus::Sent => self.sent,
            SendStatus::Delivered => self.delivered,
            SendStatus::Read => self.read,
            SendStatus::Failed => self.failed,
        }
    }

    /// The differences that changes make; `total` stays 0.
    pub fn deltas(changes: impl IntoIterator<Item = CounterChange>) -> Self {
        let mut deltas = Self::default();
        for CounterChange { from, to } in changes {
            *deltas.counter_mut(from) -= 1;
            *deltas.counter_mut(to) += 1;
        }
        deltas
    }

    fn counter_mut(&mut self, status: SendStatus) -> &mut i64 {
        match status {
            SendStatus::Pending => &mut self.pending,
            SendStatus::Sent => &mut self.sent,
            SendStatus::Delivered => &mut self.delivered,
            SendStatus::Read => &mut self.read,
            SendStatus::Failed => &mut self.failed,
        }
    }

    /// How many the platform accepted, whatever became of them since.
    pub fn accepted(&self) -> i64 {
        self.sent + self.delivered + self.read
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn any_status() -> impl Strategy<Value = SendStatus> {
        prop::sample::select(SendStatus::ALL.to_vec())
    }

    proptest! {
        /// Whatever order the news comes in and however often, no status is ever taken back.
        #[test]
        fn send_status_never_moves_back(updates in prop::collection::vec(any_status(), 0..20)) {
            let mut status = SendStatus::Pending;
            let mut changes = Vec::new();
            for update in updates {
                if let Some(next) = status.advance(update) {
                    prop_assert_eq!(next.advance(status), None);
                    changes.push(CounterChange { from: status, to: next });
                    status = next;
                }
            }
            let deltas = SendCounts::deltas(changes);
            let sum: i64 = SendStatus::ALL.iter().map(|&s| deltas.of(s)).sum();
            prop_assert_eq!(sum, 0);
            if status != SendStatus::Pending {
                prop_assert_eq!((deltas.of(SendStatus::Pending), deltas.of(status)), (-1, 1));
            }
        }
    }
}
