//! What webhooks need from outside.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One attempt to deliver, as it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub url: String,
    /// The header `webhook-id`: the same in every attempt.
    pub message_id: String,
    /// The header `webhook-timestamp`: when this attempt was made, in seconds since 1970.
    pub timestamp: i64,
    /// The header `webhook-signature`.
    pub signatures: String,
    /// The body, to be sent as it is: it is what was signed.
    pub body: Vec<u8>,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver answered.
    Answered {
        /// With this status.
        status: u16,
        /// And wants to be left alone for so long.
        retry_after: Option<Duration>,
    },
    /// Nobody answered.
    Unreachable(Failure),
}

/// Why there was no answer: published in a log's `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The address is not one that we call.
    Refused,
    /// The name has no address.
    Resolution,
    /// Nobody took the call.
    Connection,
    /// No trust was established.
    Tls,
    /// It took too long.
    TimedOut,
    /// The answer was unreadable, or cut off.
    Broken,
}

/// Calls receivers.
///
/// Contract: connects to no address that is not allowed, whatever the name resolves to; follows no redirect; gives up
/// after 15 seconds at most; keeps nothing of the answer but what [`Outcome`] says.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryGateway: Send + Sync {
    /// Makes one attempt.
    async fn deliver(&self, request: &Request) -> Outcome;
}

/// Why a URL is not called, in words for whoever named it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UrlRefusal(pub String);

/// Tells addresses that may be called from those that may not.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait AddressGuard: Send + Sync {
    /// Whether the URL may be called, as far as it says itself: a name passes, whatever it resolves to later.
    fn allows_url(&self, url: &str) -> Result<(), UrlRefusal>;
}
