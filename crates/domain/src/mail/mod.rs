//! Mails that Recado sends itself, such as invitations.
//!
//! Owns the rules of the queue: mails are sealed, sent at least once, and abandoned after `RETRY_DELAYS`. The context
//! that queues a mail writes its text. The gateways crate implements SMTP.

mod names;
mod recipients;
mod sender;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::Duration;

use crate::shared::{AccountId, Cipher, MailId, SealContext, SealPurpose, Sealed, StoreError, redacted_debug};

pub use names::name_in_mail;
pub use recipients::*;
pub use sender::{MailOutcome, MailSender, retry_after};

/// A mail in plain text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Recipient address.
    pub to: String,
    /// A single line.
    pub subject: String,
    /// May contain a secret, so it is stored sealed and never logged.
    pub text: String,
}

redacted_debug!(Mail {});

/// A queued mail, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMail {
    /// Also sent in the mail, so that a mail that was sent twice can be recognized.
    pub id: MailId,
    /// The sealed [`Mail`].
    pub content: Sealed,
}

impl OutgoingMail {
    /// Seals a mail of an account for the queue.
    pub fn seal(cipher: &dyn Cipher, account: AccountId, id: MailId, mail: &Mail) -> Self {
        let text = SecretString::from(serde_json::json!(mail).to_string());
        Self {
            id,
            content: cipher.seal(&text, &context(account, id)),
        }
    }
}

fn context(account: AccountId, id: MailId) -> SealContext {
    SealContext::new(SealPurpose::QueuedMail, account, id)
}

/// A mail claimed for sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMail {
    pub mail: OutgoingMail,
    pub account_id: AccountId,
    /// Number of claims, including this one.
    pub attempts: u32,
}

impl ClaimedMail {
    /// Opens the mail. Returns `None` if its key is not configured, or it was sealed for another row.
    pub fn open(&self, cipher: &dyn Cipher) -> Option<Mail> {
        let text = cipher.open(&self.mail.content, &context(self.account_id, self.mail.id))?;
        serde_json::from_str(text.expose_secret()).ok()
    }
}

/// Why a mail was not sent. The text contains no recipient, content or password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MailError {
    /// Permanent: the mail is invalid.
    #[error("cannot be sent as a mail: {0}")]
    Unsendable(&'static str),
    /// A retry may succeed.
    #[error("was not sent: {0}")]
    Failed(String),
}

/// Port to the mail server.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Sends a mail within a bounded time. MUST include the id in the mail; it is the same for every attempt.
    async fn send(&self, id: MailId, mail: &Mail) -> Result<(), MailError>;
}

/// The mail queue. The store of the context that writes a mail enqueues it in the transaction of its cause.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MailQueue: Send + Sync {
    /// Claims a mail and counts the attempt. No other caller receives it until the lease expires by the database's
    /// clock; then it is due again.
    ///
    /// MUST take the accounts in turn: the next account after `previous` that has a due mail, in the order of their ids
    /// and from the beginning after the last one. Of its mails, the one that has been due longest.
    async fn claim(&self, lease: Duration, previous: Option<AccountId>) -> Result<Option<ClaimedMail>, StoreError>;

    /// Deletes a mail that was sent or abandoned.
    async fn delete(&self, id: MailId) -> Result<(), StoreError>;

    /// Makes a mail due again after `delay`. Changes nothing if another worker has claimed it since, which `attempts`
    /// shows.
    async fn defer(&self, id: MailId, attempts: u32, delay: Duration) -> Result<(), StoreError>;
}
