//! Database ports of API keys.

use async_trait::async_trait;

use super::{ApiKey, KeyGrant, KeyRecord, KeyUse, NoticeClaim, NoticeDecision, NoticeTimes, Rotation, StoredApiKey};
use crate::shared::{AccountId, ApiKeyId, Event, InsertOutcome, RowOutcome, StoreError, TemplateId, UpdateOutcome};

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
    /// Finds the key with this hash, expired or not. MUST see a change of this process at once, and one of another
    /// process within a second. The cost MUST NOT depend on the number of keys.
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError>;

    /// Sets `last_used_at` and `last_used_ip`. MUST NOT set them to an earlier use.
    async fn touch(&self, account: AccountId, key: ApiKeyId, key_use: &KeyUse) -> Result<(), StoreError>;

    /// Returns every key of the account, newest first.
    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError>;

    /// Returns a key of the account.
    async fn get(&self, account: AccountId, key: ApiKeyId) -> Result<Option<StoredApiKey>, StoreError>;

    /// Inserts the key and its directory row and appends the events, in one transaction. Inserts nothing if the account
    /// has `at_most` keys, including concurrently inserted ones.
    async fn insert(&self, record: &KeyRecord, at_most: i64, events: &[Event]) -> Result<InsertOutcome, StoreError>;

    /// Writes name, scopes, expiry and networks if the row has `stored.version`, and appends the events, in one
    /// transaction. A changed expiry MUST be notified again.
    async fn update(
        &self,
        account: AccountId,
        stored: &StoredApiKey,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Writes hint, times and request of a rotation if the row has `stored.version`. `rotation.hash` becomes the current
    /// secret, the current one is valid until `previous_valid_until`, and every older one MUST end. A repeated rotation
    /// only replaces the current secret. One transaction with the events.
    async fn rotate(
        &self,
        account: AccountId,
        stored: &StoredApiKey,
        rotation: &Rotation,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Deletes the key and its directory rows and appends the events, in one transaction.
    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<RowOutcome, StoreError>;

    /// Returns those of the templates that the account does not have.
    async fn missing_templates(
        &self,
        account: AccountId,
        templates: &[TemplateId],
    ) -> Result<Vec<TemplateId>, StoreError>;
}

/// The notifications about keys of all accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait KeyNoticeStore: Send + Sync {
    /// Claims up to `limit` keys for which a notification may be due, each with a lease that another worker takes over
    /// when it ends. The result MUST include every such key, and may include others.
    async fn claim(&self, times: &NoticeTimes, limit: i64) -> Result<Vec<NoticeClaim>, StoreError>;

    /// Stores the decisions and appends their events, in one transaction, and releases the leases. MUST skip a key whose
    /// lease, expiry or notification has changed since its claim, so that each notification is appended once.
    async fn record(&self, decisions: &[NoticeDecision]) -> Result<(), StoreError>;
}
