//! The worker of retention: it removes the rows and files of accounts that are over their term.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop;
use crate::wiring::{Shared, Stores};

/// How long a worker waits after an iteration without a due account. A change of terms is counted soon after it.
const INTERVAL: Duration = Duration::from_secs(2);

/// The accounts that a process works on at a time: while a large campaign is archived, others go on.
const WORKERS: usize = 2;

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let worker = Arc::new(stores.retention_worker(shared));
    for _ in 0..WORKERS {
        let worker = worker.clone();
        worker_loop::spawn(tasks, stop, "retention", INTERVAL, move || {
            let worker = worker.clone();
            async move { worker.run_next().await }
        });
    }
}
