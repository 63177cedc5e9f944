//! Workers of the files of messages: they fetch files from WhatsApp, report lost ones and remove expired uploads.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, SWEEP_BATCH, SWEEP_INTERVAL};
use crate::wiring::{Shared, Stores};

/// How many files a process receives at the same time. Each takes at most one part of the file store in memory.
const FETCHERS: usize = 4;

/// How long a worker waits after an iteration without a due file.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long a lost file waits for its report at most, beside the time since the last report.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Without a file store nothing is fetched: the files stay pending until there is one.
pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    if shared.config.media_store_url.is_none() {
        return;
    }
    for _ in 0..FETCHERS {
        let fetcher = stores.file_fetcher(shared);
        worker_loop::spawn(tasks, stop, "message_files", FETCH_INTERVAL, move || {
            let fetcher = fetcher.clone();
            async move { fetcher.fetch_next().await }
        });
    }
    let media = Arc::new(stores.message_media(shared));
    let lost = media.clone();
    worker_loop::spawn(tasks, stop, "lost_message_files", REPORT_INTERVAL, move || {
        let media = lost.clone();
        async move { media.report_lost().await }
    });
    worker_loop::spawn(tasks, stop, "message_files_sweep", SWEEP_INTERVAL, move || {
        let media = media.clone();
        async move { media.purge(SWEEP_BATCH).await }
    });
}
