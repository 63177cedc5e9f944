//! Keys as they are published, and what authentication needs to know of one.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::accounts::AccountStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, ApiKeyId, FieldErrors, StoreError, UserId, timestamp};

/// How every key begins; tells a key from a session token before either is parsed.
pub const KEY_PREFIX: &str = "svc_live_sk_";

/// An API key. The key itself is not kept: nothing here can be presented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ApiKey {
    /// The id of the key.
    pub id: ApiKeyId,
    /// What it is for, in its maker's words: 1 to 100 characters.
    #[schemars(example = &"Shop integration")]
    pub name: String,
    /// Its first 12 characters: the same for every key.
    #[schemars(example = &"svc_live_sk_")]
    pub key_prefix: String,
    /// Its last four characters, to tell keys apart.
    #[schemars(example = &"x9Qa")]
    pub key_hint: String,
    /// When it was last used, to the minute; null when it never was.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_used_at: Option<OffsetDateTime>,
    /// When it was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// A key that was just made: the one time that it is known whole.
#[derive(Debug)]
pub struct NewApiKey {
    /// What is kept of it.
    pub key: ApiKey,
    /// All of it.
    pub full_key: SecretString,
}

/// What the store keeps of a new key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The account it acts in.
    pub account_id: AccountId,
    /// Who made it.
    pub created_by: UserId,
    /// What is published of it.
    pub key: ApiKey,
    /// SHA-256 of the whole key.
    pub hash: Vec<u8>,
}

/// What authentication needs to know of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGrant {
    /// The key.
    pub id: ApiKeyId,
    /// The account it acts in.
    pub account_id: AccountId,
    /// The user who made it: it acts in their name, also after they left.
    pub created_by: UserId,
    /// Whether the account may work.
    pub status: AccountStatus,
    /// When it was last presented, to the minute.
    pub last_used_at: Option<OffsetDateTime>,
}

/// Why a key opens nothing, or something was not done with keys.
#[derive(Debug, Error)]
pub enum ApiKeyError {
    /// No such key was presented.
    #[error("the API key is not valid")]
    Unknown,
    /// Its account is suspended.
    #[error("this account is suspended")]
    Suspended,
    /// The account has no key with this id.
    #[error("no such API key")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
