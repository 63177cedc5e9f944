//! API keys as published, and as authentication reads them.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::accounts::AccountStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, ApiKeyId, FieldErrors, StoreError, UserId, timestamp};

/// Prefix of every key. Distinguishes a key from a session token before either is parsed.
pub const KEY_PREFIX: &str = "svc_live_sk_";

/// An API key. The key itself is not stored, so it cannot be read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ApiKey {
    /// Id of the key.
    pub id: ApiKeyId,
    /// Name that the creator gave the key, 1 to 100 characters.
    #[schemars(example = &"Shop integration")]
    pub name: String,
    /// First 12 characters of the key; the same for every key.
    #[schemars(example = &"svc_live_sk_")]
    pub key_prefix: String,
    /// Last four characters of the key, to distinguish keys.
    #[schemars(example = &"x9Qa")]
    pub key_hint: String,
    /// When the key was last used, accurate to the minute; null if never.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_used_at: Option<OffsetDateTime>,
    /// When the key was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// A new key. Only this value contains the full key.
#[derive(Debug)]
pub struct NewApiKey {
    pub key: ApiKey,
    pub full_key: SecretString,
}

/// A new key to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub account_id: AccountId,
    pub created_by: UserId,
    pub key: ApiKey,
    /// SHA-256 of the full key.
    pub hash: Vec<u8>,
}

/// The fields of a key that authentication reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGrant {
    pub id: ApiKeyId,
    pub account_id: AccountId,
    /// The user who created the key. The key acts in their name, even after they left the account.
    pub created_by: UserId,
    /// Status of the account.
    pub status: AccountStatus,
    /// When the key was last used, accurate to the minute.
    pub last_used_at: Option<OffsetDateTime>,
}

/// Error of authentication by API key or of an API key use case.
#[derive(Debug, Error)]
pub enum ApiKeyError {
    /// The presented key does not exist.
    #[error("the API key is not valid")]
    Unknown,
    /// The key's account is suspended.
    #[error("this account is suspended")]
    Suspended,
    /// The account has no key with this id.
    #[error("no such API key")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}
