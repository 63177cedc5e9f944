//! Ports to time, shutdown, ids, secrets, encryption and error reporting.

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{SealContext, Sealed, StoreError, string_enum};

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Clock: Send + Sync {
    /// The current time in UTC.
    fn now(&self) -> OffsetDateTime;
}

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait Timer: Send + Sync {
    /// Returns after `duration`, also if the server stops meanwhile. At once if it is not positive.
    async fn sleep(&self, duration: Duration);
}

/// The stop of the server. It begins once and is never taken back.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait Shutdown: Send + Sync {
    /// Whether the server is stopping.
    fn is_stopping(&self) -> bool;

    /// Returns when the server begins to stop, at once if it is stopping already.
    async fn stopped(&self);
}

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Ids: Send + Sync {
    /// A new UUID v7: later ids sort after earlier ones.
    fn next(&self) -> Uuid;
}

/// Generates cryptographically random secrets.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Secrets: Send + Sync {
    /// Returns this many random bytes as base64url without padding.
    fn token(&self, bytes: usize) -> SecretString;
}

string_enum! {
    /// A secondary step whose failure does not change the result for the caller.
    SideStep {
        /// Ending the subscription of a removed account. The worker retries it.
        CancelSubscription = "cancel_subscription",
        /// Releasing the quota reservation of a test send that WhatsApp rejected.
        ReturnTestQuota = "return_test_quota",
        /// Postponing a failed RFM calculation. Its lease expires.
        PostponeScores = "postpone_scores",
        /// Recording WhatsApp's response to a reply. Its status updates resolve it.
        RecordReply = "record_reply",
        /// Note what a number did last, or ask for its check.
        NoteNumber = "note_number",
        /// Looking up a phone number for a message that a user id did not reach. The message fails.
        FindPhone = "find_phone",
        /// Noting that a message was sent to a phone number instead of a user id.
        NoteAddress = "note_address",
        /// Storing that WhatsApp paused or disabled the template of a message. The next message of it stores it.
        ReviewTemplate = "review_template",
    }
}

/// Locks of rows across servers, for requests that check a row before they change it.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RowLocks: Send + Sync {
    /// Waits for the lock of a row, which any text names. Errors: `Unavailable` after a time.
    async fn lock(&self, row: &str) -> Result<Box<dyn RowLock>, StoreError>;
}

/// The lock of a row. Dropping it releases it and closes its connection; `release` keeps the connection.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RowLock: Send {
    async fn release(self: Box<Self>);
}

/// Logs and counts errors that are not returned to a caller. An implementation MUST NOT block.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait ErrorReport: Send + Sync {
    /// Reports the failure of a secondary step.
    fn swallowed(&self, step: SideStep, error: &dyn std::error::Error);
}

/// Encrypts stored secrets, such as WhatsApp access tokens.
///
/// Contract: `open(seal(x, place), place) == x`. Two seals of the same text MUST differ. `open` MUST reject a modified
/// value, and a value that was sealed for another place.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Cipher: Send + Sync {
    /// Seals under the current key.
    fn seal(&self, secret: &SecretString, context: &SealContext) -> Sealed;
    /// Returns `None` if the value is damaged, belongs to another place, or its key is not configured. The
    /// implementation logs which.
    fn open(&self, sealed: &Sealed, context: &SealContext) -> Option<SecretString>;
}

/// Returns the SHA-256 hash, by which long random secrets (API keys, invite tokens) are stored.
pub fn secret_hash(secret: &SecretString) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(secret.expose_secret().as_bytes()).to_vec()
}
