//! Metrics that are read on a scrape: queues in the database, connection pools, buffers in memory, the process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use recado_domain::shared::StoreError;
use recado_domain::whatsapp::verification::VerificationState;
use recado_postgres::{
    DatabaseTls, OldestSnapshot, OwnerPool, PgPartitions, PgProfileStates, PgQueues, PgSnapshots, PgWaitingMessages,
    PoolConfig, PoolLabels, PoolRegistry, PoolStats, Queue, WaitingMessages,
};
use secrecy::SecretString;
use tokio::sync::Mutex;

use super::exposition::Exposition;
use super::machine;
use super::sealed_values::SealedValues;

/// How long a read of the queues is cached, also a failed one. Scrapes do not query the database more often.
const CACHED_FOR: Duration = Duration::from_secs(5);

/// The timeouts of a read of the queues. `TOTAL_TIMEOUT` covers everything from the wait for a connection to the
/// result, so that a scrape waits no longer.
const STATEMENT_TIMEOUT: Duration = Duration::from_millis(800);
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);
const TOTAL_TIMEOUT: Duration = Duration::from_millis(1500);

/// The state of the process.
#[derive(Clone, Debug, Default)]
pub struct ProcessStats {
    pub pools: BTreeMap<PoolLabels, PoolStats>,
    /// Payment gateway events that wait in memory, and those that were dropped.
    pub gateway_events: (usize, u64),
    /// Open notification streams.
    pub streams: usize,
    /// The configured systems, and whether connections to them are always encrypted.
    pub tls: Vec<(&'static str, bool)>,
}

/// Provides the state of the process and the address of its database.
pub trait ProcessStatsSource: Send + Sync {
    fn process_stats(&self) -> ProcessStats;

    /// The URL of the database, its encryption, and the registry in which a new pool is counted.
    fn database(&self) -> (SecretString, DatabaseTls, PoolRegistry);

    /// The first bytes of the values that are sealed under the current key.
    fn sealing_marker(&self) -> Vec<u8>;
}

/// What one read of the database returns.
#[derive(Clone, Default)]
struct DatabaseCounts {
    queues: Vec<Queue>,
    /// WhatsApp numbers by the state of their verification.
    profiles: Vec<(VerificationState, i64)>,
    /// None: the database could not be read.
    waiting: Option<WaitingMessages>,
    /// Partitioned tables, and how many future intervals of each have a partition.
    partitions: Vec<(&'static str, usize)>,
    snapshots: Vec<OldestSnapshot>,
}

/// Reads the queues, with a cache.
pub(super) struct Queues {
    store: PgQueues,
    profiles: PgProfileStates,
    waiting: PgWaitingMessages,
    partitions: PgPartitions,
    snapshots: PgSnapshots,
    /// The time and the result of the last read. The inner None: the read failed.
    cached: Mutex<Option<(Instant, Option<DatabaseCounts>)>>,
}

impl Queues {
    /// Creates a pool of one connection, which belongs to the current runtime.
    pub(super) fn new(url: SecretString, tls: DatabaseTls, pool_registry: &PoolRegistry) -> anyhow::Result<Self> {
        let config = PoolConfig {
            wait_timeout: STATEMENT_TIMEOUT,
            statement_timeout: STATEMENT_TIMEOUT,
            lock_timeout: LOCK_TIMEOUT,
            ..PoolConfig::new(url, 1).tls(tls)
        };
        let pool = OwnerPool::new(&config.counted(pool_registry, "metrics"))
            .context("DATABASE_URL is not a valid PostgreSQL URL")?;
        Ok(Self {
            store: PgQueues::new(pool.clone()),
            profiles: PgProfileStates::new(pool.clone()),
            waiting: PgWaitingMessages::new(pool.clone()),
            partitions: PgPartitions::new(pool.clone()),
            snapshots: PgSnapshots::new(pool),
            cached: Mutex::default(),
        })
    }

    async fn count(&self) -> Result<DatabaseCounts, StoreError> {
        Ok(DatabaseCounts {
            queues: self.store.read().await?,
            profiles: self.profiles.count().await?,
            waiting: Some(self.waiting.count().await?),
            partitions: self.partitions.ahead().await?,
            snapshots: self.snapshots.oldest().await?,
        })
    }

