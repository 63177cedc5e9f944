//! The gateway's events: kept first, then applied in their order, each once.

use std::sync::Arc;

use time::Duration;

use super::completion::ATTEMPTS;
use super::{EventStore, GatewayEvent, StoredEvent, SubscriptionStore, Writing, effect};
use crate::shared::{Clock, Ids, StoreError};

/// How long applying one event may take before somebody else does it.
pub const EVENT_LEASE: Duration = Duration::seconds(30);

/// How often an event of a subscription that nobody knows is tried (after 1, 2, 4, ... seconds): it may be faster than
/// the answer to the subscribe, or than the settlement of one that somebody died on.
const UNKNOWN_TRIES: u32 = 9;

/// How long finished events are known again: the gateway repeats one for 14 days.
const KEPT_FOR: Duration = Duration::days(60);

/// The use cases of events.
pub struct GatewayEvents {
    events: Arc<dyn EventStore>,
    store: Arc<dyn SubscriptionStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl GatewayEvents {
    pub fn new(
        events: Arc<dyn EventStore>,
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

    /// Keeps an event: once this returned it is not lost. False when it was kept before.
    pub async fn keep(&self, event: &GatewayEvent) -> Result<bool, StoreError> {
        self.events.record(self.ids.next().into(), event).await
    }

    /// Applies what waits about a subscription, as far as nobody else is at it.
    pub async fn apply_to(&self, subject: &str) -> Result<(), StoreError> {
        while let Some(event) = self.events.claim(Some(subject.to_owned()), EVENT_LEASE).await? {
            if !self.apply(&event).await? {
                break;
            }
        }
        Ok(())
    }

    /// Applies one event that is due; false when there is none.
    pub async fn apply_next(&self) -> Result<bool, StoreError> {
        match self.events.claim(None, EVENT_LEASE).await? {
            Some(event) => self.apply(&event).await.map(|_| true),
            None => Ok(false),
        }
    }

    /// Forgets old events; how many.
    pub async fn forget(&self, limit: i64) -> Result<usize, StoreError> {
        self.events.forget(KEPT_FOR, limit).await
    }

    /// Whether it is over with. Applied again after a crash it changes nothing: the subscription knows its last event.
    async fn apply(&self, event: &StoredEvent) -> Result<bool, StoreError> {
        let Some((account, subscription)) = self.events.owner(&event.subject).await? else {
            return self.unknown(event).await;
        };
        let payment = event.news.payment.as_ref().map(|payment| payment.id.clone());
        for _ in 0..ATTEMPTS {
            let facts = self.store.facts(account, subscription, payment.clone()).await?;
            let change = facts.and_then(|facts| {
                let (new_id, now) = (self.ids.next().into(), self.clock.now());
                effect(&facts, &event.news, Some(event.id), new_id, now)
            });
            let written = match &change {
                Some(change) => self.store.write(change).await?,
                None => Writing::Done,
            };
            if written != Writing::Stale {
                self.events.finish(event.id).await?;
                return Ok(true);
            }
        }
        self.events.defer(event.id, Duration::SECOND).await?;
        Ok(false)
    }

    async fn unknown(&self, event: &StoredEvent) -> Result<bool, StoreError> {
        if event.attempts >= UNKNOWN_TRIES {
            self.events.finish(event.id).await?;
            return Ok(true);
        }
        let delay = Duration::seconds(2_i64.saturating_pow(event.attempts));
        self.events.defer(event.id, delay).await?;
        Ok(false)
    }
}
