//! Outbox relays: one worker per kind of event, so that a problem with the table of one kind does not delay the others.

use std::time::Duration;

use recado_domain::shared::EventKind;
use recado_postgres::PgOutbox;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::Stores;
use recado_api::worker_handles::WorkerSignals;

/// The maximum number of events that one transaction moves.
const BATCH: usize = 500;

/// The same for webhook events, one of which may hold a whole batch of an import.
const WEBHOOK_BATCH: usize = 50;

/// Readers get the events within two seconds after the table of a kind is writable again: one pause of at most
/// `longest` and one iteration of at most the same time. The frequent attempts are cheap, because each queries only one
/// kind.
const BACKOFF: Backoff = Backoff {
    idle: Duration::from_millis(500),
    longest: Duration::from_secs(1),
};

pub(super) fn start(signals: &WorkerSignals, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    for &kind in EventKind::ALL {
        let outbox = PgOutbox::new(stores.owner.clone());
        let wake = Some(signals.of(kind).clone());
        let signals = signals.clone();
        let batch = match kind {
            EventKind::Audit | EventKind::Notification => BATCH,
            EventKind::Webhook => WEBHOOK_BATCH,
        };
        tasks.spawn(worker_loop::run(
            kind.as_str(),
            BACKOFF,
            stop.clone(),
            wake,
            move || {
                let (outbox, signals) = (outbox.clone(), signals.clone());
                // A wake during an iteration starts the next one at once.
                async move {
                    let moved = outbox.relay(kind, batch).await?;
                    if moved > 0 && kind == EventKind::Webhook {
                        signals.wake_deliverer();
                    }
                    Ok(moved >= batch)
                }
            },
        ));
    }
}
