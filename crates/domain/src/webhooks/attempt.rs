//! One attempt of a delivery: its request and its outcome.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::shared::redacted_debug;

/// The HTTP request of one attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct DeliveryRequest {
    pub url: String,
    /// The header `webhook-id`: the same in every attempt.
    pub message_id: String,
    /// The header `webhook-timestamp`: the time of this attempt, in seconds since 1970.
    pub timestamp: i64,
    /// The header `webhook-signature`.
    pub signatures: String,
    /// The signed body, which is sent unchanged.
    pub body: Vec<u8>,
}

redacted_debug!(DeliveryRequest {});

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver sent a response.
    Answered {
        status: u16,
        /// The delay that the header `Retry-After` requests.
        retry_after: Option<Duration>,
    },
    /// There was no valid response.
    Unreachable(DeliveryFailure),
}

/// Why there was no response. Published in a log's `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryFailure {
    /// The egress rules forbid the address.
    Refused,
    /// The host name does not resolve.
    Resolution,
    /// No connection was established.
    Connection,
    /// The TLS handshake failed.
    Tls,
    TimedOut,
    /// The response was unreadable or cut off.
    Broken,
}

impl DeliveryFailure {
    /// The published value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Resolution => "resolution",
            Self::Connection => "connection",
            Self::Tls => "tls",
            Self::TimedOut => "timed_out",
            Self::Broken => "broken",
        }
    }
}
