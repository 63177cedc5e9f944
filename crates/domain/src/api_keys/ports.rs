//! Database ports of API keys.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{ApiKey, KeyGrant, KeyRecord};
use crate::shared::{AccountId, ApiKeyId, Event, InsertOutcome, StoreError};

/// Looks up many keys by the SHA-256 of the full key with one statement. See [`ApiKeyStore::find`].
#[async_trait]
pub trait ApiKeyDirectory: Send + Sync {
    /// Returns the keys with these hashes, each with its hash. Unknown hashes are omitted.
    async fn find_many(&self, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, KeyGrant)>, StoreError>;
}

/// Keys, and the directory that finds a key by the SHA-256 of the full key. That lookup sees all tenants, because a
/// key does not contain its account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ApiKeyStore: Send + Sync {
    /// Finds the key with this hash. MUST see a deletion of this process at once, and one of another process within a
    /// second. The cost MUST NOT depend on the number of keys.
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError>;

    /// Sets `last_used_at`. MUST NOT set it to an earlier time.
    async fn touch(&self, account: AccountId, key: ApiKeyId, now: OffsetDateTime) -> Result<(), StoreError>;

    /// Returns every key of the account, newest first.
    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError>;

    /// Inserts the key and its directory row and appends the events, in one transaction. Inserts nothing if the account
    /// has `at_most` keys, including concurrently inserted ones.
    async fn insert(&self, record: &KeyRecord, at_most: i64, events: &[Event]) -> Result<InsertOutcome, StoreError>;

    /// Deletes the key and its directory row and appends the events, in one transaction. Returns false if the account
    /// has no such key.
    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<bool, StoreError>;
}
