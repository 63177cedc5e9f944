//! The result of a call to WhatsApp for the send and its run.

use time::Duration;

use crate::messaging::{MetaStatus, SendOutcome, ThrottleScope};
use crate::shared::{SendId, redacted_debug};

/// The most retries of a send that certainly did not leave.
const MAX_RETRIES: u32 = 5;

/// The longest wait before a retry.
const BACKOFF_MAX: Duration = Duration::seconds(60);

/// The result of a send, as the store records it.
#[derive(Clone, PartialEq, Eq)]
pub enum SendResult {
    Sent {
        /// WhatsApp's id of the message. None if the run is simulated.
        message_id: Option<String>,
        /// WhatsApp's id of the recipient.
        wa_id: Option<String>,
    },
    Failed {
        /// WhatsApp's error code. None if the failure has another cause.
        code: Option<i64>,
        /// The reason, for the account's members.
        message: String,
    },
    /// The outcome is unknown: the send stays pending until a status update or a timeout resolves it.
    Unknown,
    /// The message did not leave. The send is due again after the delay, and the attempt counts.
    Deferred { delay: Duration },
    /// The message did not leave, because its number exceeds its send rate. The send is due again after the delay. The
    /// attempt does not count: the cause is the number's rate, which is halved.
    Throttled { delay: Duration },
    /// The send was started and certainly not processed. The run stops, the send is due again, and the attempt does not
    /// count. Only for sends that the caller itself started, since no other worker can have started them since.
    Released,
}

redacted_debug!(
    enum SendResult {
        Sent,
        Failed,
        Unknown,
        Deferred,
        Throttled,
        Released,
    }
);

/// Why a run has to pause until a member resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlock {
    pub reason: String,
    /// The template's new review status, if that is the cause.
    pub review: Option<MetaStatus>,
}

/// The result of a send from the outcome of its call, and the reason to pause its run, if there is one. `attempts`
/// counts earlier attempts.
pub fn to_result(send: SendId, attempts: u32, outcome: SendOutcome) -> (SendId, SendResult, Option<RunBlock>) {
    let (result, block) = match outcome {
        SendOutcome::Accepted { message_id, wa_id } => (
            SendResult::Sent {
                message_id: Some(message_id),
                wa_id,
            },
            None,
        ),
        SendOutcome::Failed { code, message, .. } => (
            SendResult::Failed {
                code: Some(code),
                message,
            },
            None,
        ),
        SendOutcome::Throttled {
            scope: Some(ThrottleScope::PhoneNumber),
            retry_after,
            ..
        } => (
            SendResult::Throttled {
                delay: with_jitter(send, attempts, backoff(None, 0, retry_after)),
            },
            None,
        ),
        SendOutcome::Throttled { code, message, .. } if attempts >= MAX_RETRIES => (
            SendResult::Failed {
                code,
                message: format!("gave up after {MAX_RETRIES} retries: {message}"),
            },
            None,
        ),
        SendOutcome::Throttled { scope, retry_after, .. } => (
            SendResult::Deferred {
                delay: with_jitter(send, attempts, backoff(scope, attempts, retry_after)),
            },
            None,
        ),
        SendOutcome::RunBlocked { code, cause, message } => {
            let reason = format!("{message} (code {code})");
            let review = cause.template_status();
            (SendResult::Released, Some(RunBlock { reason, review }))
        }
        SendOutcome::Unknown { .. } => (SendResult::Unknown, None),
        SendOutcome::OpaqueRejection { detail } => {
            let reason = format!("WhatsApp cannot be reached: {detail}");
            (SendResult::Unknown, Some(RunBlock { reason, review: None }))
        }
    };
    (send, result, block)
}

/// Exponential backoff, at least `retry_after` and at most `BACKOFF_MAX`: 1, 2, 4, ... seconds, or 1, 4, 16, ... if one
/// recipient gets too many messages.
fn backoff(scope: Option<ThrottleScope>, attempts: u32, retry_after: Option<Duration>) -> Duration {
    let base: i64 = if scope == Some(ThrottleScope::Recipient) { 4 } else { 2 };
    let wait = Duration::seconds(base.saturating_pow(attempts));
    retry_after.unwrap_or(Duration::ZERO).max(wait).min(BACKOFF_MAX)
}

