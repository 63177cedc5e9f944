//! Webhook workers: the deliverer, and the retention of abandoned deliveries.

use std::sync::Arc;

use async_trait::async_trait;
use recado_domain::shared::StoreError;
use recado_domain::webhooks::{DelivererReport, WorkSignal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, SWEEP_BATCH, SWEEP_INTERVAL};
use crate::wiring::{Shared, Stores};
use recado_api::system::SystemShutdown;
use recado_api::telemetry::WorkerMetrics;

const DELIVERER: &str = "deliverer";

/// Wakes the deliverer after deliveries were queued.
struct DeliverySignal(Arc<Notify>);

#[async_trait]
impl WorkSignal for DeliverySignal {
    async fn wait_for_work(&self) {
        self.0.notified().await;
    }
}

/// The deliverer's log and metrics.
struct DelivererMetrics(Arc<WorkerMetrics>);

impl DelivererReport for DelivererMetrics {
    fn claimed(&self, deliveries: usize) {
        match deliveries {
            0 => self.0.idle(),
            _ => self.0.worked(),
        }
    }

    fn failed(&self, what: &'static str, error: &StoreError) {
        self.0.failed();
        tracing::warn!(worker = DELIVERER, what, cause = %worker_loop::chain(error), "a delivery step failed");
    }
}

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let metrics = Arc::new(WorkerMetrics::of(DELIVERER));
    let deliverer = shared.deliverer(
        Arc::new(SystemShutdown(stop.clone())),
        Arc::new(DeliverySignal(shared.signals.deliveries.clone())),
        Arc::new(DelivererMetrics(metrics.clone())),
    )?;
    tasks.spawn(async move { worker_loop::restart_on_panic(DELIVERER, &metrics, || deliverer.run()).await });
    let sweeper = Arc::new(stores.webhook_sweeper());
    let purge = move || {
        let sweeper = sweeper.clone();
        async move { sweeper.sweep(SWEEP_BATCH).await }
    };
    worker_loop::spawn(tasks, stop, "webhook_sweep", SWEEP_INTERVAL, purge);
    Ok(())
}
