//! What API keys need from the store.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{ApiKey, KeyGrant, KeyRecord};
use crate::shared::{AccountId, ApiKeyId, Event, InsertOutcome, StoreError};

/// Looks up keys by the SHA-256 of the whole key, as [`ApiKeyStore::find`] does, many with one statement.
#[async_trait]
pub trait ApiKeyDirectory: Send + Sync {
    /// The keys with these hashes, each with its hash. A hash that no key has is not in the answer.
    async fn find_many(&self, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, KeyGrant)>, StoreError>;
}

/// Keys, and the directory that finds one by the SHA-256 of the whole key. That look-up crosses tenants by nature:
/// a presented key says nothing of its account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ApiKeyStore: Send + Sync {
    /// The key with this hash. MUST see a deletion that this process answered at once, one of another process within a
    /// second, and cost the same however many keys there are.
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError>;

    /// Writes `last_used_at`, never backwards.
    async fn touch(&self, account: AccountId, key: ApiKeyId, now: OffsetDateTime) -> Result<(), StoreError>;

    /// Every key of the account, newest first.
    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError>;

    /// Writes the key, its place in the directory and the events in one transaction, unless the account already has
    /// `at_most` keys, also counting those that are being made at the same moment.
    async fn insert(&self, record: &KeyRecord, at_most: i64, events: &[Event]) -> Result<InsertOutcome, StoreError>;

    /// Removes the key, its place in the directory, and writes the events, in one transaction; false when the account
    /// has no such key.
    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<bool, StoreError>;
}
