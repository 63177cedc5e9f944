//! The worker that keeps the stored counts of segments fresh while they are read.

use std::time::Duration;

use recado_postgres::PgSegmentCounts;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop;
use crate::wiring::Stores;

/// How long the worker waits after an iteration without work.
const INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn start(stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let counts = PgSegmentCounts::new(stores.tenant.clone(), stores.owner.clone());
    worker_loop::spawn(tasks, stop, "segment_counts", INTERVAL, move || {
        let counts = counts.clone();
        async move { counts.recount_next().await }
    });
}
