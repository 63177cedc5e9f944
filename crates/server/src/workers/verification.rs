//! Worker of verifications: checks the WhatsApp numbers whose check is due.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop;
use crate::wiring::{Shared, Stores};

/// How long the worker waits after an iteration without work.
const CHECKS_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of numbers that one iteration checks at the same time.
const CHECKS_BATCH: i64 = 20;

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let verifications = Arc::new(stores.verifications(shared));
    worker_loop::spawn(tasks, stop, "verifications", CHECKS_INTERVAL, move || {
        let verifications = verifications.clone();
        async move { verifications.check_due(CHECKS_BATCH).await }
    });
    Ok(())
}
