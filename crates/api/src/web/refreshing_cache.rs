//! A cache of database rows with a short lifetime. Misses are single-flight. A used entry is refreshed in the
//! background (stale-while-revalidate), so that requests for a busy entry never wait.

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use moka::future;
use recado_domain::shared::StoreError;
use recado_domain::webhooks::Jitter as _;

use crate::error_chain::chain;
use crate::system::SystemJitter;

/// The jitter of the refresh time, as a fraction: entries that were loaded together are not refreshed together.
const SPREAD: f64 = 0.2;

/// The lifetime and the refresh time of entries. Both MUST be shorter than the staleness that the API documents.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// Older entries are not used.
    pub trusted: Duration,
    /// The first request after this time, give or take `SPREAD`, refreshes the entry.
    pub refreshed: Duration,
}

/// Caches existing values. Absence is not cached.
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
    /// Whether a refresh is due and this caller has to do it.
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

    /// Returns the cached value, or the result of one `load` that all waiting callers share.
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

    /// `loaded_at` is the time at which the load began.
    fn entry(&self, loaded_at: Instant, value: V) -> Entry<V> {
        Entry {
            value,
            loaded_at,
            refresh_after: self.freshness.refreshed.mul_f64(1.0 + SPREAD * SystemJitter.spread()),
            is_refreshing: Arc::default(),
        }
    }

    /// Refreshes an entry. If the load fails, the entry expires, and the next request gets the error.
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

    /// Inserts a value as if it had been loaded `age` ago.
    #[cfg(test)]
    pub async fn insert_aged(&self, key: K, value: V, age: Duration) {
        let entry = self.entry(Instant::now().checked_sub(age).unwrap(), value);
        self.entries.insert(key, entry).await;
    }
}
