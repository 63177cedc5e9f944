//! Workers of inbound events that are held for profiles that are not verified.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, SWEEP_BATCH, SWEEP_INTERVAL};
use crate::telemetry::UnclaimedMessages;
use crate::wiring::{Shared, Stores};

/// How long a profile that became verified waits for what was held for it.
const DELIVERY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let held = Arc::new(stores.held_messages(shared));
    let delivered = held.clone();
    worker_loop::spawn(tasks, stop, "held_messages", DELIVERY_INTERVAL, move || {
        let held = delivered.clone();
        async move { held.deliver().await }
    });
    let unclaimed = Arc::new(UnclaimedMessages::default());
    worker_loop::spawn(tasks, stop, "held_messages_sweep", SWEEP_INTERVAL, move || {
        let (held, unclaimed) = (held.clone(), unclaimed.clone());
        async move {
            let purged = held.purge(SWEEP_BATCH).await?;
            unclaimed.add(purged.unclaimed);
            Ok(purged.removed > 0)
        }
    });
}
