//! In-process cache of the times at which users ended their sessions, for `FRESHNESS.trusted`. So an end is effective on
//! every server within a second, and at once on the server that made it.

use std::sync::Arc;

use async_trait::async_trait;
use moka::sync;
use recado_domain::accounts::SessionStore;
use recado_domain::shared::{StoreError, UserId};
use time::OffsetDateTime;

use super::auth_cache::{BYPASS_AFTER_CHANGE, FRESHNESS, MAX_ENTRIES, cache_with_ttl};
use super::refreshing_cache::RefreshingCache;

/// The cache. Its clones share their entries.
#[derive(Clone)]
pub struct SessionCache {
    signed_out_at: RefreshingCache<UserId, Option<OffsetDateTime>>,
    changed: sync::Cache<UserId, ()>,
}

impl Default for SessionCache {
    fn default() -> Self {
        Self {
            signed_out_at: RefreshingCache::new(MAX_ENTRIES, FRESHNESS),
            changed: cache_with_ttl(BYPASS_AFTER_CHANGE),
        }
    }
}

impl SessionCache {
    /// Makes an end of sessions effective at once in this process. The caller MUST call this after the write.
    pub fn mark_changed(&self, user: UserId) {
        self.changed.insert(user, ());
    }
}

/// A session store with a cache.
#[derive(Clone)]
pub struct CachedSessions {
    pub store: Arc<dyn SessionStore>,
    pub cache: SessionCache,
}

#[async_trait]
impl SessionStore for CachedSessions {
    /// Single-flight and stale-while-revalidate. Users who never ended their sessions are cached, too.
    async fn signed_out_at(&self, user: UserId) -> Result<Option<OffsetDateTime>, StoreError> {
        if self.cache.changed.contains_key(&user) {
            return self.store.signed_out_at(user).await;
        }
        let store = self.store.clone();
        let load = move || {
            let store = store.clone();
            async move { store.signed_out_at(user).await.map(Some) }
        };
        Ok(self.cache.signed_out_at.get(user, load).await?.flatten())
    }

    async fn end_all(&self, user: UserId, at: OffsetDateTime) -> Result<Option<OffsetDateTime>, StoreError> {
        let ended = self.store.end_all(user, at).await;
        self.cache.mark_changed(user);
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    const USER: UserId = UserId(Uuid::from_u128(1));
    const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:00 UTC);

    #[derive(Default)]
    struct FakeSessions {
        signed_out_at: Mutex<Option<OffsetDateTime>>,
        queries: AtomicUsize,
    }

    #[async_trait]
    impl SessionStore for FakeSessions {
        async fn signed_out_at(&self, _: UserId) -> Result<Option<OffsetDateTime>, StoreError> {
            self.queries.fetch_add(1, Ordering::Relaxed);
            Ok(*self.signed_out_at.lock().unwrap_or_else(PoisonError::into_inner))
        }

        async fn end_all(&self, _: UserId, at: OffsetDateTime) -> Result<Option<OffsetDateTime>, StoreError> {
            *self.signed_out_at.lock().unwrap() = Some(at);
            Ok(Some(at))
        }
    }

    fn cached(store: &Arc<FakeSessions>) -> CachedSessions {
        CachedSessions {
            store: store.clone(),
            cache: SessionCache::default(),
        }
    }

    #[tokio::test]
    async fn user_who_never_signed_out_is_cached() {
        let store = Arc::new(FakeSessions::default());
        let sessions = cached(&store);
        for _ in 0..5 {
            assert_eq!(sessions.signed_out_at(USER).await.unwrap(), None);
        }
        assert_eq!(store.queries.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn end_is_effective_at_once_here_and_after_expiry_elsewhere() {
        let store = Arc::new(FakeSessions::default());
        let (here, elsewhere) = (cached(&store), cached(&store));
        assert_eq!(here.signed_out_at(USER).await.unwrap(), None);
        here.end_all(USER, NOW).await.unwrap();
        assert_eq!(here.signed_out_at(USER).await.unwrap(), Some(NOW));
        let entries = &elsewhere.cache.signed_out_at;
        entries.insert_aged(USER, None, Duration::ZERO).await;
        assert_eq!(elsewhere.signed_out_at(USER).await.unwrap(), None);
        entries.insert_aged(USER, None, FRESHNESS.trusted).await;
        assert_eq!(elsewhere.signed_out_at(USER).await.unwrap(), Some(NOW));
    }
}
