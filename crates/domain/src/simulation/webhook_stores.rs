//! The stores of webhooks, and the receivers of deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use time::Duration;

use super::bugs::SimulationBug;
use super::executor::{Scheduler, Wait};
use super::stores::{Stores, Written};
use crate::shared::{
    AccountId, Event, InsertOutcome, Page, PageQuery, RowOutcome, StoreError, Timer, UpdateOutcome, WebhookId,
};
use crate::webhooks::in_memory::{InMemoryDelivery, InMemoryDeliveryState};
use crate::webhooks::{
    Attempt, AttemptOutcome, ClaimRequest, ClaimedDelivery, DelivererReport, DeliveryFailure, DeliveryGateway,
    DeliveryKey, DeliveryQueue, DeliveryRequest, DeliveryState, HealthUpdate, Jitter, StoredWebhook, Webhook,
    WebhookStore, WorkSignal,
};

#[async_trait]
impl WebhookStore for Stores {
    async fn page(&self, _: AccountId, _: PageQuery) -> Result<Page<Webhook>, StoreError> {
        unreachable!("a simulation lists no endpoints")
    }

    async fn find(&self, account: AccountId, id: WebhookId) -> Result<Option<StoredWebhook>, StoreError> {
        self.call("find endpoint", self.webhooks.find(account, id)).await
    }

    async fn insert(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        at_most: i64,
        events: &[Event],
    ) -> Result<InsertOutcome, StoreError> {
        let insert = self.webhooks.insert(account, webhook, at_most, events);
        self.write("insert endpoint", Written::Webhooks, insert).await
    }

    async fn update(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        self.write("update endpoint", Written::Webhooks, async {
            let before = self.webhooks.tables().deliveries.clone();
            let outcome = self.webhooks.update(account, webhook, events).await?;
            self.restore_dropped(before);
            Ok(outcome)
        })
        .await
    }

    async fn delete(&self, account: AccountId, id: WebhookId, events: &[Event]) -> Result<RowOutcome, StoreError> {
        let delete = self.webhooks.delete(account, id, events);
        self.write("delete endpoint", Written::Webhooks, delete).await
    }
}

impl Stores {
    /// The bug: deliveries that are dropped wait instead.
    fn restore_dropped(&self, before: BTreeMap<DeliveryKey, InMemoryDelivery>) {
        if self.has_bug(SimulationBug::DeliveriesNotDroppedAtDisable) {
            let mut tables = self.webhooks.tables();
            for (key, row) in before {
                let after = tables.deliveries.get_mut(&key);
                if let Some(after) = after.filter(|after| after.state == InMemoryDeliveryState::Dropped) {
                    *after = row;
                }
            }
        }
    }

    /// The bugs of recorded attempts.
    fn changed_attempts(&self, attempts: &[Attempt]) -> Vec<Attempt> {
        let changed = attempts.iter().cloned().map(|mut attempt| {
            match self.bug {
                Some(SimulationBug::AttemptNotCounted) if attempt.state != DeliveryState::Delivered => {
                    attempt.number -= 1;
                }
                Some(SimulationBug::FailureRemovesDelivery) => attempt.state = DeliveryState::Delivered,
                _ => {}
            }
            attempt
        });
        changed.collect()
    }
}

#[async_trait]
impl DeliveryQueue for Stores {
    async fn claim(&self, request: &ClaimRequest, lease: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let claim = async {
            if self.has_bug(SimulationBug::ClaimIgnoresLease) {
                let mut tables = self.webhooks.tables();
                let now = tables.now;
                let leased = tables.deliveries.values_mut().filter(|row| row.leased);
                leased.for_each(|row| row.next_attempt_at = now);
            }
            let claimed = self.webhooks.claim(request, lease).await?;
            if !claimed.is_empty() {
                self.commit(Written::Webhooks);
            }
            Ok(claimed)
        };
        self.call("claim deliveries", claim).await
    }

    async fn finish(
        &self,
        attempts: &[Attempt],
        health_updates: &[(AccountId, WebhookId, HealthUpdate)],
    ) -> Result<(), StoreError> {
        self.write("record deliveries", Written::Webhooks, async {
            let before = self.webhooks.tables().deliveries.clone();
            self.webhooks
                .finish(&self.changed_attempts(attempts), health_updates)
                .await?;
            self.restore_dropped(before.clone());
            for attempt in attempts {
                let (key, mut tables) = (attempt.key, self.webhooks.tables());
                if self.has_bug(SimulationBug::SuccessNotRecorded)
                    && let Some(row) = before.get(&key).filter(|row| row.claim == attempt.claim)
                {
                    tables.deliveries.entry(key).or_insert(row.clone());
                }
                let after = tables.deliveries.get(&key).cloned();
                drop(tables);
                // A batch may hold an attempt of an old claim whose first record operation failed, and the next one.
                let is_only = attempts.iter().filter(|other| other.key == key).count() == 1;
                self.ledger()
                    .attempt_recorded(attempt, before.get(&key), after.as_ref(), is_only);
            }
            Ok(())
        })
        .await
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        self.write("release deliveries", Written::Webhooks, self.webhooks.release(claims))
            .await
    }

    async fn sweep(&self, _: Duration, _: i64) -> Result<usize, StoreError> {
        unreachable!("a simulation purges nothing")
    }
}

/// The receivers of deliveries. Some of their calls fail.
pub(super) struct Receivers(pub(super) Arc<Stores>);

#[async_trait]
impl DeliveryGateway for Receivers {
    async fn deliver(&self, _: &DeliveryRequest) -> AttemptOutcome {
        let stores = &self.0;
        stores.scheduler.latency("deliver", 50).await;
        if !stores.scheduler.percent(stores.failure_rates().receivers) {
            stores.scheduler.latency("delivered", 50).await;
            return answered(200);
        }
        match stores.scheduler.below(20) {
            0 => answered(410),
            1..8 => answered(500),
            _ => {
                stores.scheduler.sleep_for(Duration::seconds(15), Wait::Busy).await;
                AttemptOutcome::Unreachable(DeliveryFailure::TimedOut)
            }
        }
    }
}

fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered {
        status,
        retry_after: None,
    }
}

/// The signal that the relay has enqueued deliveries.
const DELIVERIES: &str = "deliveries";

/// `IDLE_WAIT` and `STORE_ERROR_DELAY` of the deliverer: its pauses without work.
const DELIVERER_PAUSE: Duration = Duration::milliseconds(500);

/// The deliverer's ports to time. Its pauses last longer than in a server, so that a simulation is fast.
pub(super) struct DelivererTime(pub(super) Scheduler);

#[async_trait]
impl Timer for DelivererTime {
    async fn sleep(&self, duration: Duration) {
        let (duration, wait) = match duration == DELIVERER_PAUSE {
            true => (Duration::seconds(10), Wait::Idle),
            false => (duration, Wait::Busy),
        };
        self.0.sleep_for(duration, wait).await;
    }
}

#[async_trait]
impl WorkSignal for DelivererTime {
    async fn wait_for_work(&self) {
        self.0.wait_for(DELIVERIES).await;
    }
}

impl DelivererReport for DelivererTime {
    fn claimed(&self, _: usize) {}

    fn failed(&self, what: &'static str, _: &StoreError) {
        self.0.note(what);
    }
}

impl Jitter for DelivererTime {
    fn spread(&self) -> f64 {
        0.0
    }
}

impl DelivererTime {
    pub(super) fn wake_deliverers(scheduler: &Scheduler) {
        scheduler.signal(DELIVERIES);
    }
}
