//! What calling the platform for one send can come to, and what follows from it.

use time::Duration;

use crate::shared::{GatewayError, SendId, redacted_debug};
use crate::templates::MetaStatus;

/// How often a send that surely did not leave is tried again.
const RETRIES: u32 = 5;

/// The number sends faster than WhatsApp lets it.
const THROUGHPUT: i64 = 130_429;

/// The longest wait before such a retry.
const BACKOFF_MAX: Duration = Duration::seconds(60);

/// How a call to the platform ended, by the platform's error classes.
#[derive(Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// Accepted (not yet delivered).
    Accepted {
        /// The platform's id of the message.
        message_id: String,
        /// The recipient's id with the platform, where it told one.
        wa_id: Option<String>,
    },
    /// Refused for good, this one message.
    Failed {
        /// The platform's code.
        code: i64,
        /// The platform's words.
        message: String,
    },
    /// Surely not processed: throttled, or no connection was ever made. Safe to try again.
    Throttled {
        /// The platform's code, where it answered.
        code: Option<i64>,
        /// Its words, or the fault of the connection.
        message: String,
        /// How long it asked to wait.
        retry_after: Option<Duration>,
    },
    /// Refused in a way that every other send of the run would be: token, permission, template, account.
    RunBlocked {
        /// The platform's code.
        code: i64,
        /// The platform's words.
        message: String,
    },
    /// Perhaps processed: time-out, reset, unreadable or 5xx answer after the request left. Never sent again.
    Unknown {
        /// What happened.
        detail: String,
    },
    /// Perhaps processed, and no other send of the run would fare better: the answer says no, and not in the platform's
    /// words, as a proxy's does, or whoever answers at a wrong address. Never sent again.
    OpaqueRejection {
        /// What happened.
        detail: String,
    },
}

redacted_debug!(
    enum SendOutcome {
        Accepted,
        Failed,
        Throttled,
        RunBlocked,
        Unknown,
        OpaqueRejection,
    }
);

impl SendOutcome {
    /// What somebody who waits for the answer is told of a message that surely did not leave; nothing of any other one.
    pub fn refusal(&self) -> Option<GatewayError> {
        match self {
            Self::Accepted { .. } | Self::Unknown { .. } | Self::OpaqueRejection { .. } => None,
            Self::Failed { code, message }
            | Self::RunBlocked { code, message }
            | Self::Throttled {
                code: Some(code),
                message,
                ..
            } => Some(GatewayError::Refused {
                code: *code,
                message: message.clone(),
            }),
            Self::Throttled {
                code: None, message, ..
            } => Some(GatewayError::Unavailable(message.clone())),
        }
    }
}

/// What is written of a send after a call.
#[derive(Clone, PartialEq, Eq)]
pub enum SendResult {
    /// It is sent.
    Sent {
        /// The platform's id of the message.
        message_id: Option<String>,
        /// The recipient's id with the platform.
        wa_id: Option<String>,
    },
    /// It failed.
    Failed {
        /// The platform's code, where it gave one.
        code: Option<i64>,
        /// Why, for the caller.
        message: String,
    },
    /// Nobody knows: it stays pending until news or time settles it.
    Unknown,
    /// It did not leave: it waits for another claim, after the delay. One more attempt is counted.
    Deferred {
        /// How long.
        delay: Duration,
    },
    /// It did not leave, because its number sends faster than it may: it waits for another claim, after the delay. No
    /// attempt is counted, since the number's rate is at fault and goes down.
    Throttled {
        /// How long.
        delay: Duration,
    },
    /// It was started and surely not processed, and no attempt is counted: the run stops, and the send is due again. Only
    /// for sends that the reporter itself marked as started; nobody else can have started them meanwhile.
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

/// Why a run has to wait for somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlock {
    /// In words.
    pub reason: String,
    /// What the platform has done to the template, where it is that.
    pub review: Option<MetaStatus>,
}

/// What follows from an outcome for the send (tried `attempts` times before) and, where it has to wait, for the run.
pub fn settle(send: SendId, attempts: u32, outcome: SendOutcome) -> (SendId, SendResult, Option<RunBlock>) {
    let (result, block) = match outcome {
        SendOutcome::Accepted { message_id, wa_id } => (
            SendResult::Sent {
                message_id: Some(message_id),
                wa_id,
            },
            None,
        ),
        SendOutcome::Failed { code, message } => (
            SendResult::Failed {
                code: Some(code),
                message,
            },
            None,
        ),
        SendOutcome::Throttled {
            code: Some(THROUGHPUT),
            retry_after,
            ..
        } => (
            SendResult::Throttled {
                delay: spread(send, attempts, backoff(None, 0, retry_after)),
            },
            None,
        ),
        SendOutcome::Throttled { code, message, .. } if attempts >= RETRIES => (
            SendResult::Failed {
                code,
                message: format!("gave up after {RETRIES} retries: {message}"),
            },
            None,
        ),
        SendOutcome::Throttled { code, retry_after, .. } => (
            SendResult::Deferred {
                delay: spread(send, attempts, backoff(code, attempts, retry_after)),
            },
            None,
        ),
        SendOutcome::RunBlocked { code, message } => {
            let reason = format!("{message} (code {code})");
            let review = review(code);
            (SendResult::Released, Some(RunBlock { reason, review }))
        }
        SendOutcome::Unknown { .. } => (SendResult::Unknown, None),
        SendOutcome::OpaqueRejection { detail } => {
            let reason = format!("the messaging platform cannot be reached: {detail}");
            (SendResult::Unknown, Some(RunBlock { reason, review: None }))
        }
    };
    (send, result, block)
}

