//! In-process cache of the targets of short links, so that a flood of clicks causes almost no queries.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::sync;
use recado_domain::links::{ClickBatch, Link, LinkStore, LinkTarget};
use recado_domain::shared::{AccountId, CursorPage, CursorQuery, LinkId, StoreError};

use super::refreshing_cache::{Freshness, RefreshingCache};

/// A changed or deleted link leads to its old target for at most `FRESHNESS.trusted`.
const FRESHNESS: Freshness = Freshness {
    trusted: Duration::from_secs(10),
    refreshed: Duration::from_secs(5),
};
const MAX_TARGETS: u64 = 10_000;

/// How long an unknown code is cached.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
const MAX_UNKNOWN: u64 = 20_000;

/// The cache. Its clones share their entries.
#[derive(Clone)]
pub struct TargetCache {
    targets: RefreshingCache<String, LinkTarget>,
    unknown: sync::Cache<String, ()>,
}

impl Default for TargetCache {
    fn default() -> Self {
        Self {
            targets: RefreshingCache::new(MAX_TARGETS, FRESHNESS),
            unknown: sync::Cache::builder()
                .max_capacity(MAX_UNKNOWN)
                .time_to_live(UNKNOWN_FOR)
                .build(),
        }
    }
}

/// A link store with cached targets. Unknown codes are cached as well.
#[derive(Clone)]
pub struct CachedTargets {
    pub store: Arc<dyn LinkStore>,
    pub cache: TargetCache,
}

impl CachedTargets {
    async fn load(&self, short_code: &str) -> Result<Option<LinkTarget>, StoreError> {
        if self.cache.unknown.contains_key(short_code) {
            return Ok(None);
        }
        let target = self.store.target(short_code).await?;
        if target.is_none() {
            self.cache.unknown.insert(short_code.to_owned(), ());
        }
        Ok(target)
    }
}

#[async_trait]
impl LinkStore for CachedTargets {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Link>, StoreError> {
        self.store.list(account, query).await
    }

    async fn insert(&self, account: AccountId, link: &Link) -> Result<(), StoreError> {
        self.store.insert(account, link).await?;
        self.cache.unknown.invalidate(&link.short_code);
        Ok(())
    }

    async fn target(&self, short_code: &str) -> Result<Option<LinkTarget>, StoreError> {
        if self.cache.unknown.contains_key(short_code) {
            return Ok(None);
        }
        let (cached, code) = (self.clone(), short_code.to_owned());
        let load = move || {
            let (cached, code) = (cached.clone(), code.clone());
            async move { cached.load(&code).await }
        };
        self.cache.targets.get(short_code.to_owned(), load).await
    }

    async fn add_clicks(&self, batch: &ClickBatch) -> Result<Vec<LinkId>, StoreError> {
        self.store.add_clicks(batch).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use recado_domain::shared::{CursorPage, CursorQuery};
    use uuid::Uuid;

    use super::*;

    /// A store with one code. It counts queries.
    #[derive(Default)]
    struct Codes(AtomicUsize);

    #[async_trait]
    impl LinkStore for Codes {
        async fn list(&self, _: AccountId, _: &CursorQuery) -> Result<CursorPage<Link>, StoreError> {
            unreachable!()
        }

        async fn insert(&self, _: AccountId, _: &Link) -> Result<(), StoreError> {
            unreachable!()
        }

        async fn target(&self, short_code: &str) -> Result<Option<LinkTarget>, StoreError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok((short_code == "known").then(|| LinkTarget {
                account_id: AccountId(Uuid::nil()),
                link_id: LinkId(Uuid::nil()),
                original_url: "https://loja.example/".into(),
            }))
        }

        async fn add_clicks(&self, _: &ClickBatch) -> Result<Vec<LinkId>, StoreError> {
            unreachable!()
        }
    }

    #[tokio::test]
    async fn known_and_unknown_codes_are_queried_once() {
        let codes = Arc::new(Codes::default());
        let cached = CachedTargets {
            store: codes.clone(),
            cache: TargetCache::default(),
        };
        for _ in 0..50 {
            assert!(cached.target("known").await.unwrap().is_some());
            assert_eq!(cached.target("unknown").await.unwrap(), None);
        }
        assert_eq!(codes.0.load(Ordering::SeqCst), 2);
    }
}
