//! Sealed values: secrets as the database stores them, bound to their place.

use thiserror::Error;
use uuid::Uuid;

use super::{AccountId, ProfileId, WebhookId, string_enum};

/// A secret as it is stored: encrypted and authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed(pub Vec<u8>);

string_enum! {
    /// What a sealed value is. Every purpose has its own key, and its word is part of the key derivation: it MUST NOT
    /// change.
    SealPurpose {
        /// The access token of a WhatsApp number.
        WhatsappToken = "whatsapp_token",
        /// The current or the previous secret of a webhook endpoint.
        WebhookSecret = "webhook_secret",
        /// The response to a request with an idempotency key.
        StoredResponse = "stored_response",
        /// A mail that waits to be sent.
        QueuedMail = "queued_mail",
        /// An inbound event that waits for a profile to be verified.
        HeldMessage = "held_message",
    }
}

/// The place of a sealed value: associated data of its encryption. A value that is copied to another row, table or
/// account cannot be opened there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealContext {
    pub purpose: SealPurpose,
    /// The account of the row, or the user on routes without an account. Nil for a row of no account.
    pub account: Uuid,
    /// The row's key within the account, as PostgreSQL writes it as text.
    pub row: String,
}

impl SealContext {
    pub fn new(purpose: SealPurpose, account: impl Into<Uuid>, row: impl ToString) -> Self {
        Self {
            purpose,
            account: account.into(),
            row: row.to_string(),
        }
    }

    /// The access token of a number.
    pub fn whatsapp_token(account: AccountId, profile: ProfileId) -> Self {
        Self::new(SealPurpose::WhatsappToken, account, profile)
    }

    /// A held inbound event. Its key contains the number, and no account has it yet.
    pub fn held_message(key: &[u8]) -> Self {
        Self::new(
            SealPurpose::HeldMessage,
            Uuid::nil(),
            format!("\\x{}", hex::encode(key)),
        )
    }

    /// The current and the previous secret of an endpoint: a rotation moves the one to the other as it is.
    pub fn webhook_secret(account: AccountId, endpoint: WebhookId) -> Self {
        Self::new(SealPurpose::WebhookSecret, account, endpoint)
    }
}

/// Why a sealed value cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnsealError {
    /// No configured secret has this key id.
    #[error("is sealed under key {0}, which belongs to neither APP_SECRET nor APP_SECRET_PREVIOUS; add its secret")]
    UnknownKey(String),
    /// The key is known, but the value was changed, or was sealed for another row, table or account.
    #[error("is damaged, or was sealed for another row, table or account")]
    WrongPlace,
    /// The value has no key id: it has the format of earlier versions, and no configured secret opens it.
    #[error("has no key id and opens under neither APP_SECRET nor APP_SECRET_PREVIOUS")]
    Unrecognized,
}

/// Moves sealed values to the current key.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait Resealer: Send + Sync {
    /// The first bytes of every value that is sealed under the current key, and of no other.
    fn current_marker(&self) -> Vec<u8>;

    /// Opens a value and seals it under the current key for the same place.
    fn reseal(&self, sealed: &Sealed, context: &SealContext) -> Result<Sealed, UnsealError>;
}
