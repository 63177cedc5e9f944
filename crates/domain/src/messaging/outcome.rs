//! How a call to WhatsApp for one message ended, and WhatsApp's error codes.

use time::Duration;

use crate::shared::{GatewayError, redacted_debug};

/// WhatsApp's error code for a message to a contact who stopped marketing messages.
pub const STOPPED_MARKETING: i64 = 131_050;

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
    Failed { code: i64, message: String },
    /// Certainly not processed: throttled, or no connection was made. Safe to retry.
    Throttled {
        /// WhatsApp's error code. None if there was no connection.
        code: Option<i64>,
        /// WhatsApp's error message, or the connection error.
        message: String,
        /// The wait that WhatsApp requested.
        retry_after: Option<Duration>,
    },
    /// Rejected for a reason that concerns every send of the run: token, permission, template or account.
    RunBlocked { code: i64, message: String },
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
    /// The error for a synchronous caller if the message certainly did not leave. None for every other outcome.
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

/// Whether every message of a run would fail with this error code (Meta, "Cloud API error codes").
pub const fn pauses_runs(code: i64) -> bool {
    match code {
        // Token and permissions.
        0 | 3 | 10 | 190 | 200..=299 | 131_005 => true,
        // The account: locked, restricted, misclassified templates, unpaid, phone number not registered.
        368 | 130_497 | 131_031 | 131_042 | 131_064 | 133_010 | 133_016 => true,
        // The template: wrong number of parameters, missing, paused or disabled.
        132_000 | 132_001 | 132_015 | 132_016 => true,
        _ => false,
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
            message: text(),
            retry_after,
        };
        let (message_id, wa_id) = (text(), None);
        let refused = "the outside system refused (131026): not a number";
        for (outcome, expected) in [
            (SendOutcome::Accepted { message_id, wa_id }, None),
            (SendOutcome::Unknown { detail: text() }, None),
            (SendOutcome::OpaqueRejection { detail: text() }, None),
            (SendOutcome::Failed { code, message: text() }, Some(refused)),
            (SendOutcome::RunBlocked { code, message: text() }, Some(refused)),
            (throttled(Some(code)), Some(refused)),
            (throttled(None), Some("the outside system is unavailable: not a number")),
        ] {
            let refusal = outcome.refusal().map(|refusal| refusal.to_string());
            assert_eq!(refusal.as_deref(), expected, "{outcome:?}");
        }
    }
}
