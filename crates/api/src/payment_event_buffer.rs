//! Stores and applies gateway events. The gateway gets 200 for every event, even if the database is unavailable. Then
//! the event waits in memory until the database can store it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use recado_domain::billing::{GatewayEvent, GatewayEventReader, GatewayEvents};
use recado_domain::shared::{Clock, StoreError};
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::error_chain::chain;
use crate::worker_handles::WorkerSignals;

/// The maximum number of events in memory. Further events are dropped; reconciliation finds their effect at the
/// gateway.
const CAPACITY: usize = 10_000;

/// How long storing an event, and applying it, may delay the response. The gateway waits ten seconds.
const STORE_TIMEOUT: Duration = Duration::from_secs(4);
const APPLY_TIMEOUT: Duration = Duration::from_secs(4);

/// An event and the time at which it was received.
type ReceivedEvent = (GatewayEvent, OffsetDateTime);

/// A queue of events that wait for the database.
#[derive(Clone, Default)]
pub struct PaymentEventBuffer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    waiting: Mutex<VecDeque<ReceivedEvent>>,
    dropped: AtomicU64,
    wake: Arc<Notify>,
}

impl PaymentEventBuffer {
    /// Appends an event to the queue. Drops it if the queue is full.
    fn enqueue(&self, received_event: ReceivedEvent) {
        let mut waiting = self.waiting();
        if waiting.len() >= CAPACITY {
            let event = received_event.0.event;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::error!(event, "dropped a payment gateway event, the buffer in memory is full");
            return;
        }
        waiting.push_back(received_event);
        drop(waiting);
        self.0.wake.notify_one();
    }

    pub fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// The number of queued events, and of dropped events.
    pub fn stats(&self) -> (usize, u64) {
        (self.waiting().len(), self.0.dropped.load(Ordering::Relaxed))
    }

    /// Notified when an event is queued.
    pub fn wake(&self) -> Arc<Notify> {
        self.0.wake.clone()
    }

    /// Stores the first queued event in the database. Returns false if the queue is empty.
    pub async fn flush_next(&self, events: &GatewayEvents) -> Result<bool, StoreError> {
        let Some(received_event) = self.waiting().front().cloned() else {
            return Ok(false);
        };
        events.record(&received_event.0, received_event.1).await?;
        let mut waiting = self.waiting();
        if waiting.front() == Some(&received_event) {
            waiting.pop_front();
        }
        Ok(true)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<ReceivedEvent>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives gateway events.
pub struct PaymentEventReceiver {
    pub reader: Arc<dyn GatewayEventReader>,
    pub events: GatewayEvents,
    pub buffer: PaymentEventBuffer,
    pub clock: Arc<dyn Clock>,
    pub signals: WorkerSignals,
}

impl PaymentEventReceiver {
    /// Stores the event of a callback and tries to apply it at once. This continues if the gateway disconnects.
    pub async fn receive(self: Arc<Self>, body: &[u8]) {
        let received_event = (self.reader.read(body), self.clock.now());
        let (buffer, copy) = (self.buffer.clone(), received_event.clone());
        run_or_enqueue(&buffer, copy, async move {
            store_and_apply(&self, received_event).await;
        })
        .await;
    }
}

/// Runs `work` in a separate task. If it panics, the event is queued like any other.
async fn run_or_enqueue(buffer: &PaymentEventBuffer, event: ReceivedEvent, work: impl Future<Output = ()> + 'static) {
    if let Err(error) = actix_web::rt::spawn(work).await {
        tracing::error!(%error, "processing a payment gateway event panicked, it waits in memory");
        buffer.enqueue(event);
    }
}

async fn store_and_apply(receiver: &PaymentEventReceiver, received_event: ReceivedEvent) {
    let buffer = &receiver.buffer;
    // Events keep their order: none passes the queued ones.
    if !buffer.is_empty() {
        return buffer.enqueue(received_event);
    }
    let (event, at) = &received_event;
    let events = &receiver.events;
    let received = match tokio::time::timeout(STORE_TIMEOUT, events.receive(event, *at)).await {
        Ok(Ok(received)) => received,
        Ok(Err(error)) => {
            tracing::warn!(cause = %error, event = event.event,
                "a payment gateway event was not stored, it waits in memory");
            return buffer.enqueue(received_event);
        }
        Err(_) => {
            tracing::warn!(
                event = event.event,
                "a payment gateway event was not stored, it waits in memory"
            );
            return buffer.enqueue(received_event);
        }
    };
    let Some(subject) = event.subject.as_deref() else {
        return;
    };
    let applied = tokio::time::timeout(APPLY_TIMEOUT, events.apply_received(received.as_ref(), subject)).await;
    // If this fails, a worker applies the event when the lease has expired.
    match applied {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(cause = %chain(&error), "a payment gateway event was not applied, a worker will retry it")
        }
        Err(late) => tracing::warn!(cause = %late, "a payment gateway event was not applied, a worker will retry it"),
    }
    receiver.signals.wake_relays();
}

#[cfg(test)]
mod tests {
    use recado_domain::billing::{GatewayEventData, GatewayEventKind};

    use super::*;

    fn received_event(name: &str) -> ReceivedEvent {
        let event = GatewayEvent {
            key: name.to_owned(),
            event: name.to_owned(),
            subject: None,
            data: GatewayEventData {
                kind: GatewayEventKind::Other,
                payment: None,
                created_at: None,
            },
        };
        (event, OffsetDateTime::UNIX_EPOCH)
    }

    #[actix_web::test]
    async fn event_whose_processing_panics_is_queued_last() {
        let buffer = PaymentEventBuffer::default();
        let (first, second) = (received_event("FIRST"), received_event("SECOND"));
        buffer.enqueue(first.clone());
        run_or_enqueue(&buffer, second.clone(), async { panic!("injected") }).await;
        assert_eq!(*buffer.waiting(), [first, second]);
        let buffer = PaymentEventBuffer::default();
        run_or_enqueue(&buffer, received_event("FIRST"), async {}).await;
        assert!(buffer.is_empty(), "a processed event is queued");
    }

    #[test]
    fn buffer_drops_events_beyond_its_capacity() {
        let buffer = PaymentEventBuffer::default();
        (0..CAPACITY + 10).for_each(|_| buffer.enqueue(received_event("FIRST")));
        assert_eq!(buffer.waiting().len(), CAPACITY);
    }
}
