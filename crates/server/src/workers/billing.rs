//! The rounds of billing: events left over, what somebody died on, a gateway that is silent, plans whose time is over.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker_loop::{self, Backoff};
use super::{SWEEP, SWEEP_BATCH};
use crate::wiring::{Shared, Stores};

/// How long each kind of round rests when there was nothing to do.
const LOOK_FOR_EVENTS: Duration = Duration::from_secs(1);
const LOOK_FOR_SILENCE: Duration = Duration::from_secs(5);
const LOOK_FOR_LAPSES: Duration = Duration::from_secs(5);

/// What the gateway has done is recorded within 90 s (the tests add it up), also behind a gateway that failed for a while.
const INTENTS: Backoff = Backoff {
    idle: Duration::from_secs(2),
    longest: Duration::from_secs(5),
};

/// A database that is back takes what waited in memory within two seconds.
const BUFFER: Backoff = Backoff {
    idle: Duration::from_secs(1),
    longest: Duration::from_secs(2),
};

/// How long the last try may take, when the process ends, to keep what waits in memory.
const LAST_TRY: Duration = Duration::from_secs(5);

pub(super) fn start(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let events = Arc::new(stores.gateway_events(shared));
    let reconciler = Arc::new(stores.subscription_reconciler(shared)?);
    worker_loop::spawn(tasks, stop, "gateway_events", LOOK_FOR_EVENTS, {
        let (events, relays) = (events.clone(), shared.relays.clone());
        move || {
            let (events, relays) = (events.clone(), relays.clone());
            async move {
                let applied = events.apply_next().await?;
                if applied {
                    relays.wake();
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
    worker_loop::spawn_any(tasks, stop, "billing_checks", Backoff::idle(LOOK_FOR_SILENCE), {
        let reconciler = reconciler.clone();
        move || {
            let reconciler = reconciler.clone();
            async move { reconciler.check_next().await }
        }
    });
    worker_loop::spawn(tasks, stop, "subscription_expiry", LOOK_FOR_LAPSES, move || {
        let reconciler = reconciler.clone();
        async move { reconciler.lapse_next().await }
    });
    worker_loop::spawn(tasks, stop, "gateway_event_retention", SWEEP, move || {
        let events = events.clone();
        async move { events.forget(SWEEP_BATCH).await.map(|forgotten| forgotten > 0) }
    });
    start_payment_event_buffer(shared, stores, stop, tasks);
    Ok(())
}

/// Wherever events are received they may have to wait for the database.
pub(super) fn start_payment_event_buffer(
    shared: &Shared,
    stores: &Stores,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let events = Arc::new(stores.gateway_events(shared));
    let (buffer, stop) = (shared.payment_event_buffer.clone(), stop.clone());
    tasks.spawn(async move {
        let (waiting, keeper) = (buffer.clone(), events.clone());
        let flush = move || {
            let (buffer, events) = (waiting.clone(), keeper.clone());
            async move { buffer.flush_next(&events).await }
        };
        let wake = Some(buffer.wake());
        worker_loop::run("waiting gateway events", BUFFER, stop, wake, flush).await;
        let last = async { while matches!(buffer.flush_next(&events).await, Ok(true)) {} };
        if tokio::time::timeout(LAST_TRY, last).await.is_err() || !buffer.is_empty() {
            tracing::error!("events of the payment gateway were lost: it will be asked");
        }
    });
}

#[cfg(test)]
mod tests {
    use recado_domain::billing::{INTENT_CHECK_PAUSE, UNANSWERED_DOUBT};
    use recado_gateways::payment::CALL_TIMEOUT;

    use super::*;

    /// From a lost answer, or from a crash behind it, to the record of it by the worker alone.
    #[test]
    fn an_intent_is_settled_within_90_seconds() {
        let promised = Duration::from_secs(90);
        // A check may begin as late as this after it is due, and takes one call.
        let check = INTENTS.longest + CALL_TIMEOUT;
        // The server died: the check that was due with the intent finds what the gateway has done.
        assert!(INTENT_CHECK_PAUSE.unsigned_abs() + check <= promised);
        // The answer was lost: the request looks once more, in vain, and leaves it to the worker.
        assert!(CALL_TIMEOUT + UNANSWERED_DOUBT.unsigned_abs() + check <= promised);
        // No check begins while the one before it is under way.
        assert!(INTENT_CHECK_PAUSE.unsigned_abs() > CALL_TIMEOUT);
    }
}