/// Deterministic jitter: adds up to a quarter, so that sends that were throttled together are not retried together. It
/// depends on the send's random id.
fn with_jitter(send: SendId, attempts: u32, wait: Duration) -> Duration {
    let [share, ..] = send.0.as_u128().rotate_left(attempts.saturating_mul(8)).to_be_bytes();
    wait.saturating_add(wait * u32::from(share) / 1024)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::messaging::BlockCause;

    fn result_of(attempts: u32, outcome: SendOutcome) -> (SendResult, Option<RunBlock>) {
        let (_, result, block) = to_result(SendId(Uuid::nil()), attempts, outcome);
        (result, block)
    }

    fn throttled(scope: ThrottleScope, retry_after: Option<Duration>) -> SendOutcome {
        SendOutcome::Throttled {
            code: Some(4),
            scope: Some(scope),
            message: "slow down".into(),
            retry_after,
        }
    }

    #[test]
    fn throttled_send_backs_off_and_fails_after_the_last_retry() {
        let delays = |scope| {
            (0..5).map(move |attempt| match result_of(attempt, throttled(scope, None)) {
                (SendResult::Deferred { delay }, None) => delay.whole_seconds(),
                unexpected => panic!("{unexpected:?}"),
            })
        };
        assert_eq!(delays(ThrottleScope::Account).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!(delays(ThrottleScope::Recipient).collect::<Vec<_>>(), [1, 4, 16, 60, 60]);
        assert!(matches!(
            result_of(5, throttled(ThrottleScope::Account, None)).0,
            SendResult::Failed { code: Some(4), .. }
        ));
        let with_retry_after = result_of(0, throttled(ThrottleScope::Account, Some(Duration::seconds(7)))).0;
        assert_eq!(
            with_retry_after,
            SendResult::Deferred {
                delay: Duration::seconds(7)
            }
        );
    }

    #[test]
    fn throttled_number_counts_no_attempt() {
        for attempts in [0, 3, 5, 4_000_000_000] {
            let (result, block) = result_of(attempts, throttled(ThrottleScope::PhoneNumber, None));
            assert_eq!(block, None);
            assert_eq!(
                result,
                SendResult::Throttled {
                    delay: Duration::SECOND
                }
            );
        }
        let with_retry_after = result_of(5, throttled(ThrottleScope::PhoneNumber, Some(Duration::seconds(7)))).0;
        assert_eq!(
            with_retry_after,
            SendResult::Throttled {
                delay: Duration::seconds(7)
            }
        );
    }

    #[test]
    fn jitter_separates_sends_throttled_together() {
        let sends = (0..100_u128).map(|n| {
            SendId(Uuid::from_u128(
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
            ))
        });
        let wait = |send| with_jitter(send, 2, Duration::seconds(4));
        let waits: std::collections::BTreeSet<_> = sends.map(wait).collect();
        assert!(waits.len() > 60, "{waits:?}");
        let (first, last) = (*waits.first().unwrap(), *waits.last().unwrap());
        assert!(
            first >= Duration::seconds(4) && last < Duration::seconds(5),
            "{waits:?}"
        );
        assert!(last - first > Duration::milliseconds(700), "{waits:?}");
    }

    #[test]
    fn ambiguous_call_becomes_unknown() {
        let (result, pause) = result_of(
            0,
            SendOutcome::Unknown {
                detail: "time-out".into(),
            },
        );
        assert_eq!((result, pause), (SendResult::Unknown, None));
        let (result, block) = result_of(
            0,
            SendOutcome::OpaqueRejection {
                detail: "HTTP 403".into(),
            },
        );
        assert_eq!(result, SendResult::Unknown);
        assert!(block.unwrap().reason.contains("HTTP 403"));
    }

    #[test]
    fn blocked_run_pauses_and_releases_its_send() {
        let (result, pause) = result_of(
            0,
            SendOutcome::RunBlocked {
                code: 190,
                cause: BlockCause::Token,
                message: "token expired".into(),
            },
        );
        assert_eq!(result, SendResult::Released);
        assert_eq!(
            pause.unwrap(),
            RunBlock {
                reason: "token expired (code 190)".into(),
                review: None
            }
        );
        for (cause, review) in [
            (BlockCause::TemplatePaused, Some(MetaStatus::Paused)),
            (BlockCause::TemplateDisabled, Some(MetaStatus::Disabled)),
            (BlockCause::Template, None),
        ] {
            let (code, message) = (132_001, "template".into());
            let (_, block) = result_of(0, SendOutcome::RunBlocked { code, cause, message });
            assert_eq!(block.unwrap().review, review);
        }
    }
}
