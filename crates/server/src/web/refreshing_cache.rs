//! A cache of what the database says, trusted for a moment. Misses are single-flight; an entry that is asked for is
//! refreshed in the background (stale-while-revalidate), so that a busy one keeps nobody waiting.

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use moka::future;
use recado_domain::shared::StoreError;
use recado_domain::webhooks::Jitter as _;

use crate::logging::chain;
use crate::system::SystemJitter;

/// How much earlier or later an entry is refreshed: those that were loaded together are not refreshed together.
const SPREAD: f64 = 0.2;

/// How long entries are trusted, and after how long they are refreshed; both shorter than the promise that rests on them.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// An older entry is not used.
    pub trusted: Duration,
    /// The first request after this time refreshes an entry, a fifth more or less.
    pub refreshed: Duration,
}

/// Values that exist; absence is not cached.
#[derive(Clone)]
pub struct RefreshingCache<K, V> {
    entries: future::Cache<K, Entry<V>>,
    freshness: Freshness,
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    loaded_at: Instant,
    refresh_after: Duration,
    is_refreshing: Arc<AtomicBool>,
}

impl<V> Entry<V> {
    /// Whether the caller is the one to refresh it.
    fn claims_refresh(&self) -> bool {
        self.loaded_at.elapsed() >= self.refresh_after && !self.is_refreshing.swap(true, Ordering::Relaxed)
    }
}

/// A load that found nothing to cache.
struct NotCached;

impl<K, V> RefreshingCache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub fn new(max_entries: u64, freshness: Freshness) -> Self {
        let entries = future::Cache::builder()
            .max_capacity(max_entries)
            .time_to_live(freshness.trusted)
            .build();
        Self { entries, freshness }
    }

    /// What is cached, or what one load for all who wait for it returns.
    pub async fn get<L, F>(&self, key: K, load: L) -> Result<Option<V>, StoreError>
    where
        L: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<V>, StoreError>> + Send + 'static,
    {
        let uncached = OnceLock::new();
        let cached = self.entries.try_get_with(key.clone(), async {
            let began = Instant::now();
            match load().await {
                Ok(Some(value)) => Ok(self.entry(began, value)),
                absent_or_failed => {
                    uncached.set(absent_or_failed).ok();
                    Err(NotCached)
                }
            }
        });
        match cached.await {
            Ok(entry) if entry.loaded_at.elapsed() < self.freshness.trusted => {
                if entry.claims_refresh() {
                    tokio::spawn(self.clone().refresh(key, load));
                }
                Ok(Some(entry.value))
            }
            Ok(_) => load().await,
            Err(_) => match uncached.into_inner() {
                Some(result) => result,
                // Another caller's load found nothing. It may have begun before the row of this caller existed.
                None => load().await,
            },
        }
    }

    /// As a load returned it that began then.
    fn entry(&self, loaded_at: Instant, value: V) -> Entry<V> {
        Entry {
            value,
            loaded_at,
            refresh_after: self.freshness.refreshed.mul_f64(1.0 + SPREAD * SystemJitter.spread()),
            is_refreshing: Arc::default(),
        }
    }

    /// If the load fails, the entry expires, and the next request gets the error.
    async fn refresh<L, F>(self, key: K, load: L)
    where
        L: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<V>, StoreError>> + Send + 'static,
    {
        let began = Instant::now();
        match load().await {
            Ok(Some(value)) => self.entries.insert(key, self.entry(began, value)).await,
            Ok(None) => self.entries.invalidate(&key).await,
            Err(error) => tracing::debug!(cause = %chain(&error), "a cached entry cannot be refreshed"),
        }
    }

    /// As if the value had been loaded so long ago.
    #[cfg(test)]
    pub async fn insert_aged(&self, key: K, value: V, age: Duration) {
        let entry = self.entry(Instant::now().checked_sub(age).unwrap(), value);
        self.entries.insert(key, entry).await;
    }
}
