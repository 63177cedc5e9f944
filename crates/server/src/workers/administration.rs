//! Administration workers: expired support mode, the removal of accounts, and the cancellation of their subscriptions
//! at the payment gateway.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff, SWEEP_BATCH};
use crate::wiring::{Shared, Stores};

/// How long each worker waits after an iteration without work. An expired membership of support mode is ineffective
/// even before it is deleted.
const SUPPORT_INTERVAL: Duration = Duration::from_secs(10);
const REMOVALS_INTERVAL: Duration = Duration::from_secs(5);
const CANCELLATIONS_INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let support = Arc::new(stores.support(shared));
    worker_loop::spawn(tasks, stop, "support_mode", SUPPORT_INTERVAL, move || {
        let support = support.clone();
        async move { support.sweep(SWEEP_BATCH).await.map(|swept| swept > 0) }
    });
    let deletions = Arc::new(stores.deletions(shared));
    let cancellations = deletions.clone();
    let backoff = Backoff::idle(REMOVALS_INTERVAL);
    worker_loop::spawn_any(tasks, stop, "account_removals", backoff, move || {
        let deletions = deletions.clone();
        async move { deletions.finish_next().await }
    });
    let backoff = Backoff::idle(CANCELLATIONS_INTERVAL);
    worker_loop::spawn_any(tasks, stop, "gateway_cancellations", backoff, move || {
        let deletions = cancellations.clone();
        async move { deletions.cancel_next().await }
    });
    Ok(())
}
