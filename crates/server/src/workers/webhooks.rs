//! Delivers webhooks, and forgets what is past its days.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use recado_domain::shared::StoreError;
use recado_domain::webhooks::Bell;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rounds::{self, Rest};
use crate::wiring::{Shared, Stores};

/// Old logs and events forgotten in one statement.
const SWEEP_BATCH: i64 = 1000;

/// How long the sweep rests.
const SWEEP: Duration = Duration::from_secs(60);

/// Rings when something was queued, and when the server stops.
struct WorkerBell {
    ring: Arc<Notify>,
    stop: CancellationToken,
}

#[async_trait]
impl Bell for WorkerBell {
    async fn rung(&self, longest: Duration) {
        tokio::select! {
            () = self.ring.notified() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    async fn rest(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn failed(&self, what: &'static str, error: &StoreError) {
        tracing::warn!(worker = "deliverer", what, cause = %rounds::chain(error), "a step failed");
    }
}

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let bell = Arc::new(WorkerBell {
        ring: shared.relays.deliveries.clone(),
        stop: stop.clone(),
    });
    let deliverer = shared.deliverer(bell)?;
    tasks.spawn(async move { deliverer.run().await });
    let sweeper = Arc::new(stores.webhook_sweeper());
    let swept = move || {
        let sweeper = sweeper.clone();
        async move { sweeper.sweep(SWEEP_BATCH).await }
    };
    tasks.spawn(rounds::run(
        "webhook sweep",
        Rest::idle(SWEEP),
        stop.clone(),
        None,
        swept,
    ));
    Ok(())
}
