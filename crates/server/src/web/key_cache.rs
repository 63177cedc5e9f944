//! In-process cache of API keys: valid keys for `FRESHNESS.trusted`, unknown keys for `UNKNOWN_FOR`. Keys that this
//! process has not seen are looked up in batches.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::sync;
use recado_domain::api_keys::{ApiKey, ApiKeyStore, KeyGrant, KeyRecord};
use recado_domain::shared::{AccountId, ApiKeyId, Event, InsertOutcome, StoreError};
use time::OffsetDateTime;

use super::auth_cache::{AuthCache, BYPASS_AFTER_CHANGE, FRESHNESS, MAX_ENTRIES, cache_with_ttl};
use super::key_lookups::KeyLookups;
use super::refreshing_cache::RefreshingCache;

/// How long a key that was valid is looked up by its own statement, not in a batch with unseen keys.
const RECOGNIZED_FOR: Duration = Duration::from_secs(3600);

/// How long a key counts as unknown. Keys are random, so no client presents one before it exists.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// The minimum interval between two `last_used_at` updates of a key. Longer than a cached grant with the old time is
/// trusted.
const TOUCHED_FOR: Duration = Duration::from_secs(1);

/// The cache, by the hashes of keys. Its clones share their entries.
#[derive(Clone)]
pub struct KeyCache {
    grants: RefreshingCache<Vec<u8>, KeyGrant>,
    recognized: sync::Cache<Vec<u8>, ()>,
    unknown: sync::Cache<Vec<u8>, ()>,
    removed: sync::Cache<ApiKeyId, ()>,
    touched: sync::Cache<ApiKeyId, ()>,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self {
            grants: RefreshingCache::new(MAX_ENTRIES, FRESHNESS),
            recognized: cache_with_ttl(RECOGNIZED_FOR),
            unknown: cache_with_ttl(UNKNOWN_FOR),
            removed: cache_with_ttl(BYPASS_AFTER_CHANGE),
            touched: cache_with_ttl(TOUCHED_FOR),
        }
    }
}

/// A key store with cached grants. A key that this process deletes is invalid before the deletion is answered.
#[derive(Clone)]
pub struct CachedKeys {
    /// Looks up keys that were valid before, and serves all other calls.
    pub store: Arc<dyn ApiKeyStore>,
    /// Looks up unseen keys on other connections, so that a flood of them takes none from other requests.
    pub unseen: KeyLookups,
    pub cache: KeyCache,
    /// Records which accounts this process changed.
    pub auth_cache: AuthCache,
}

impl CachedKeys {
    async fn load(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        if self.cache.unknown.contains_key(hash) {
            return Ok(None);
        }
        let grant = match self.cache.recognized.get(hash) {
            Some(()) => self.store.find(hash).await?,
            None => self.unseen.find(hash).await?,
        };
        match grant {
            Some(_) => self.cache.recognized.insert(hash.to_owned(), ()),
            None => self.cache.unknown.insert(hash.to_owned(), ()),
        }
        Ok(grant)
    }
}

