//! Inbox of gateway events: each event is stored first, then applied once and in the order of receipt.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::{
    ChangeOutcome, EventReceipt, GatewayEvent, GatewayEventStore, RecordOutcome, StoredEvent, SubscriptionStore, effect,
};
use crate::shared::{Clock, Ids, StoreError, retry_on_conflict};

/// Lease of a claimed event. After it another worker may apply the event.
pub const EVENT_LEASE: Duration = Duration::seconds(30);

/// Retries (after 1, 2, 4, ... seconds) of an event whose subscription is not stored. The event may arrive before the
/// response to the subscribe call, or before the reconciliation of a crashed subscribe request.
const MAX_UNKNOWN_SUBJECT_RETRIES: u32 = 9;

/// How long finished events are stored for deduplication. The gateway repeats an event for 14 days.
const EVENT_RETENTION: Duration = Duration::days(60);

/// Use cases of gateway events.
pub struct GatewayEvents {
    events: Arc<dyn GatewayEventStore>,
    store: Arc<dyn SubscriptionStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl GatewayEvents {
    pub fn new(
        events: Arc<dyn GatewayEventStore>,
        store: Arc<dyn SubscriptionStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            events,
            store,
            clock,
            ids,
        }
    }

    /// Stores an event durably, without claiming it.
    pub async fn record(&self, event: &GatewayEvent, received_at: OffsetDateTime) -> Result<(), StoreError> {
        let id = self.ids.next().into();
        self.events
            .record(id, event, received_at, Duration::ZERO)
            .await
            .map(|_| ())
    }

    /// Stores an event durably and claims it. Returns `None` if the caller has no event to apply. The caller continues
    /// with [`GatewayEvents::apply_received`].
    pub async fn receive(
        &self,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
    ) -> Result<Option<StoredEvent>, StoreError> {
        let id = self.ids.next().into();
        let recorded = self.events.record(id, event, received_at, EVENT_LEASE).await?;
        Ok((recorded == RecordOutcome::Claimed).then(|| event.received(id, received_at)))
    }

    /// Applies a received event and then the waiting events of the same subscription. Stops at an event that another
    /// worker has claimed.
    pub async fn apply_received(&self, event: Option<&StoredEvent>, subject: &str) -> Result<(), StoreError> {
        let done = match event {
            Some(event) => self.apply(event).await?,
            None => true,
        };
        if done {
            self.apply_waiting(subject).await
        } else {
            Ok(())
        }
    }

    /// Applies the waiting events of a subscription until none is due or another worker has claimed one.
    async fn apply_waiting(&self, subject: &str) -> Result<(), StoreError> {
        while let Some(event) = self.events.claim(Some(subject.to_owned()), EVENT_LEASE).await? {
            if !self.apply(&event).await? {
                break;
            }
        }
        Ok(())
    }

    /// Applies one due event. Returns false if there is none.
    pub async fn apply_next(&self) -> Result<bool, StoreError> {
        match self.events.claim(None, EVENT_LEASE).await? {
            Some(event) => self.apply(&event).await.map(|_| true),
            None => Ok(false),
        }
    }

    /// Deletes up to `limit` finished events older than `EVENT_RETENTION`. Returns how many.
    pub async fn purge(&self, limit: i64) -> Result<usize, StoreError> {
        self.events.purge(EVENT_RETENTION, limit).await
    }

    /// Applies a claimed event and returns whether it is finished. The store rejects an event that another worker
    /// already applied, so a stalled worker changes nothing.
    async fn apply(&self, event: &StoredEvent) -> Result<bool, StoreError> {
        let Some((account, subscription)) = self.events.owner(&event.subject).await? else {
            return self.defer_unknown(event).await;
        };
        let payment = event.data.payment.as_ref().map(|payment| payment.id.clone());
        let applied: Result<(), StoreError> = retry_on_conflict(async || {
            let facts = self.store.facts(account, subscription, payment.clone()).await?;
            let change = facts.and_then(|facts| {
                let (new_id, now) = (self.ids.next().into(), self.clock.now());
                let receipt = EventReceipt {
                    event: event.id,
                    received_at: event.received_at,
                };
                effect(&facts, &event.data, Some(receipt), new_id, now)
            });
            let written = match &change {
                Some(change) => self.store.write(change).await?,
                None => {
                    self.store.mark_applied(account, event.id).await?;
                    ChangeOutcome::Done
                }
            };
            Ok((written != ChangeOutcome::Stale).then_some(()))
        })
        .await;
        match applied {
            Ok(()) => self.events.finish(event.id).await.map(|()| true),
            Err(error) if error.is_conflict() => self.events.defer(event.id, Duration::SECOND).await.map(|()| false),
            Err(error) => Err(error),
        }
    }

    async fn defer_unknown(&self, event: &StoredEvent) -> Result<bool, StoreError> {
        if event.attempts >= MAX_UNKNOWN_SUBJECT_RETRIES {
            self.events.finish(event.id).await?;
            return Ok(true);
        }
        let delay = Duration::seconds(2_i64.saturating_pow(event.attempts));
        self.events.defer(event.id, delay).await?;
        Ok(false)
    }
}
