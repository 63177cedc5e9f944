//! Workers of the exports of contacts: they write files, and remove those that have expired.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, SWEEP_BATCH};
use crate::wiring::{Shared, Stores};

/// How long the worker waits after an iteration without a due export.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pause between searches for expired exports.
const PURGE_INTERVAL: Duration = Duration::from_secs(10);

/// Without a file store exports wait until there is one, at most until they expire.
pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    if shared.config.media_store_url.is_none() {
        return;
    }
    let exporter = Arc::new(stores.contact_exporter(shared));
    let purger = exporter.clone();
    worker_loop::spawn(tasks, stop, "contact_exports", INTERVAL, move || {
        let exporter = exporter.clone();
        async move { exporter.export_next().await }
    });
    worker_loop::spawn(tasks, stop, "contact_exports_purge", PURGE_INTERVAL, move || {
        let exporter = purger.clone();
        async move { exporter.purge(SWEEP_BATCH).await }
    });
}
