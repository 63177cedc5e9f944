//! API keys, as their owners and as authentication read them.

use std::sync::Arc;

use ipnet::IpNet;
use secrecy::SecretString;
use thiserror::Error;
use time::OffsetDateTime;

use crate::accounts::AccountStatus;
use crate::shared::{
    AccountId, ApiKeyId, Conflict, Event, FieldErrors, KeyScopes, StoreError, UserId, redacted_debug, string_enum,
};

/// Prefix of every key. Distinguishes a key from a session token before either is parsed.
pub const KEY_PREFIX: &str = "svc_live_sk_";

/// An API key. The key itself is not stored, so it cannot be read again.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: ApiKeyId,
    /// Name that the creator gave the key, 1 to 100 characters.
    pub name: String,
    /// First 12 characters of the key; the same for every key.
    pub key_prefix: String,
    /// Last four characters of the key, to distinguish keys.
    pub key_hint: String,
    /// The part of a member's rights that the key has: `*` (all), `<area>:<verb>`, or `trigger:<template id>`.
    pub scopes: KeyScopes,
    /// When the key ends, if it does.
    pub expires_at: Option<OffsetDateTime>,
    /// Networks from which the key may be used; empty for all.
    pub allowed_cidrs: Vec<IpNet>,
    pub created_by: UserId,
    /// When the key was last used, accurate to the minute.
    pub last_used_at: Option<OffsetDateTime>,
    /// Client address of that use; none if unknown, and for callers who are neither owner nor admin.
    pub last_used_ip: Option<String>,
    /// When the key last got a new secret.
    pub rotated_at: Option<OffsetDateTime>,
    /// Until when the secret before the last rotation works.
    pub previous_valid_until: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

redacted_debug!(ApiKey {
    id,
    scopes,
    expires_at,
    rotated_at
});

/// A key with the version of its row, for optimistic locking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredApiKey {
    pub key: ApiKey,
    pub version: i64,
    /// SHA-256 of the idempotency key of the last rotation.
    pub rotation_request: Option<Vec<u8>>,
}

/// The new secret of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// SHA-256 of the new full key.
    pub hash: Vec<u8>,
    /// Whether the current secret was never answered and is replaced. The secret before it keeps its end.
    pub is_repeated: bool,
}

/// A key with a new secret. Only this value contains the full key.
#[derive(Debug)]
pub struct NewApiKey {
    pub key: ApiKey,
    pub full_key: SecretString,
}

/// A new key to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub account_id: AccountId,
    pub key: ApiKey,
    /// SHA-256 of the full key.
    pub hash: Vec<u8>,
}

/// The fields of a key that authentication reads, for one of its secrets.
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
    /// When the key ends.
    pub expires_at: Option<OffsetDateTime>,
    /// When this secret ends. `None`: it is the current one.
    pub secret_valid_until: Option<OffsetDateTime>,
    /// Behind a reference count, because every request copies the grant from a cache.
    pub terms: Arc<KeyTerms>,
}

/// What a key may be used for, and its name.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyTerms {
    pub name: String,
    pub key_hint: String,
    pub scopes: Arc<KeyScopes>,
    pub allowed_cidrs: Vec<IpNet>,
}

redacted_debug!(KeyTerms { scopes });

/// A use of a key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyUse {
    pub at: OffsetDateTime,
    pub ip_address: Option<String>,
}

redacted_debug!(KeyUse { at });

string_enum! {
    /// The latest notification about the end of a key.
    ExpiryNotice {
        /// None was given for the current expiry.
        Unsent = "none",
        /// A warning seven days before.
        Week = "week",
        /// A warning one day before.
        Day = "day",
        /// The key has expired.
        Expired = "expired",
    }
}

/// The times that decide which keys a notification is due for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeTimes {
    /// Keys that expire until then have expired.
    pub now: OffsetDateTime,
    /// Keys that expire until then get the second warning.
    pub day: OffsetDateTime,
    /// Keys that expire until then get the first warning.
    pub week: OffsetDateTime,
    /// Keys whose creation, last use and last notification about it are not later are unused.
    pub unused_since: OffsetDateTime,
}

/// A claimed key for which a notification may be due.
#[derive(Clone, PartialEq, Eq)]
pub struct NoticeClaim {
    pub account_id: AccountId,
    pub id: ApiKeyId,
    pub name: String,
    pub key_hint: String,
    pub created_at: OffsetDateTime,
    pub last_used_at: Option<OffsetDateTime>,
    pub expires_at: Option<OffsetDateTime>,
    pub expiry_notice: ExpiryNotice,
    pub unused_notified_at: Option<OffsetDateTime>,
    /// End of the lease, which also is its fencing token.
    pub lease_until: OffsetDateTime,
}

redacted_debug!(NoticeClaim {
    account_id,
    id,
    expires_at,
    expiry_notice
});

/// The decision on a claimed key.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeDecision {
    pub claim: NoticeClaim,
    pub expiry_notice: ExpiryNotice,
    pub unused_notified_at: Option<OffsetDateTime>,
    pub events: Vec<Event>,
}

/// Error of authentication by API key or of an API key use case.
#[derive(Debug, Error)]
pub enum ApiKeyError {
    /// The presented key does not exist, has expired, or may not be used from the caller's address. One error for all,
    /// so that a caller cannot find out which.
    #[error("the API key is not valid")]
    Unknown,
    /// The key's account is suspended.
    #[error("this account is suspended")]
    Suspended,
    /// The account has no key with this id.
    #[error("no such API key")]
    NotFound,
    /// An expired key gets no new secret.
    #[error("The API key has expired; change its expires_at first, or create a new key")]
    Expired,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] StoreError),
}
