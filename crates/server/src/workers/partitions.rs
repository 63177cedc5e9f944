//! The worker of partitions: creates them ahead of time, and removes those whose retention term is over.

use std::time::Duration;

use recado_postgres::PgPartitions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::{Shared, Stores};

/// Partitions exist months or days before they are needed, so an iteration is not urgent.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The maximum pause after failures, for example while a long transaction keeps a partition from being removed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

pub(super) fn start(shared: &Shared, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    let (partitions, retention) = (PgPartitions::new(stores.owner.clone()), shared.config.retention);
    let backoff = Backoff {
        idle: INTERVAL,
        longest: LONGEST_PAUSE,
    };
    worker_loop::spawn_any(tasks, stop, "partitions", backoff, move || {
        let partitions = partitions.clone();
        async move {
            let now = partitions.now().await?;
            let created = partitions.ensure(now).await?;
            let dropped = partitions.drop_expired(&retention, now).await?;
            if created + dropped > 0 {
                tracing::info!(created, dropped, "partitions changed");
            }
            Ok::<bool, recado_domain::shared::StoreError>(false)
        }
    });
}
