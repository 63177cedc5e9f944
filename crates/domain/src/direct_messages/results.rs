//! What the result of a call changes in a message.

use time::Duration;

use super::DirectStatus;
use crate::campaigns::SendResult;
use crate::messaging::SendStatus;

/// The part of a started message on which the effect of a result depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageState {
    pub status: DirectStatus,
    pub is_started: bool,
}

/// The change of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The status of the message moves on.
    To(DirectStatus),
    /// The outcome is unknown. The message is not sent again.
    Unknown,
    /// The message certainly did not leave: it is due again after the delay.
    Again {
        delay: Duration,
        /// Whether this was an attempt of the message itself.
        counts: bool,
        /// Whether the wait is shown as a hold.
        is_throttled: bool,
    },
    Nothing,
}

impl MessageState {
    /// The change after a result. A status update may have come first; then a retry is impossible.
    pub fn after(self, result: &SendResult) -> Advance {
        let to = |status: SendStatus| self.status.advance(status).map_or(Advance::Nothing, Advance::To);
        let is_in_flight = self.is_started && self.status == DirectStatus::Pending;
        let change = match result {
            SendResult::Sent { .. } => return to(SendStatus::Sent),
            SendResult::Failed { .. } => return to(SendStatus::Failed),
            SendResult::Unknown => Advance::Unknown,
            SendResult::Deferred { delay } | SendResult::Throttled { delay } => Advance::Again {
                delay: *delay,
                counts: true,
                is_throttled: true,
            },
            SendResult::Released => Advance::Again {
                delay: Duration::ZERO,
                counts: false,
                is_throttled: false,
            },
        };
        if is_in_flight { change } else { Advance::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_moves_a_message_only_forward() {
        let delay = Duration::SECOND;
        let sent = SendResult::Sent {
            message_id: None,
            wa_id: None,
        };
        let failed = SendResult::Failed {
            code: None,
            message: String::new(),
        };
        let again = |counts, is_throttled, delay| Advance::Again {
            delay,
            counts,
            is_throttled,
        };
        let results = [
            (sent, Advance::To(DirectStatus::Sent)),
            (failed, Advance::To(DirectStatus::Failed)),
            (SendResult::Unknown, Advance::Unknown),
            (SendResult::Deferred { delay }, again(true, true, delay)),
            (SendResult::Throttled { delay }, again(true, true, delay)),
            (SendResult::Released, again(false, false, Duration::ZERO)),
        ];
        for (result, expected) in results {
            let after = |status, is_started| MessageState { status, is_started }.after(&result);
            assert_eq!(after(DirectStatus::Pending, true), expected, "{result:?}");
            // A status update came first, so nothing may be sent again.
            for status in [DirectStatus::Delivered, DirectStatus::Read, DirectStatus::Failed] {
                assert_eq!(after(status, true), Advance::Nothing, "{result:?} after {status}");
            }
            let is_retry = matches!(expected, Advance::Again { .. } | Advance::Unknown);
            assert!(!is_retry || after(DirectStatus::Pending, false) == Advance::Nothing);
        }
    }
}
