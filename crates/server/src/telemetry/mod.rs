//! What an operator sees of a process: figures for Prometheus on a listener of their own, and, with the feature `otel`,
//! traces. `docs/operating/metrics.md` says what each figure means.
//!
//! What happens often (requests, calls, rounds) is counted where it happens, by handles that are made once. What stands
//! somewhere (pools, queues, memory) is read when it is asked for.

pub mod definitions;
mod exposition;
mod gauges;
mod listener;
mod machine;
mod reports;
mod requests;
pub mod traces;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

pub use gauges::{ProcessStats, ProcessStatsSource};
pub use listener::MetricsListener;
pub use reports::Reports;
pub use requests::{InFlight, RateLimitOutcome, Route, count_rate_limit, counted_routes};
pub use workers::WorkerMetrics;

/// Where requests and calls are told apart by how long they take, in seconds.
const BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Installs the metrics recorder. Create metric handles only afterwards: an earlier handle records nothing.
pub fn start(bind: Option<SocketAddr>) -> anyhow::Result<Option<Recorder>> {
    let Some(bind) = bind else { return Ok(None) };
    let handle = PrometheusBuilder::new()
        .set_buckets(BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .context("the metrics recorder cannot be installed")?;
    definitions::describe();
    count_panics();
    Ok(Some(Recorder { bind, handle }))
}

/// The installed recorder, and the address of its listener.
pub struct Recorder {
    bind: SocketAddr,
    handle: PrometheusHandle,
}

impl Recorder {
    /// Starts the metrics listener.
    pub fn serve(self, source: Arc<dyn ProcessStatsSource>) -> anyhow::Result<MetricsListener> {
        MetricsListener::start(self.bind, self.handle, source)
    }
}

/// Every panic of the process, whoever catches it.
fn count_panics() {
    let panics = metrics::counter!("recado_panics_total");
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        panics.increment(1);
        previous_hook(panic);
    }));
}
