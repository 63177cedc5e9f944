//! The relay of each kind of event, a worker of its own: what befalls the place of one kind is felt by no other.

use std::sync::Arc;
use std::time::Duration;

use recado_domain::shared::EventKind;
use recado_postgres::PgOutbox;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use crate::wiring::Stores;

/// Events moved in one transaction.
const BATCH: usize = 500;

/// The same of webhook events, one of which may stand for a whole batch of an import.
const WEBHOOK_BATCH: usize = 50;

/// A fault of an event's place is over for its readers within two seconds: the longest rest, and a round that takes
/// no longer. So often is no burden, because nothing but the one place is asked.
const BACKOFF: Backoff = Backoff {
    idle: Duration::from_millis(500),
    longest: Duration::from_secs(1),
};

/// Wakes the relays after a change.
#[derive(Clone, Default)]
pub struct Relays {
    audit: Arc<Notify>,
    notification: Arc<Notify>,
    webhook: Arc<Notify>,
    /// Rings for whoever delivers webhooks.
    pub(super) deliveries: Arc<Notify>,
}

impl Relays {
    /// Something may have been left in the outbox. The change does not say of which kind.
    pub fn wake(&self) {
        for &kind in EventKind::ALL {
            self.of(kind).notify_one();
        }
    }

    /// Wakes the deliverer after deliveries were queued.
    pub fn wake_deliverer(&self) {
        self.deliveries.notify_one();
    }

    fn of(&self, kind: EventKind) -> &Arc<Notify> {
        match kind {
            EventKind::Audit => &self.audit,
            EventKind::Notification => &self.notification,
            EventKind::Webhook => &self.webhook,
        }
    }
}

pub(super) fn start(relays: &Relays, stores: &Stores, stop: &CancellationToken, tasks: &TaskTracker) {
    for &kind in EventKind::ALL {
        let outbox = PgOutbox::new(stores.owner.clone());
        let wake = Some(relays.of(kind).clone());
        let relays = relays.clone();
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
                let (outbox, relays) = (outbox.clone(), relays.clone());
                // What comes while a round is under way wakes the next one.
                async move {
                    let moved = outbox.relay(kind, batch).await?;
                    if moved > 0 && kind == EventKind::Webhook {
                        relays.wake_deliverer();
                    }
                    Ok(moved >= batch)
                }
            },
        ));
    }
}
