//! Billing workers: gateway events that were not applied, intents of requests that ended early, checks of subscriptions
//! without gateway events, the expiry of plans, and retention.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff, SWEEP_BATCH, SWEEP_INTERVAL};
use crate::wiring::{Shared, Stores};

/// How long each worker waits after an iteration without work.
const EVENTS_INTERVAL: Duration = Duration::from_secs(1);
const CHECKS_INTERVAL: Duration = Duration::from_secs(5);
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

/// A change at the gateway is recorded within 90 s, also after an outage of the gateway. A test adds up the delays.
const INTENTS: Backoff = Backoff {
    idle: Duration::from_secs(2),
    longest: Duration::from_secs(5),
};

/// After a database outage, the events in memory are stored within two seconds.
const BUFFER: Backoff = Backoff {
    idle: Duration::from_secs(1),
    longest: Duration::from_secs(2),
};

/// The timeout of the last attempt to store the events in memory, when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let events = Arc::new(stores.gateway_events(shared));
    let reconciler = Arc::new(stores.subscription_reconciler(shared));
    worker_loop::spawn(tasks, stop, "gateway_events", EVENTS_INTERVAL, {
        let (events, signals) = (events.clone(), shared.signals.clone());
        move || {
            let (events, signals) = (events.clone(), signals.clone());
            async move {
                let applied = events.apply_next().await?;
                if applied {
                    signals.wake_relays();
                }
                Ok(applied)
            }
        }
    });
    let intents = reconciler.clone();
    worker_loop::spawn_any(tasks, stop, "billing_intents", INTENTS, move || {
        let reconciler = intents.clone();
        async move { reconciler.reconcile_next().await }
    });
    worker_loop::spawn_any(tasks, stop, "billing_checks", Backoff::idle(CHECKS_INTERVAL), {
        let reconciler = reconciler.clone();
        move || {
            let reconciler = reconciler.clone();
            async move { reconciler.check_next().await }
        }
    });
    worker_loop::spawn(tasks, stop, "subscription_expiry", EXPIRY_INTERVAL, move || {
        let reconciler = reconciler.clone();
        async move { reconciler.lapse_next().await }
    });
    worker_loop::spawn(tasks, stop, "gateway_event_retention", SWEEP_INTERVAL, move || {
        let events = events.clone();
        async move { events.purge(SWEEP_BATCH).await.map(|purged| purged > 0) }
    });
    start_payment_event_buffer(shared, stores, stop, tasks);
    Ok(())
}

/// Stores the events of the buffer. Every process that serves routes needs this, because it receives events.
pub(super) fn start_payment_event_buffer(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let events = Arc::new(stores.gateway_events(shared));
    let (buffer, stop) = (shared.payment_event_buffer.clone(), stop.clone());
    tasks.spawn(async move {
        let (flushed_buffer, event_store) = (buffer.clone(), events.clone());
        let flush = move || {
            let (buffer, events) = (flushed_buffer.clone(), event_store.clone());
            async move { buffer.flush_next(&events).await }
        };
        let wake = Some(buffer.wake());
        worker_loop::run("buffered_gateway_events", BUFFER, stop, wake, flush).await;
        let last = async { while matches!(buffer.flush_next(&events).await, Ok(true)) {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, last).await.is_err() || !buffer.is_empty() {
            tracing::error!("payment gateway events in memory were lost, reconciliation will query the gateway");
        }
    });
}

#[cfg(test)]
mod tests {
    use recado_domain::billing::{INTENT_CHECK_PAUSE, UNANSWERED_LEASE};
    use recado_gateways::payment::CALL_TIMEOUT;

    use super::*;

    /// The time from a lost gateway response, or from a crash after it, until the worker records the result.
    #[test]
    fn intent_is_reconciled_within_90_seconds() {
        let promised = Duration::from_secs(90);
        // The latest end of a check after it is due: the longest pause and one call.
        let check = INTENTS.longest + CALL_TIMEOUT;
        // After a crash, the check that was due with the intent finds the change at the gateway.
        assert!(INTENT_CHECK_PAUSE.unsigned_abs() + check <= promised);
        // After a lost response, the request checks once without success and leaves the intent to the worker.
        assert!(CALL_TIMEOUT + UNANSWERED_LEASE.unsigned_abs() + check <= promised);
        // A check does not begin before the previous call has ended.
        assert!(INTENT_CHECK_PAUSE.unsigned_abs() > CALL_TIMEOUT);
    }
}
