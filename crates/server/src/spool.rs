//! The payment gateway's events, from its call to the database. It is answered with 200 whatever happens, so that an
//! event that the database cannot take is kept in memory until it can.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::web::Data;
use recado_domain::billing::{GatewayEvent, GatewayEvents};
use recado_domain::shared::StoreError;
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::logging::chain;
use crate::wiring::Services;

/// How many events wait in memory; what comes beyond is found by asking the gateway.
const CAPACITY: usize = 10_000;

/// How long keeping an event, and applying it, may hold up the answer: the gateway waits ten seconds.
const KEEP_TIME: Duration = Duration::from_secs(4);
const APPLY_TIME: Duration = Duration::from_secs(4);

/// An event, and when it arrived.
type Arrived = (GatewayEvent, OffsetDateTime);

/// Events that wait for the database.
#[derive(Clone, Default)]
pub struct EventSpool(Arc<Spool>);

#[derive(Default)]
struct Spool {
    waiting: Mutex<VecDeque<Arrived>>,
    dropped: AtomicU64,
    wake: Arc<Notify>,
}

impl EventSpool {
    /// Takes an event in behind those that wait.
    fn put(&self, arrived: Arrived) {
        let mut waiting = self.waiting();
        if waiting.len() >= CAPACITY {
            let event = arrived.0.event;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::error!(event, "an event of the payment gateway was dropped: too many wait");
            return;
        }
        waiting.push_back(arrived);
        drop(waiting);
        self.0.wake.notify_one();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// How many wait, and how many it had no room for.
    pub fn figures(&self) -> (usize, u64) {
        (self.waiting().len(), self.0.dropped.load(Ordering::Relaxed))
    }

    /// Wakes whoever empties it.
    pub fn wake(&self) -> Arc<Notify> {
        self.0.wake.clone()
    }

    /// Keeps the first event that waits; false when there is none.
    pub async fn flush_next(&self, events: &GatewayEvents) -> Result<bool, StoreError> {
        let Some(arrived) = self.waiting().front().cloned() else {
            return Ok(false);
        };
        events.keep(&arrived.0, arrived.1).await?;
        let mut waiting = self.waiting();
        if waiting.front() == Some(&arrived) {
            waiting.pop_front();
        }
        Ok(true)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Arrived>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps an event and applies it, as far as that can be done at once. Whoever called may hang up: it is done all the
/// same.
pub async fn receive(services: Data<Services>, event: GatewayEvent) {
    let arrived = (event, services.shared.clock.now());
    let (spool, copy) = (services.shared.spool.clone(), arrived.clone());
    or_spooled(&spool, copy, async move { take_in(&services, arrived).await }).await;
}

/// Does the work to its end. An event whose work panics waits for the database like any other.
async fn or_spooled(spool: &EventSpool, event: Arrived, work: impl Future<Output = ()> + 'static) {
    if let Err(error) = actix_web::rt::spawn(work).await {
        tracing::error!(%error, "taking in an event of the payment gateway failed");
        spool.put(event);
    }
}

async fn take_in(services: &Services, arrived: Arrived) {
    let spool = &services.shared.spool;
    // Nothing overtakes what waits.
    if !spool.is_empty() {
        return spool.put(arrived);
    }
    let (event, at) = &arrived;
    let events = &services.gateway_events;
    let received = match tokio::time::timeout(KEEP_TIME, events.receive(event, *at)).await {
        Ok(Ok(received)) => received,
        Ok(Err(error)) => {
            tracing::warn!(cause = %error, event = event.event, "an event of the payment gateway waits in memory");
            return spool.put(arrived);
        }
        Err(_) => {
            tracing::warn!(event = event.event, "an event of the payment gateway waits in memory");
            return spool.put(arrived);
        }
    };
    let Some(subject) = event.subject.as_deref() else {
        return;
    };
    let applied = tokio::time::timeout(APPLY_TIME, events.apply_kept(received.as_ref(), subject)).await;
    // If it was not applied, a worker goes on when the lease is over.
    match applied {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(cause = %chain(&error), "an event of the payment gateway waits for a worker"),
        Err(late) => tracing::warn!(cause = %late, "an event of the payment gateway waits for a worker"),
    }
    services.shared.relays.wake();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(body: &[u8]) -> Arrived {
        (GatewayEvent::read(body), OffsetDateTime::UNIX_EPOCH)
    }

    #[actix_web::test]
    async fn an_event_whose_work_panics_is_kept_behind_those_that_wait() {
        let spool = EventSpool::default();
        let (first, second) = (arrived(br#"{"event":"FIRST"}"#), arrived(br#"{"event":"SECOND"}"#));
        spool.put(first.clone());
        or_spooled(&spool, second.clone(), async { panic!("injected") }).await;
        assert_eq!(*spool.waiting(), [first, second]);
        let spool = EventSpool::default();
        or_spooled(&spool, arrived(b"{}"), async {}).await;
        assert!(spool.is_empty(), "what was done is not kept");
    }

    #[test]
    fn no_flood_of_events_takes_more_than_its_room() {
        let spool = EventSpool::default();
        (0..CAPACITY + 10).for_each(|_| spool.put(arrived(b"{}")));
        assert_eq!(spool.waiting().len(), CAPACITY);
    }
}
