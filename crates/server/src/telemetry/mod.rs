//! Telemetry for operators: Prometheus metrics on a separate listener and, with the feature `otel`, traces.
//! `docs/operating/metrics.md` explains each metric.
//!
//! Frequent events (requests, calls, iterations) are counted where they happen, by handles that are created once.
//! Current states (pools, queues, memory) are read on a scrape.

pub mod definitions;
mod exposition;
mod gauges;
mod listener;
mod machine;
mod reports;
mod sealed_values;
pub mod traces;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use recado_api::telemetry::register_refusals;

pub use gauges::{ProcessStats, ProcessStatsSource};
pub use listener::MetricsListener;
pub use reports::{Reports, UnclaimedMessages};

/// The histogram buckets of durations, in seconds.
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
    register_refusals();
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

/// Counts every panic of the process, whether or not it is caught.
fn count_panics() {
    let panics = metrics::counter!("recado_panics_total");
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        panics.increment(1);
        previous_hook(panic);
    }));
}
