//! The status of a direct message, and the phase of a pending one.

use time::OffsetDateTime;

use crate::holds::HoldCause;
use crate::messaging::SendStatus;
use crate::shared::string_enum;

string_enum! {
    /// The status of a direct message.
    DirectStatus {
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
        /// The account cancelled the message before it left.
        Cancelled = "cancelled",
    }
}

impl DirectStatus {
    /// The status as that of a send. None: cancelled, which no send is.
    pub fn as_send(self) -> Option<SendStatus> {
        Some(match self {
            Self::Pending => SendStatus::Pending,
            Self::Sent => SendStatus::Sent,
            Self::Delivered => SendStatus::Delivered,
            Self::Read => SendStatus::Read,
            Self::Failed => SendStatus::Failed,
            Self::Cancelled => return None,
        })
    }

    /// The status after a cancel. None: the message was started, or has ended otherwise.
    pub fn cancel(self, is_started: bool) -> Option<Self> {
        let may_cancel = self == Self::Cancelled || (self == Self::Pending && !is_started);
        may_cancel.then_some(Self::Cancelled)
    }

    /// State machine of status updates: as for a send, and `cancelled` is final. None: the update changes nothing.
    pub fn advance(self, update: SendStatus) -> Option<Self> {
        Some(self.as_send()?.advance(update)?.into())
    }
}

impl From<SendStatus> for DirectStatus {
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

string_enum! {
    /// What a pending message waits for.
    Phase {
        /// `send_at` has not been reached.
        Scheduled = "scheduled",
        /// The message leaves as soon as the send rate of its number allows it.
        Waiting = "waiting",
        /// `hold_reason` keeps the message back.
        Held = "held",
        /// WhatsApp is being called.
        Leaving = "leaving",
        /// WhatsApp may have the message. It is not sent again.
        Unknown = "unknown",
    }
}

string_enum! {
    /// What keeps a message back.
    HoldReason {
        /// The WhatsApp number cannot send: it is not verified, or WhatsApp refuses its messages.
        Number = "number",
        /// The account is suspended.
        Suspended = "suspended",
        /// WhatsApp throttled the message, or could not be reached.
        Throttled = "throttled",
        /// It is quiet where the contact is.
        QuietHours = "quiet_hours",
        /// The contact has got as many marketing messages as the account allows.
        Cap = "cap",
    }
}

impl From<HoldCause> for HoldReason {
    fn from(cause: HoldCause) -> Self {
        match cause {
            HoldCause::QuietHours => Self::QuietHours,
            HoldCause::Cap => Self::Cap,
        }
    }
}

/// What the phase of a message depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) status: DirectStatus,
    pub(super) is_started: bool,
    pub(super) is_unknown: bool,
    pub(super) is_held: bool,
    pub(super) send_at: OffsetDateTime,
}

impl Progress {
    /// The phase at a time. None: the message is not pending.
    pub(super) fn phase(self, now: OffsetDateTime) -> Option<Phase> {
        if self.status != DirectStatus::Pending {
            return None;
        }
        Some(match self {
            Self { is_unknown: true, .. } => Phase::Unknown,
            Self { is_started: true, .. } => Phase::Leaving,
            Self { send_at, .. } if send_at > now => Phase::Scheduled,
            Self { is_held: true, .. } => Phase::Held,
            _ => Phase::Waiting,
        })
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

    #[test]
    fn direct_status_machine_matches_its_table() {
        let rows: Vec<String> = DirectStatus::ALL
            .iter()
            .map(|&from| {
                let cells: Vec<&str> = SendStatus::ALL
                    .iter()
                    .map(|&update| from.advance(update).map_or("-", DirectStatus::as_str))
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
                "cancelled: - - - - -",
            ]
        );
    }

    #[test]
    fn only_a_message_that_was_not_started_can_be_cancelled() {
        for &status in DirectStatus::ALL {
            let cancelled = |is_started| status.cancel(is_started) == Some(DirectStatus::Cancelled);
            let is_cancelled = status == DirectStatus::Cancelled;
            assert_eq!(
                cancelled(false),
                is_cancelled || status == DirectStatus::Pending,
                "{status}"
            );
            assert_eq!(cancelled(true), is_cancelled, "{status}");
        }
    }

    #[test]
    fn phase_of_a_pending_message_is_the_furthest_one() {
        let progress = Progress {
            status: DirectStatus::Pending,
            is_started: false,
            is_unknown: false,
            is_held: false,
            send_at: NOW,
        };
        let later = Progress {
            send_at: NOW + Duration::SECOND,
            ..progress
        };
        let started = Progress {
            is_started: true,
            ..progress
        };
        for (progress, phase) in [
            (progress, Phase::Waiting),
            (later, Phase::Scheduled),
            (Progress { is_held: true, ..later }, Phase::Scheduled),
            (
                Progress {
                    is_held: true,
                    ..progress
                },
                Phase::Held,
            ),
            (started, Phase::Leaving),
            (
                Progress {
                    is_unknown: true,
                    ..started
                },
                Phase::Unknown,
            ),
        ] {
            assert_eq!(progress.phase(NOW), Some(phase), "{progress:?}");
        }
        for &status in DirectStatus::ALL
            .iter()
            .filter(|status| **status != DirectStatus::Pending)
        {
            assert_eq!(Progress { status, ..started }.phase(NOW), None);
        }
    }
}
