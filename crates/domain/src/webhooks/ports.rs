//! What webhooks need from outside.

use std::time::Duration;

use async_trait::async_trait;

/// One attempt to deliver an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The endpoint's address.
    pub url: String,
    /// The event's id, the same at every attempt.
    pub message_id: String,
    /// When this attempt is made, in seconds since 1970.
    pub timestamp: i64,
    /// The signatures of this attempt, as the header carries them.
    pub signatures: String,
    /// The body, byte for byte as it was signed.
    pub body: Vec<u8>,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer, whatever it says.
    Answered {
        /// The HTTP status.
        status: u16,
        /// How long the endpoint wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// No answer, or none that can be read.
    Unreachable(Failure),
}

/// Why there was no answer: published in a log's `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The address is not allowed.
    Refused,
    /// The name has no address.
    Resolution,
    /// No connection.
    Connection,
    /// No encrypted connection.
    Tls,
    /// No complete answer in time.
    TimedOut,
    /// The answer is unreadable or cut.
    Broken,
}

/// Delivers.
///
/// Contract: one attempt, to an address that was judged at this very attempt; no redirect is followed; it ends within a
/// bounded time, whatever the endpoint does.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryGateway: Send + Sync {
    /// Makes one attempt.
    async fn deliver(&self, request: &Request) -> Outcome;
}
