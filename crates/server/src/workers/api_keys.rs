//! Worker of API keys: notifications before and after a key expires, and about keys that are not used.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop;
use crate::wiring::{Shared, Stores};

/// How long the worker waits after an iteration without work.
const NOTICES_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of keys that one iteration claims.
const NOTICES_BATCH: i64 = 100;

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let notices = Arc::new(stores.key_notices(shared));
    worker_loop::spawn(tasks, stop, "api_key_notices", NOTICES_INTERVAL, move || {
        let notices = notices.clone();
        async move { notices.notify_due(NOTICES_BATCH).await }
    });
}
