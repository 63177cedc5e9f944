//! In-process cache of API keys: valid keys for `FRESHNESS.trusted`, unknown keys for `UNKNOWN_FOR`. Keys that this
//! process has not seen are looked up in batches.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::sync;
use recado_domain::api_keys::{ApiKey, ApiKeyStore, KeyGrant, KeyRecord, KeyUse, Rotation, StoredApiKey};
use recado_domain::shared::{
    AccountId, ApiKeyId, Event, InsertOutcome, RowOutcome, StoreError, TemplateId, UpdateOutcome,
};

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
    /// Keys that this process changed or rotated.
    changed: sync::Cache<ApiKeyId, ()>,
    touched: sync::Cache<ApiKeyId, ()>,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self {
            grants: RefreshingCache::new(MAX_ENTRIES, FRESHNESS),
            recognized: cache_with_ttl(RECOGNIZED_FOR),
            unknown: cache_with_ttl(UNKNOWN_FOR),
            removed: cache_with_ttl(BYPASS_AFTER_CHANGE),
            changed: cache_with_ttl(BYPASS_AFTER_CHANGE),
            touched: cache_with_ttl(TOUCHED_FOR),
        }
    }
}

/// A key store with cached grants. A key that this process deletes, changes or rotates has its new state before the
/// change is answered.
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
    /// Whether this process changed the key or its account less than `BYPASS_AFTER_CHANGE` ago.
    fn was_changed(&self, grant: &KeyGrant) -> bool {
        self.cache.changed.contains_key(&grant.id) || self.auth_cache.account_was_changed(grant.account_id)
    }

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
            Some(grant) if self.was_changed(&grant) => self.store.find(hash).await,
            grant => Ok(grant),
        }
    }

    async fn touch(&self, account: AccountId, key: ApiKeyId, key_use: &KeyUse) -> Result<(), StoreError> {
        if self.cache.touched.contains_key(&key) {
            return Ok(());
        }
        self.cache.touched.insert(key, ());
        let touched = self.store.touch(account, key, key_use).await;
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

    async fn get(&self, account: AccountId, key: ApiKeyId) -> Result<Option<StoredApiKey>, StoreError> {
        self.store.get(account, key).await
    }

    async fn update(
        &self,
        account: AccountId,
        stored: &StoredApiKey,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        let updated = self.store.update(account, stored, events).await?;
        self.cache.changed.insert(stored.key.id, ());
        Ok(updated)
    }

    async fn rotate(
        &self,
        account: AccountId,
        stored: &StoredApiKey,
        rotation: &Rotation,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        let rotated = self.store.rotate(account, stored, rotation, events).await?;
        self.cache.changed.insert(stored.key.id, ());
        Ok(rotated)
    }

    async fn missing_templates(
        &self,
        account: AccountId,
        templates: &[TemplateId],
    ) -> Result<Vec<TemplateId>, StoreError> {
        self.store.missing_templates(account, templates).await
    }

    async fn delete(&self, account: AccountId, key: ApiKeyId, events: &[Event]) -> Result<RowOutcome, StoreError> {
        let deleted = self.store.delete(account, key, events).await?;
        if deleted.is_done() {
            self.cache.removed.insert(key, ());
        }
        Ok(deleted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use recado_domain::api_keys::ApiKeyDirectory;
    use recado_domain::shared::KeyScopes;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;
    use crate::web::key_lookups::grant_for_tests;

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
            Ok(exists.then(|| grant_for_tests(KEY, ACCOUNT)))
        }

        async fn touch(&self, _: AccountId, _: ApiKeyId, _: &KeyUse) -> Result<(), StoreError> {
            self.touches.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        async fn list(&self, _: AccountId) -> Result<Vec<ApiKey>, StoreError> {
            unreachable!()
        }

        async fn insert(&self, _: &KeyRecord, _: i64, _: &[Event]) -> Result<InsertOutcome, StoreError> {
            unreachable!()
        }

        async fn get(&self, _: AccountId, _: ApiKeyId) -> Result<Option<StoredApiKey>, StoreError> {
            unreachable!()
        }

        async fn update(&self, _: AccountId, _: &StoredApiKey, _: &[Event]) -> Result<UpdateOutcome<()>, StoreError> {
            Ok(UpdateOutcome::Done(()))
        }

        async fn rotate(
            &self,
            _: AccountId,
            _: &StoredApiKey,
            _: &Rotation,
            _: &[Event],
        ) -> Result<UpdateOutcome<()>, StoreError> {
            Ok(UpdateOutcome::Done(()))
        }

        async fn missing_templates(&self, _: AccountId, _: &[TemplateId]) -> Result<Vec<TemplateId>, StoreError> {
            unreachable!()
        }

        async fn delete(&self, _: AccountId, _: ApiKeyId, _: &[Event]) -> Result<RowOutcome, StoreError> {
            *self.is_deleted.lock().unwrap() = true;
            Ok(RowOutcome::Done)
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
        let key_use = KeyUse {
            at: OffsetDateTime::UNIX_EPOCH,
            ip_address: None,
        };
        for _ in 0..50 {
            assert!(is_valid(&cached, HASH).await);
            assert!(!is_valid(&cached, b"unknown").await);
            cached.touch(ACCOUNT, KEY, &key_use).await.unwrap();
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
        assert!(cached.delete(ACCOUNT, KEY, &[]).await.unwrap().is_done());
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

    #[tokio::test]
    async fn changed_or_rotated_key_bypasses_the_cache() {
        let key = ApiKey {
            id: KEY,
            name: "k".into(),
            key_prefix: "svc_live_sk_".into(),
            key_hint: "abcd".into(),
            scopes: KeyScopes::default(),
            expires_at: None,
            allowed_cidrs: vec![],
            created_by: Uuid::nil().into(),
            last_used_at: None,
            last_used_ip: None,
            rotated_at: None,
            previous_valid_until: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
        };
        let stored = StoredApiKey {
            key,
            version: 1,
            rotation_request: None,
        };
        let rotation = Rotation {
            hash: b"new".to_vec(),
            is_repeated: false,
        };
        for is_rotation in [false, true] {
            let (cached, direct, _) = cached();
            assert!(is_valid(&cached, HASH).await);
            match is_rotation {
                true => cached.rotate(ACCOUNT, &stored, &rotation, &[]).await.unwrap(),
                false => cached.update(ACCOUNT, &stored, &[]).await.unwrap(),
            };
            assert!(is_valid(&cached, HASH).await);
            assert_eq!(direct.counts().0, 1);
        }
    }
}
