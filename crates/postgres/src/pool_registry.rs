//! The state of all pools of a process, by purpose and role. A dropped pool is not counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deadpool::managed::WeakPool;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;

/// Labels of a pool's metrics. Pools with the same labels are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolLabels {
    pub purpose: &'static str,
    /// `tenant` or `owner`.
    pub role: &'static str,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Maximum number of connections.
    pub max: usize,
    /// Open connections.
    pub open: usize,
    /// Open connections that are not in use.
    pub idle: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
}

/// The summed state of the pools with the same labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub usage: PoolUsage,
    /// Requests for a connection that timed out.
    pub acquire_timeouts: u64,
}

#[derive(Default)]
struct Pools {
    pools: Vec<WeakPool<AsyncDieselConnectionManager<AsyncPgConnection>>>,
    acquire_timeouts: Arc<AtomicU64>,
}

/// The pools of a process. Clones share one list.
#[derive(Clone, Default)]
pub struct PoolRegistry(Arc<Mutex<BTreeMap<PoolLabels, Pools>>>);

impl PoolRegistry {
    /// Adds a pool, and returns the timeout counter that it shares with the pools of the same labels.
    pub(crate) fn register(
        &self,
        purpose: &'static str,
        role: &'static str,
        pool: &Pool<AsyncPgConnection>,
    ) -> Arc<AtomicU64> {
        let mut pools_by_labels = self.pools_by_labels();
        let group = pools_by_labels.entry(PoolLabels { purpose, role }).or_default();
        group.pools.retain(|pool| pool.upgrade().is_some());
        group.pools.push(pool.weak());
        group.acquire_timeouts.clone()
    }

    /// Returns the current state by labels.
    pub fn stats(&self) -> BTreeMap<PoolLabels, PoolStats> {
        let pools_by_labels = self.pools_by_labels();
        pools_by_labels
            .iter()
            .map(|(labels, pools)| (*labels, stats(pools)))
            .collect()
    }

    fn pools_by_labels(&self) -> MutexGuard<'_, BTreeMap<PoolLabels, Pools>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn usage(pool: &Pool<AsyncPgConnection>) -> PoolUsage {
    let status = pool.status();
    PoolUsage {
        max: status.max_size,
        open: status.size,
        idle: status.available,
        waiting: status.waiting,
    }
}

fn stats(pools: &Pools) -> PoolStats {
    let all = pools.pools.iter().filter_map(WeakPool::upgrade);
    PoolStats {
        usage: all
            .map(|pool| usage(&pool))
            .fold(PoolUsage::default(), |sum, pool| PoolUsage {
                max: sum.max + pool.max,
                open: sum.open + pool.open,
                idle: sum.idle + pool.idle,
                waiting: sum.waiting + pool.waiting,
            }),
        acquire_timeouts: pools.acquire_timeouts.load(Ordering::Relaxed),
    }
}

impl fmt::Debug for PoolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.stats()).finish()
    }
}
