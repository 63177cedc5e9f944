//! How things stand, read when it is asked for: queues in the database, pools, what waits in memory, the process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use recado_postgres::{OwnerPool, PgQueues, PoolConfig, PoolLabels, PoolRegistry, PoolStats, Queue};
use secrecy::SecretString;
use tokio::sync::Mutex;

use super::exposition::Exposition;
use super::machine;

/// How long what the database told is told again: however many ask, it is asked no more often.
const KEPT: Duration = Duration::from_secs(5);

/// How long the database may take, from the wait for a connection to the answer. Whoever scrapes waits no longer.
const STATEMENT: Duration = Duration::from_millis(800);
const LOCK: Duration = Duration::from_millis(200);
const ALTOGETHER: Duration = Duration::from_millis(1500);

/// How the process stands by itself.
#[derive(Clone, Debug, Default)]
pub struct ProcessStats {
    /// Its pools.
    pub pools: BTreeMap<PoolLabels, PoolStats>,
    /// Events of the payment gateway that wait in memory, and that it had no room for.
    pub gateway_events: (usize, u64),
    /// Open streams of notifications.
    pub streams: usize,
}

/// Knows how the process stands, and how to ask its database.
pub trait ProcessStatsSource: Send + Sync {
    /// Now.
    fn process_stats(&self) -> ProcessStats;

    /// Where its database is.
    fn database(&self) -> (SecretString, PoolRegistry);
}

/// The queues, as the database tells of them; none where it does not.
pub(super) struct Queues {
    store: PgQueues,
    known: Mutex<Option<(Instant, Option<Vec<Queue>>)>>,
}

impl Queues {
    /// With a connection of its own. Belongs to the runtime that uses it.
    pub(super) fn new(url: SecretString, pool_registry: &PoolRegistry) -> anyhow::Result<Self> {
        let config = PoolConfig {
            wait_timeout: STATEMENT,
            statement_timeout: STATEMENT,
            lock_timeout: LOCK,
            ..PoolConfig::new(url, 1)
        };
        let pool = OwnerPool::new(&config.counted(pool_registry, "metrics")).context("DATABASE_URL cannot be used")?;
        Ok(Self {
            store: PgQueues::new(pool),
            known: Mutex::default(),
        })
    }

    async fn read(&self) -> Option<Vec<Queue>> {
        let mut known = self.known.lock().await;
        if let Some((at, queues)) = &*known
            && at.elapsed() < KEPT
        {
            return queues.clone();
        }
        let queues = match tokio::time::timeout(ALTOGETHER, self.store.read()).await {
            Ok(Ok(queues)) => Some(queues),
            Ok(Err(error)) => {
                tracing::debug!(cause = ?error, "the queues cannot be read");
                None
            }
            Err(_) => None,
        };
        *known = Some((Instant::now(), queues.clone()));
        queues
    }
}

/// All of it in the format of Prometheus.
pub(super) async fn exposed(source: &dyn ProcessStatsSource, queues: &Queues) -> String {
    let mut text = Exposition::default();
    text.put("recado_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let told = queues.read().await;
    text.put("recado_database_up", &[], if told.is_some() { 1.0 } else { 0.0 });
    let told = told.unwrap_or_default();
    for queue in &told {
        text.put("recado_queue_depth", &[("queue", &queue.name)], whole(queue.depth));
    }
    for queue in &told {
        let oldest = queue.oldest.as_secs_f64();
        text.put("recado_queue_oldest_seconds", &[("queue", &queue.name)], oldest);
    }
    let stats = source.process_stats();
    let (waiting, dropped) = stats.gateway_events;
    text.put("recado_gateway_events_in_memory", &[], whole(waiting));
    text.put("recado_gateway_events_dropped_total", &[], whole(dropped));
    text.put("recado_notification_streams", &[], whole(stats.streams));
    pools(&mut text, &stats.pools);
    for (name, value) in machine::read() {
        text.put(name, &[], value);
    }
    text.into_text()
}

fn pools(text: &mut Exposition, pools: &BTreeMap<PoolLabels, PoolStats>) {
    type Value = fn(&PoolStats) -> f64;
    let figures: [(&'static str, Value); 5] = [
        ("recado_pool_connections_max", |pool| whole(pool.usage.max)),
        ("recado_pool_connections_open", |pool| whole(pool.usage.open)),
        ("recado_pool_connections_idle", |pool| whole(pool.usage.idle)),
        ("recado_pool_waiting", |pool| whole(pool.usage.waiting)),
        ("recado_pool_timeouts_total", |pool| whole(pool.acquire_timeouts)),
    ];
    for (name, value) in figures {
        for (kind, pool) in pools {
            text.put(name, &[("pool", kind.purpose), ("role", kind.role)], value(pool));
        }
    }
}

/// A count; far below where such numbers become inexact.
fn whole(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::from(u32::MAX), f64::from)
}
