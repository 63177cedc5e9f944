//! The use cases over the in-memory store and the in-memory gateway, with one account.

use std::sync::{Arc, MutexGuard};

use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::billing::in_memory::{
    BillingTables, FakePaymentGateway, GatewayState, InMemoryBilling, InMemoryBillingAccount, InjectedFault,
};
use crate::billing::workflow::SubscriptionWorkflow;
use crate::billing::*;
use crate::shared::*;

pub(super) const NOW: OffsetDateTime = datetime!(2026-03-10 12:00 UTC);

pub(super) struct Fixture {
    store: Arc<InMemoryBilling>,
    gateway: Arc<FakePaymentGateway>,
}

pub(super) fn account() -> AccountId {
    AccountId(Uuid::from_u128(7))
}

pub(super) fn tenant() -> Tenant {
    Tenant::for_tests(account(), UserId(Uuid::from_u128(8)), Role::Owner)
}

pub(super) fn input(billing_type: &str) -> SubscribeInput {
    SubscribeInput::for_tests("starter", billing_type)
}

impl Fixture {
    pub(super) fn new() -> Self {
        let mut tables = BillingTables::new(NOW);
        let row = InMemoryBillingAccount {
            name: "Loja".into(),
            plan: "free".into(),
            ..InMemoryBillingAccount::default()
        };
        tables.accounts.insert(account(), row);
        Self {
            store: Arc::new(InMemoryBilling::new(tables)),
            gateway: Arc::default(),
        }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, BillingTables> {
        self.store.tables()
    }

    /// Reads or changes the rows of the account.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut InMemoryBillingAccount) -> T) -> T {
        act(self.tables().accounts.get_mut(&account()).unwrap())
    }

    /// The gateway events that are not finished.
    pub(super) fn waiting(&self) -> Vec<StoredEvent> {
        let tables = self.tables();
        tables.waiting_events().map(|stored| stored.event.clone()).collect()
    }

    pub(super) fn gateway(&self) -> MutexGuard<'_, GatewayState> {
        self.gateway.state()
    }

    pub(super) fn billing(&self) -> Billing {
        let store = &self.store;
        Billing::new(
            store.clone(),
            store.clone(),
            self.gateway.clone(),
            store.clone(),
            store.clone(),
        )
    }

    pub(super) fn reconciler(&self) -> SubscriptionReconciler {
        let store = &self.store;
        SubscriptionReconciler::new(
            store.clone(),
            store.clone(),
            self.gateway.clone(),
            store.clone(),
            store.clone(),
        )
    }

    pub(super) fn workflow(&self) -> SubscriptionWorkflow {
        SubscriptionWorkflow {
            store: self.store.clone(),
            gateway: self.gateway.clone(),
            clock: self.store.clone(),
            ids: self.store.clone(),
        }
    }

    pub(super) fn events(&self) -> GatewayEvents {
        let store = &self.store;
        GatewayEvents::new(store.clone(), store.clone(), store.clone(), store.clone())
    }

    pub(super) fn inject_fault(&self, call: &'static str, injected_fault: InjectedFault) {
        self.gateway().injected_faults.push_back((call, injected_fault));
    }

    pub(super) fn advance_clock(&self, time: Duration) {
        self.tables().now += time;
    }

    /// Runs the reconciler until nothing is due.
    pub(super) async fn reconcile(&self) {
        while self.reconciler().reconcile_next().await.unwrap() {}
        while self.reconciler().check_next().await.unwrap() {}
        while self.reconciler().lapse_next().await.unwrap() {}
    }

    /// Reads the gateway's first payment, as a worker does, and the time before the call.
    pub(super) fn read_payment(&self) -> (GatewayPayment, OffsetDateTime) {
        (self.gateway().payments[0].clone(), self.store.now())
    }

    /// Applies a payment that a worker read.
    pub(super) async fn apply_payment(&self, (payment, asked_at): &(GatewayPayment, OffsetDateTime)) {
        let id = self.only_subscription().id;
        let workflow = self.workflow();
        workflow.apply_payment(account(), id, payment, *asked_at).await.unwrap();
    }

    /// Receives and applies an event of the gateway subscription `sub_1`.
    pub(super) async fn deliver(&self, event: &GatewayEvent) {
        self.deliver_for(event, "sub_1").await;
    }

    /// Receives and applies an event of this gateway subscription.
    pub(super) async fn deliver_for(&self, event: &GatewayEvent, subject: &str) {
        let (events, now) = (self.events(), self.store.now());
        let received = events.receive(event, now).await.unwrap();
        events.apply_received(received.as_ref(), subject).await.unwrap();
    }

    /// Stores an event without applying it.
    pub(super) async fn record_event(&self, event: &GatewayEvent) {
        self.events().record(event, self.store.now()).await.unwrap();
    }

    /// Returns the only subscription that is no attempt.
    pub(super) fn only_subscription(&self) -> Subscription {
        self.with(|account| {
            let rows: Vec<_> = account
                .subscriptions
                .values()
                .filter(|row| !row.is_attempt())
                .cloned()
                .collect();
            assert_eq!(rows.len(), 1, "{rows:?}");
            rows[0].clone()
        })
    }

    /// Counts the subscriptions that the gateway would charge.
    pub(super) fn charged_count(&self) -> usize {
        let state = self.gateway();
        state.subscriptions.iter().filter(|(_, row)| !row.deleted).count()
    }

    pub(super) fn call_count(&self, name: &str) -> usize {
        self.gateway().calls.iter().filter(|call| **call == name).count()
    }

    pub(super) fn notification_titles(&self) -> Vec<String> {
        self.with(|account| {
            let titles = account.events.iter().filter_map(|event| match event {
                Event::Notification(notification) => Some(notification.title.clone()),
                Event::Audit(_) | Event::Webhook(_) => None,
            });
            titles.collect()
        })
    }
}