/// What a code says of the template.
fn review(code: i64) -> Option<MetaStatus> {
    match code {
        132_015 => Some(MetaStatus::Paused),
        132_016 => Some(MetaStatus::Disabled),
        _ => None,
    }
}

/// 1, 2, 4, ... seconds, or 1, 4, 16, ... where one recipient gets too much; the platform's own wish is kept to. At
/// most a minute, before it is spread.
fn backoff(code: Option<i64>, attempts: u32, retry_after: Option<Duration>) -> Duration {
    const PAIR_RATE: i64 = 131_056;
    let base: i64 = if code == Some(PAIR_RATE) { 4 } else { 2 };
    let wait = Duration::seconds(base.saturating_pow(attempts));
    retry_after.unwrap_or(Duration::ZERO).max(wait).min(BACKOFF_MAX)
}

/// Up to a quarter longer, so that what was throttled together does not come again together. By the send's own id, which
/// is as good as random and the same whenever it is asked.
fn spread(send: SendId, attempts: u32, wait: Duration) -> Duration {
    let [share, ..] = send.0.as_u128().rotate_left(attempts.saturating_mul(8)).to_be_bytes();
    wait.saturating_add(wait * u32::from(share) / 1024)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn settled(attempts: u32, outcome: SendOutcome) -> (SendResult, Option<RunBlock>) {
        let (_, result, block) = settle(SendId(Uuid::nil()), attempts, outcome);
        (result, block)
    }

    fn throttled(code: i64, retry_after: Option<Duration>) -> SendOutcome {
        SendOutcome::Throttled {
            code: Some(code),
            message: "slow down".into(),
            retry_after,
        }
    }

    #[test]
    fn throttling_is_retried_with_growing_waits_and_then_fails() {
        let delays = |code| {
            (0..5).map(move |attempt| match settled(attempt, throttled(code, None)) {
                (SendResult::Deferred { delay }, None) => delay.whole_seconds(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(delays(80_007).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!(delays(131_056).collect::<Vec<_>>(), [1, 4, 16, 60, 60]);
        assert!(matches!(
            settled(5, throttled(4, None)).0,
            SendResult::Failed { code: Some(4), .. }
        ));
        let asked = settled(0, throttled(4, Some(Duration::seconds(7)))).0;
        assert_eq!(
            asked,
            SendResult::Deferred {
                delay: Duration::seconds(7)
            }
        );
    }

    #[test]
    fn a_number_over_its_rate_costs_no_send_an_attempt() {
        for attempts in [0, 3, 5, 4_000_000_000] {
            let (result, block) = settled(attempts, throttled(130_429, None));
            assert_eq!(block, None);
            assert_eq!(
                result,
                SendResult::Throttled {
                    delay: Duration::SECOND
                }
            );
        }
        let asked = settled(5, throttled(130_429, Some(Duration::seconds(7)))).0;
        assert_eq!(
            asked,
            SendResult::Throttled {
                delay: Duration::seconds(7)
            }
        );
    }

    #[test]
    fn what_was_throttled_together_comes_again_apart() {
        let sends = (0..100_u128).map(|n| {
            SendId(Uuid::from_u128(
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
            ))
        });
        let waits: std::collections::BTreeSet<_> = sends.map(|send| spread(send, 2, Duration::seconds(4))).collect();
        assert!(waits.len() > 60, "{waits:?}");
        let (first, last) = (*waits.first().unwrap(), *waits.last().unwrap());
        assert!(
            first >= Duration::seconds(4) && last < Duration::seconds(5),
            "{waits:?}"
        );
        assert!(last - first > Duration::milliseconds(700), "{waits:?}");
    }

    #[test]
    fn who_waits_is_told_only_of_what_surely_did_not_leave() {
        let (code, message, retry_after) = (131_026, "not a number", None);
        let words = || message.to_owned();
        let throttled = |code| SendOutcome::Throttled {
            code,
            message: words(),
            retry_after,
        };
        let (message_id, wa_id) = (words(), None);
        let refused = "the outside system refused (131026): not a number";
        for (outcome, told) in [
            (SendOutcome::Accepted { message_id, wa_id }, None),
            (SendOutcome::Unknown { detail: words() }, None),
            (SendOutcome::OpaqueRejection { detail: words() }, None),
            (SendOutcome::Failed { code, message: words() }, Some(refused)),
            (SendOutcome::RunBlocked { code, message: words() }, Some(refused)),
            (throttled(Some(code)), Some(refused)),
            (throttled(None), Some("the outside system is unavailable: not a number")),
        ] {
            let refusal = outcome.refusal().map(|refusal| refusal.to_string());
            assert_eq!(refusal.as_deref(), told, "{outcome:?}");
        }
    }

    #[test]
    fn an_ambiguous_call_is_never_tried_again() {
        let (result, pause) = settled(
            0,
            SendOutcome::Unknown {
                detail: "time-out".into(),
            },
        );
        assert_eq!((result, pause), (SendResult::Unknown, None));
        let (result, block) = settled(
            0,
            SendOutcome::OpaqueRejection {
                detail: "HTTP 403".into(),
            },
        );
        assert_eq!(result, SendResult::Unknown);
        assert!(block.unwrap().reason.contains("HTTP 403"));
    }

    #[test]
    fn what_concerns_the_run_stops_it_and_costs_the_send_nothing() {
        let (result, pause) = settled(
            0,
            SendOutcome::RunBlocked {
                code: 190,
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
        for (code, review) in [
            (132_015, Some(MetaStatus::Paused)),
            (132_016, Some(MetaStatus::Disabled)),
            (132_001, None),
        ] {
            let message = "template".into();
            let (_, block) = settled(0, SendOutcome::RunBlocked { code, message });
            assert_eq!(block.unwrap().review, review);
        }
    }
}
