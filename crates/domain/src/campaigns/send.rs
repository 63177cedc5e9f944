//! One message of a run to one contact, its status and the status counters. A status only moves forward.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::FailureClass;
use crate::holds::HoldCause;
use crate::messaging::{AddressKind, Addressee, Pricing, SendStatus};
use crate::shared::schema::Timestamp;
use crate::shared::{ContactId, Page, SendId, redacted_debug, timestamp};

/// The error message of a send whose unknown outcome was not resolved in time.
pub const NEVER_CONFIRMED: &str = "the outcome is unknown: WhatsApp did not confirm whether it has the message";

/// The contact that a message went to.
#[derive(Clone, PartialEq, Eq)]
pub struct SendContact {
    pub name: String,
    /// The contact's phone number in E.164 form; null when the contact no longer has one.
    pub phone: Option<String>,
    /// WhatsApp's user id of the contact that was seen last.
    pub wa_user_id: Option<String>,
    pub email: Option<String>,
}

redacted_debug!(SendContact {});

/// One message of a campaign to one contact.
#[derive(Clone, PartialEq, Eq)]
pub struct CampaignSend {
    pub id: SendId,
    pub contact_id: ContactId,
    pub status: SendStatus,
    /// When WhatsApp accepted the message; null when it has not.
    pub sent_at: Option<OffsetDateTime>,
    /// WhatsApp's error code; null when the send did not fail with a code.
    pub error_code: Option<i64>,
    pub error_message: Option<String>,
    /// Whether a retry of a failed send can succeed: `again` at any time, `later` from `retry_after` on, `never` not at
    /// all. Null for a send that did not fail.
    pub failure_class: Option<FailureClass>,
    /// When a failed send of class `later` may be retried; null for every other send.
    pub retry_after: Option<OffsetDateTime>,
    /// The setting that holds the message. None: it is not held.
    pub hold_reason: Option<HoldCause>,
    /// When a held message is looked at again.
    pub retry_at: Option<OffsetDateTime>,
    /// WhatsApp's id of the message; null before it was accepted.
    pub wa_message_id: Option<String>,
    /// The price of the message as WhatsApp reports it; null until a status update contains it.
    pub pricing: Option<Pricing>,
    /// The kind of address that the message left to; null before it left.
    pub address: Option<AddressKind>,
    pub contacts: SendContact,
}

redacted_debug!(CampaignSend {
    id,
    contact_id,
    status,
    error_code
});

/// The contact fields from which a message is addressed and rendered.
#[derive(Clone, Default, PartialEq)]
pub struct Recipient {
    pub name: String,
    /// E.164. Empty if the contact has none.
    pub phone: String,
    /// WhatsApp's user id of the contact for the sending number. Read only if the contact has no phone.
    pub user_id: Option<String>,
    pub email: Option<String>,
    pub attributes: Map<String, Value>,
}

redacted_debug!(Recipient {});

impl Recipient {
    /// The phone number, otherwise the user id.
    pub fn address(&self) -> Option<Addressee> {
        match self.phone.is_empty() {
            true => self.user_id.clone().map(Addressee::User),
            false => Some(Addressee::Phone(self.phone.clone())),
        }
    }
}

/// The number of sends in each current status: a send that was read is no longer counted as delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SendCounts {
    /// The number of all sends: the sum of the other counters.
    #[schemars(example = 1840)]
    pub total: i64,
    /// The number of messages that were not sent yet, or whose outcome is unknown.
    #[schemars(example = 0)]
    pub pending: i64,
    /// The number of messages that WhatsApp accepted, without a later status.
    #[schemars(example = 212)]
    pub sent: i64,
    /// The number of messages that reached the phone and were not opened.
    #[schemars(example = 640)]
    pub delivered: i64,
    /// The number of messages that the recipient opened.
    #[schemars(example = 980)]
    pub read: i64,
    /// The number of messages that failed and will not arrive.
    #[schemars(example = 8)]
    pub failed: i64,
}

/// For serde: a count of zero is left out of an answer.
pub(super) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The counters of a campaign, and what its run waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CampaignStats {
    #[serde(flatten)]
    pub counts: SendCounts,
    /// The number of held messages of a run that waits for them; absent otherwise. They are `pending`.
    #[schemars(example = 3)]
    #[serde(skip_serializing_if = "is_zero")]
    pub held: i64,
    /// When the first held message of a waiting run is looked at again; absent otherwise.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub waiting_until: Option<OffsetDateTime>,
}

/// One page of a campaign's sends.
#[derive(Clone, Debug, PartialEq)]
pub enum SendsPage {
    Stored(Page<CampaignSend>),
    /// The sends are in the campaign's archive.
    Archived {
        at: OffsetDateTime,
        /// The number of sends in the archive.
        sends: i64,
    },
}

/// The status change of one send, as the counters see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterChange {
    pub from: SendStatus,
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

    /// The sum of status changes as counter deltas; `total` stays 0.
    pub fn deltas(changes: impl IntoIterator<Item = CounterChange>) -> Self {
        let mut deltas = Self::default();
        for CounterChange { from, to } in changes {
            *deltas.counter_mut(from) -= 1;
            *deltas.counter_mut(to) += 1;
        }
        deltas
    }

    pub(super) fn counter_mut(&mut self, status: SendStatus) -> &mut i64 {
        match status {
            SendStatus::Pending => &mut self.pending,
            SendStatus::Sent => &mut self.sent,
            SendStatus::Delivered => &mut self.delivered,
            SendStatus::Read => &mut self.read,
            SendStatus::Failed => &mut self.failed,
        }
    }

    /// The number of messages that WhatsApp accepted, whatever their later status.
    pub fn accepted(&self) -> i64 {
        self.sent + self.delivered + self.read
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_status() -> impl Strategy<Value = SendStatus> {
        prop::sample::select(SendStatus::ALL.to_vec())
    }

    proptest! {
        /// Repeated status updates in any order never move a status back.
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
