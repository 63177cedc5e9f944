//! Writes the clicks that are counted in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::Shared;

/// The interval of the writes, and the longest pause after failures.
const WRITE: Backoff = Backoff {
    idle: Duration::from_secs(1),
    longest: Duration::from_secs(5),
};

/// The timeout of the last write, when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the worker. After the last response (`served`), it writes the remaining clicks and ends.
pub fn start_clicks(shared: &Shared, served: &CancellationToken, tasks: &TaskTracker) -> anyhow::Result<()> {
    let links = Arc::new(shared.stores(1, 1)?.click_writer(shared));
    let (pending, served) = (shared.clicks.clone(), served.clone());
    tasks.spawn(async move {
        let iteration = || async {
            let dropped = pending.take_dropped();
            if dropped > 0 {
                tracing::warn!(dropped, "clicks were not counted, too many links have unwritten clicks");
            }
            links.write_clicks().await
        };
        worker_loop::run("clicks", WRITE, served, None, iteration).await;
        let last = async {
            while !pending.is_empty() && links.write_clicks().await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, last).await.is_err() || !pending.is_empty() {
            tracing::error!("clicks were lost, the database did not store them in time");
        }
    });
    Ok(())
}
