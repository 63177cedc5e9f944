//! How a call to WhatsApp for one message ended.

use time::Duration;

use super::{BlockCause, ErrorClass, ThrottleScope};
use crate::shared::{GatewayError, redacted_debug};

/// How a call to WhatsApp ended, by WhatsApp's error classes.
#[derive(Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// Accepted (not yet delivered).
    Accepted {
        /// WhatsApp's id of the message.
        message_id: String,
        /// WhatsApp's id of the recipient, if the response contains one.
        wa_id: Option<String>,
    },
    /// WhatsApp permanently rejected this one message.
    Failed {
        code: i64,
        class: ErrorClass,
        message: String,
    },
    /// Certainly not processed: throttled, or no connection was made. Safe to retry.
    Throttled {
        /// WhatsApp's error code. None if there was no connection.
        code: Option<i64>,
        /// What sends too fast. None if WhatsApp does not say it.
        scope: Option<ThrottleScope>,
        /// WhatsApp's error message, or the connection error.
        message: String,
        /// The wait that WhatsApp requested.
        retry_after: Option<Duration>,
    },
    /// Rejected for a reason that concerns every send of the run: token, permission, template or account.
    RunBlocked {
        code: i64,
        cause: BlockCause,
        message: String,
    },
    /// Possibly processed: a timeout, a reset, or an unreadable or 5xx response after the request left. Never resent.
    Unknown { detail: String },
    /// Possibly processed, and every other send of the run would fail too: a rejection without WhatsApp's error body,
    /// for example from a proxy or from another server at a wrong address. Never resent.
    OpaqueRejection { detail: String },
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
    /// The class of the error if WhatsApp rejected this one message.
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Failed { class, .. } => Some(*class),
            Self::Accepted { .. }
            | Self::Throttled { .. }
            | Self::RunBlocked { .. }
            | Self::Unknown { .. }
            | Self::OpaqueRejection { .. } => None,
        }
    }

    /// The error for a synchronous caller if the message certainly did not leave. None for every other outcome.
    pub fn refusal(&self) -> Option<GatewayError> {
        match self {
            Self::Accepted { .. } | Self::Unknown { .. } | Self::OpaqueRejection { .. } => None,
            Self::Failed { code, message, .. }
            | Self::RunBlocked { code, message, .. }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_none_for_a_message_that_may_have_left() {
        let (code, message, retry_after) = (131_026, "not a number", None);
        let text = || message.to_owned();
        let throttled = |code| SendOutcome::Throttled {
            code,
            scope: None,
            message: text(),
            retry_after,
        };
        let failed = SendOutcome::Failed {
            code,
            class: ErrorClass::RecipientUnreachable,
            message: text(),
        };
        let blocked = SendOutcome::RunBlocked {
            code,
            cause: BlockCause::Token,
            message: text(),
        };
        let (message_id, wa_id) = (text(), None);
        let refused = "the outside system refused (131026): not a number";
        for (outcome, expected) in [
            (SendOutcome::Accepted { message_id, wa_id }, None),
            (SendOutcome::Unknown { detail: text() }, None),
            (SendOutcome::OpaqueRejection { detail: text() }, None),
            (failed, Some(refused)),
            (blocked, Some(refused)),
            (throttled(Some(code)), Some(refused)),
            (throttled(None), Some("the outside system is unavailable: not a number")),
        ] {
            let refusal = outcome.refusal().map(|refusal| refusal.to_string());
            assert_eq!(refusal.as_deref(), expected, "{outcome:?}");
        }
    }
}
