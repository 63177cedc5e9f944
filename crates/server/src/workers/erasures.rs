//! The worker of erasures: it removes what is stored of erased contacts.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop;
use crate::wiring::{Shared, Stores};

/// How long the worker waits after an iteration without a due erasure.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let worker = Arc::new(stores.erasure_worker(shared));
    worker_loop::spawn(tasks, stop, "erasures", INTERVAL, move || {
        let worker = worker.clone();
        async move { worker.run_next().await }
    });
}
