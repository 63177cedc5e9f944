//! Mail of the system's own, such as invitations.
//!
//! Owns the queue's rules: what is queued is sealed, sent at least once, tried so often and then given up. Does not own
//! what a mail says (the context that writes it) or how it travels (the gateways crate).

mod sender;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::Duration;

use crate::shared::{AccountId, Cipher, MailId, Sealed, StoreError, redacted_debug};

pub use sender::{MailOutcome, MailSender, retry_after};

/// One mail in plain text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Whom it is for.
    pub to: String,
    /// One line.
    pub subject: String,
    /// What it says; may hold a secret, so that it is stored sealed and never logged.
    pub text: String,
}

redacted_debug!(Mail {});

/// A mail as it is queued: nobody reads it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMail {
    /// Its id, also in the mail itself: a mail that went out twice can be told by it.
    pub id: MailId,
    /// The mail.
    pub content: Sealed,
}

impl OutgoingMail {
    /// Seals a mail for the queue.
    pub fn seal(cipher: &dyn Cipher, id: MailId, mail: &Mail) -> Self {
        let text = serde_json::json!(mail).to_string();
        Self {
            id,
            content: cipher.seal(&SecretString::from(text)),
        }
    }
}

/// A mail taken out of the queue for a while, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMail {
    /// The mail.
    pub mail: OutgoingMail,
    /// Whose it is.
    pub account_id: AccountId,
    /// How often it was taken, this time included.
    pub attempts: u32,
}

impl ClaimedMail {
    /// The mail itself; none when it was sealed with another key.
    pub fn open(&self, cipher: &dyn Cipher) -> Option<Mail> {
        let text = cipher.open(&self.mail.content)?;
        serde_json::from_str(text.expose_secret()).ok()
    }
}

/// Why a mail did not go out. The text names no recipient, no content and no password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MailError {
    /// Permanent: the mail is invalid.
    #[error("cannot be sent as a mail: {0}")]
    Unsendable(&'static str),
    /// It may later.
    #[error("was not sent: {0}")]
    Failed(String),
}

/// The way out.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Hands one mail over, within a bounded time. The id goes into the mail, the same at every try.
    async fn send(&self, id: MailId, mail: &Mail) -> Result<(), MailError>;
}

/// The queue. Mail is added by the store of the context that writes it, together with what the mail is about.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MailQueue: Send + Sync {
    /// Takes the mail that is due longest and counts the try. Nobody else gets it until the lease, by the database's
    /// clock, is over; then it is due again.
    async fn claim(&self, lease: Duration) -> Result<Option<ClaimedMail>, StoreError>;

    /// Deletes a mail that was sent or abandoned.
    async fn delete(&self, id: MailId) -> Result<(), StoreError>;

    /// Puts a mail back for later. Nothing happens when somebody else took it since (`attempts` is another one).
    async fn defer(&self, id: MailId, attempts: u32, delay: Duration) -> Result<(), StoreError>;
}
