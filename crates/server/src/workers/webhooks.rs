//! Webhook workers: the deliverer, and the retention of abandoned deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use recado_domain::shared::StoreError;
use recado_domain::webhooks::WorkSignal;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, SWEEP_BATCH, SWEEP_INTERVAL};
use crate::telemetry::WorkerMetrics;
use crate::wiring::{Shared, Stores};

const DELIVERER: &str = "deliverer";

/// Signals new deliveries and the stop of the server to the deliverer, and records its metrics.
struct TokioWorkSignal {
    notify: Arc<Notify>,
    stop: CancellationToken,
    metrics: Arc<WorkerMetrics>,
    /// Whether a step failed since the last pause.
    failed: AtomicBool,
}

impl TokioWorkSignal {
    fn new(notify: Arc<Notify>, stop: CancellationToken) -> Self {
        Self {
            notify,
            stop,
            metrics: Arc::new(WorkerMetrics::of(DELIVERER)),
            failed: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl WorkSignal for TokioWorkSignal {
    async fn wait_for_work(&self, longest: Duration) {
        self.metrics.idle();
        tokio::select! {
            () = self.notify.notified() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    async fn rest(&self, time: Duration) {
        if !self.failed.swap(false, Ordering::Relaxed) {
            self.metrics.worked();
        }
        tokio::time::sleep(time).await;
    }

    async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn failed(&self, what: &'static str, error: &StoreError) {
        self.failed.store(true, Ordering::Relaxed);
        self.metrics.failed();
        tracing::warn!(worker = DELIVERER, what, cause = %worker_loop::chain(error), "a delivery step failed");
    }
}

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let signal = TokioWorkSignal::new(shared.signals.deliveries.clone(), stop.clone());
    let metrics = signal.metrics.clone();
    let deliverer = shared.deliverer(Arc::new(signal))?;
    tasks.spawn(async move { worker_loop::restart_on_panic(DELIVERER, &metrics, || deliverer.run()).await });
    let sweeper = Arc::new(stores.webhook_sweeper());
    let purge = move || {
        let sweeper = sweeper.clone();
        async move { sweeper.sweep(SWEEP_BATCH).await }
    };
    worker_loop::spawn(tasks, stop, "webhook_sweep", SWEEP_INTERVAL, purge);
    Ok(())
}