    async fn read(&self) -> Option<DatabaseCounts> {
        let mut cached = self.cached.lock().await;
        if let Some((at, queues)) = &*cached
            && at.elapsed() < CACHED_FOR
        {
            return queues.clone();
        }
        let queues = match tokio::time::timeout(TOTAL_TIMEOUT, self.count()).await {
            Ok(Ok(queues)) => Some(queues),
            Ok(Err(error)) => {
                tracing::debug!(cause = ?error, "the queues cannot be read");
                None
            }
            Err(_) => None,
        };
        *cached = Some((Instant::now(), queues.clone()));
        queues
    }
}

/// Renders these metrics in the text format of Prometheus.
pub(super) async fn render_gauges(source: &dyn ProcessStatsSource, queues: &Queues, sealed: &SealedValues) -> String {
    let mut text = Exposition::default();
    text.put("recado_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let queues = queues.read().await;
    text.put("recado_database_up", &[], if queues.is_some() { 1.0 } else { 0.0 });
    let DatabaseCounts {
        queues,
        profiles,
        waiting,
        partitions,
        snapshots,
    } = queues.unwrap_or_default();
    for queue in &queues {
        text.put("recado_queue_depth", &[("queue", &queue.name)], whole(queue.depth));
    }
    for queue in &queues {
        let oldest = queue.oldest.as_secs_f64();
        text.put("recado_queue_oldest_seconds", &[("queue", &queue.name)], oldest);
    }
    for (state, count) in &profiles {
        text.put("recado_profiles", &[("state", state.as_str())], whole(*count));
    }
    if let Some(waiting) = &waiting {
        for (phase, count) in &waiting.messages {
            text.put("recado_messages_waiting", &[("phase", phase.as_str())], whole(*count));
        }
        text.put("recado_media_pending", &[], whole(waiting.files));
    }
    for (table, ahead) in &partitions {
        text.put("recado_partitions_ahead", &[("table", table)], whole(*ahead));
    }
    for snapshot in &snapshots {
        let source = [("source", snapshot.source.as_str())];
        text.put("recado_oldest_snapshot_seconds", &source, snapshot.age.as_secs_f64());
    }
    for snapshot in &snapshots {
        let source = [("source", snapshot.source.as_str())];
        text.put(
            "recado_oldest_snapshot_transactions",
            &source,
            whole(snapshot.transactions),
        );
    }
    if let Some((current, previous)) = sealed.latest() {
        text.put("recado_sealed_values", &[("key", "current")], whole(current));
        text.put("recado_sealed_values", &[("key", "previous")], whole(previous));
    }
    let stats = source.process_stats();
    let (waiting, dropped) = stats.gateway_events;
    text.put("recado_gateway_events_in_memory", &[], whole(waiting));
    text.put("recado_gateway_events_dropped_total", &[], whole(dropped));
    text.put("recado_notification_streams", &[], whole(stats.streams));
    for (target, encrypted) in &stats.tls {
        text.put("recado_tls", &[("target", target)], if *encrypted { 1.0 } else { 0.0 });
    }
    render_pools(&mut text, &stats.pools);
    for (name, value) in machine::read() {
        text.put(name, &[], value);
    }
    text.into_text()
}

fn render_pools(text: &mut Exposition, pools: &BTreeMap<PoolLabels, PoolStats>) {
    type Value = fn(&PoolStats) -> f64;
    let metrics: [(&'static str, Value); 5] = [
        ("recado_pool_connections_max", |pool| whole(pool.usage.max)),
        ("recado_pool_connections_open", |pool| whole(pool.usage.open)),
        ("recado_pool_connections_idle", |pool| whole(pool.usage.idle)),
        ("recado_pool_waiting", |pool| whole(pool.usage.waiting)),
        ("recado_pool_timeouts_total", |pool| whole(pool.acquire_timeouts)),
    ];
    for (name, value) in metrics {
        for (labels, pool) in pools {
            text.put(name, &[("pool", labels.purpose), ("role", labels.role)], value(pool));
        }
    }
}

/// Converts a count to a float. Counts are far below the range in which floats are inexact.
fn whole(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::from(u32::MAX), f64::from)
}
