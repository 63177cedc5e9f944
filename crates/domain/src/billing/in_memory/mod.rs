//! An in-memory store of billing: the reference that the stores in PostgreSQL are compared with, and the store of the
//! domain's tests. [`FakePaymentGateway`] is the gateway of both.

mod gateway;
mod tables;

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{
    BillingAccountStore, Change, ChangeOutcome, GatewayEvent, GatewayEventStore, GatewayPayment, Overview, Payment,
    RecordOutcome, ReserveOutcome, StoredEvent, Subscription, SubscriptionFacts, SubscriptionStore,
    SubscriptionWorkStore,
};
use crate::shared::{AccountId, Clock, GatewayEventId, GuardOutcome, Ids, Page, PageQuery, StoreError, SubscriptionId};

pub use gateway::{FakePaymentGateway, GatewayState, InjectedFault};
pub use tables::{BillingTables, InMemoryBillingAccount, InMemoryGatewayEvent};

/// The stores of billing over [`BillingTables`], their clock and their ids.
#[derive(Debug)]
pub struct InMemoryBilling(Mutex<BillingTables>);

impl InMemoryBilling {
    pub fn new(tables: BillingTables) -> Self {
        Self(Mutex::new(tables))
    }

    pub fn tables(&self) -> MutexGuard<'_, BillingTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables for a write. Fails if [`BillingTables::writes_left`] is zero.
    fn tables_to_write(&self) -> Result<MutexGuard<'_, BillingTables>, StoreError> {
        let mut tables = self.tables();
        match &mut tables.writes_left {
            Some(0) => return Err(unavailable()),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(tables)
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("down".into())
}

impl Clock for InMemoryBilling {
    fn now(&self) -> OffsetDateTime {
        self.tables().now
    }
}

impl Ids for InMemoryBilling {
    fn next(&self) -> Uuid {
        let mut tables = self.tables();
        tables.id_count += 1;
        Uuid::from_u128(tables.id_count)
    }
}

#[async_trait]
impl SubscriptionStore for InMemoryBilling {
    async fn reserve(&self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError> {
        self.tables_to_write()?.reserve(attempt)
    }

    async fn find(&self, account: AccountId, id: SubscriptionId) -> Result<Option<Subscription>, StoreError> {
        let tables = self.tables();
        let account = tables.accounts.get(&account);
        Ok(account.and_then(|account| account.subscriptions.get(&id)).cloned())
    }

    async fn facts(
        &self,
        account: AccountId,
        id: SubscriptionId,
        gateway_payment_id: Option<String>,
    ) -> Result<Option<SubscriptionFacts>, StoreError> {
        let tables = self.tables();
        let account = tables.accounts.get(&account);
        Ok(account.and_then(|account| account.facts(id, gateway_payment_id.as_deref())))
    }

    async fn write(&self, change: &Change) -> Result<ChangeOutcome, StoreError> {
        Ok(self.tables_to_write()?.write(change))
    }

    async fn mark_applied(&self, account: AccountId, event: GatewayEventId) -> Result<(), StoreError> {
        let mut tables = self.tables_to_write()?;
        tables.account_mut(account)?.applied_events.insert(event);
        Ok(())
    }

    async fn remove(&self, attempt: &Subscription) -> Result<GuardOutcome, StoreError> {
        let mut tables = self.tables_to_write()?;
        Ok(GuardOutcome::of(
            tables.account_mut(attempt.account_id)?.remove(attempt),
        ))
    }
}

#[async_trait]
impl BillingAccountStore for InMemoryBilling {
    async fn overview(&self, account: AccountId) -> Result<Overview, StoreError> {
        let mut tables = self.tables();
        if tables.overview_fails {
            return Err(unavailable());
        }
        Ok(tables.account_mut(account)?.overview())
    }

    async fn history(&self, account: AccountId, page: PageQuery) -> Result<Page<Payment>, StoreError> {
        Ok(self.tables().account_mut(account)?.history(page))
    }

    async fn owns(&self, account: AccountId, payment: &GatewayPayment) -> Result<bool, StoreError> {
        let tables = self.tables();
        let account = tables.accounts.get(&account);
        Ok(account.is_some_and(|account| account.owns(payment)))
    }
}

#[async_trait]
impl GatewayEventStore for InMemoryBilling {
    async fn record(
        &self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> Result<RecordOutcome, StoreError> {
        Ok(self.tables_to_write()?.record(id, event, received_at, lease))
    }

    async fn claim(&self, subject: Option<String>, lease: Duration) -> Result<Option<StoredEvent>, StoreError> {
        Ok(self.tables().claim_event(subject.as_deref(), lease))
    }

    async fn finish(&self, id: GatewayEventId) -> Result<(), StoreError> {
        let mut tables = self.tables_to_write()?;
        if let Some(stored) = tables.waiting_event_mut(id) {
            stored.due_at = None;
        }
        Ok(())
    }

    async fn defer(&self, id: GatewayEventId, delay: Duration) -> Result<(), StoreError> {
        let mut tables = self.tables_to_write()?;
        let due_at = tables.now + delay;
        if let Some(stored) = tables.waiting_event_mut(id) {
            stored.due_at = Some(due_at);
            stored.event.attempts += 1;
        }
        Ok(())
    }

    async fn owner(&self, subject: &str) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.tables().owner(subject))
    }

    async fn purge(&self, age: Duration, limit: i64) -> Result<usize, StoreError> {
        Ok(self.tables_to_write()?.purge(age, limit))
    }
}

#[async_trait]
impl SubscriptionWorkStore for InMemoryBilling {
    async fn claim_intent(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.tables().claim_intent(pause))
    }

    async fn claim_check(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.tables().claim_check(pause))
    }

    async fn next_lapse(&self) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.tables().next_lapse())
    }
}
