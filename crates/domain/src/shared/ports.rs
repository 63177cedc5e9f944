//! Ports to what makes a program unpredictable: time, ids, secrets.

use secrecy::{ExposeSecret, SecretString};
use time::OffsetDateTime;
use uuid::Uuid;

use super::string_enum;

/// Tells the time.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Clock: Send + Sync {
    /// Now, in UTC.
    fn now(&self) -> OffsetDateTime;
}

/// Makes ids.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Ids: Send + Sync {
    /// A new UUID v7: later ids sort after earlier ones.
    fn next(&self) -> Uuid;
}

/// Makes secrets that nobody can guess.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Secrets: Send + Sync {
    /// So many random bytes, as base64url without padding.
    fn token(&self, bytes: usize) -> SecretString;
}

string_enum! {
    /// A step whose failure does not change what the caller is told.
    SideStep {
        /// Ending the subscription of a removed account; the worker tries it again.
        CancelSubscription = "cancel_subscription",
        /// Giving back the place in the month of a test that WhatsApp refused.
        ReturnTestQuota = "return_test_quota",
        /// Putting off a calculation of customers that failed; its lease runs out.
        PostponeScores = "postpone_scores",
        /// Recording what WhatsApp answered to a reply; its status updates settle it.
        RecordReply = "record_reply",
    }
}

/// Logs and counts errors that go no further, so that none disappears. An implementation MUST NOT block.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait ErrorReport: Send + Sync {
    /// A step failed.
    fn swallowed(&self, step: SideStep, error: &dyn std::error::Error);
}

/// A secret as it is stored: encrypted and authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed(pub Vec<u8>);

/// Encrypts what has to be stored and read again, such as the platform's access tokens.
///
/// Contract: `open(seal(x)) == x`; two seals of one text differ; a changed byte is refused, never decrypted to garbage.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Cipher: Send + Sync {
    /// Encrypts.
    fn seal(&self, secret: &SecretString) -> Sealed;
    /// Decrypts; none when the bytes were not sealed with this key.
    fn open(&self, sealed: &Sealed) -> Option<SecretString>;
}

/// SHA-256 of a presented secret, in the form in which long random secrets (API keys, invite tokens) are stored.
pub fn secret_hash(secret: &SecretString) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(secret.expose_secret().as_bytes()).to_vec()
}