#[async_trait]
impl ApiKeyStore for CachedKeys {
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
        if self.cache.unknown.contains_key(hash) {
            return Ok(None);
        }
        let (cached, key) = (self.clone(), hash.to_owned());
        let load = move || {
            let (cached, key) = (cached.clone(), key.clone());
            async move { cached.load(&key).await }
        };
        match self.cache.grants.get(hash.to_owned(), load).await? {
            Some(grant) if self.cache.removed.contains_key(&grant.id) => Ok(None),
            Some(grant) if self.auth_cache.account_was_changed(grant.account_id) => self.store.find(hash).await,
            grant => Ok(grant),
        }
    }

    async fn touch(&self, account: AccountId, key: ApiKeyId, now: OffsetDateTime) -> Result<(), StoreError> {
        if self.cache.touched.contains_key(&key) {
            return Ok(());
        }
        self.cache.touched.insert(key, ());
        let touched = self.store.touch(account, key, now).await;
        if touched.is_err() {
            self.cache.touched.invalidate(&key);
        }
        touched
    }

    async fn list(&self, account: AccountId) -> Result<Vec<ApiKey>, StoreError> {
        self.store.list(account).await
    }

    async fn insert(&self, record: &KeyRecord, at_most: i64, events: &[Event]) -> Result<InsertOutcome, StoreError> {
        self.store.insert(record, at_most, events).await
    }

    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<bool, StoreError> {
        let deleted = self.store.delete(account, key, events).await?;
        if deleted {
            self.cache.removed.insert(key, ());
        }
        Ok(deleted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use recado_domain::accounts::AccountStatus;
    use recado_domain::api_keys::ApiKeyDirectory;
    use recado_domain::shared::UserId;
    use uuid::Uuid;

    use super::*;

    const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
    const KEY: ApiKeyId = ApiKeyId(Uuid::from_u128(2));
    const HASH: &[u8] = b"known";

    /// A store with one key. It counts calls.
    #[derive(Default)]
    struct Keys {
        finds: AtomicUsize,
        touches: AtomicUsize,
        is_deleted: Mutex<bool>,
    }

    impl Keys {
        fn counts(&self) -> (usize, usize) {
            (self.finds.load(Ordering::SeqCst), self.touches.load(Ordering::SeqCst))
        }
    }

    #[async_trait]
    impl ApiKeyDirectory for Keys {
        async fn find_many(&self, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, KeyGrant)>, StoreError> {
            let mut found = Vec::new();
            for hash in hashes {
                let grant = self.find(hash).await?;
                found.extend(grant.map(|grant| (hash.to_vec(), grant)));
            }
            Ok(found)
        }
    }

    #[async_trait]
    impl ApiKeyStore for Keys {
        async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError> {
            self.finds.fetch_add(1, Ordering::SeqCst);
            let exists = hash == HASH && !*self.is_deleted.lock().unwrap();
            Ok(exists.then_some(KeyGrant {
                id: KEY,
                account_id: ACCOUNT,
                created_by: UserId(Uuid::nil()),
                status: AccountStatus::Active,
                last_used_at: None,
            }))
        }

        async fn touch(&self, _: AccountId, _: ApiKeyId, _: OffsetDateTime) -> Result<(), StoreError> {
            self.touches.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        async fn list(&self, _: AccountId) -> Result<Vec<ApiKey>, StoreError> {
            unreachable!()
        }

        async fn insert(&self, _: &KeyRecord, _: i64, _: &[Event]) -> Result<InsertOutcome, StoreError> {
            unreachable!()
        }

        async fn delete(&self, _: AccountId, _: ApiKeyId, _: &[Event]) -> Result<bool, StoreError> {
            *self.is_deleted.lock().unwrap() = true;
            Ok(true)
        }
    }

    fn cached() -> (CachedKeys, Arc<Keys>, Arc<Keys>) {
        let (direct, batched) = (Arc::new(Keys::default()), Arc::new(Keys::default()));
        let cached = CachedKeys {
            store: direct.clone(),
            unseen: KeyLookups::new(batched.clone()),
            cache: KeyCache::default(),
            auth_cache: AuthCache::default(),
        };
        (cached, direct, batched)
    }

    async fn is_valid(cached: &CachedKeys, hash: &[u8]) -> bool {
        cached.find(hash).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn repeated_key_is_loaded_and_touched_once() {
        let (cached, direct, batched) = cached();
        for _ in 0..50 {
            assert!(is_valid(&cached, HASH).await);
            assert!(!is_valid(&cached, b"unknown").await);
            cached.touch(ACCOUNT, KEY, OffsetDateTime::UNIX_EPOCH).await.unwrap();
        }
        assert_eq!((direct.counts(), batched.counts()), ((0, 1), (2, 0)));
    }

    #[tokio::test]
    async fn recognized_key_skips_the_batch_of_unseen_keys() {
        let (cached, direct, batched) = cached();
        assert!(is_valid(&cached, HASH).await);
        // An empty cache stands for an expired grant.
        let grants = RefreshingCache::new(MAX_ENTRIES, FRESHNESS);
        let cache = KeyCache {
            grants,
            ..cached.cache.clone()
        };
        let later = CachedKeys { cache, ..cached };
        assert!(is_valid(&later, HASH).await);
        assert_eq!((direct.counts().0, batched.counts().0), (1, 1));
    }

    #[tokio::test]
    async fn deleted_key_is_invalid_at_once() {
        let (cached, ..) = cached();
        assert!(is_valid(&cached, HASH).await);
        assert!(cached.delete(ACCOUNT, KEY, &[]).await.unwrap());
        assert!(!is_valid(&cached, HASH).await);
    }

    #[tokio::test]
    async fn key_of_a_changed_account_bypasses_the_cache() {
        let (cached, direct, _) = cached();
        assert!(is_valid(&cached, HASH).await);
        cached.auth_cache.mark_account_changed(ACCOUNT);
        assert!(is_valid(&cached, HASH).await);
        assert_eq!(direct.counts().0, 1);
    }
}
