//! In-memory fixture: fake stores, clock and id generator of billing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::billing::*;
use crate::shared::*;

pub(super) const NOW: OffsetDateTime = datetime!(2026-03-10 12:00 UTC);

/// An error that the fake gateway returns for one call.
#[derive(Clone, Debug)]
pub(super) enum InjectedFault {
    /// The call has no effect.
    Before(PaymentGatewayError),
    /// The call has its effect before it fails.
    After(PaymentGatewayError),
}

#[derive(Default)]
pub(super) struct State {
    pub(super) rows: BTreeMap<SubscriptionId, Subscription>,
    pub(super) payments: Vec<Payment>,
    pub(super) plan: String,
    pub(super) granted: Option<String>,
    pub(super) applied: BTreeSet<GatewayEventId>,
    pub(super) usage: Usage,
    pub(super) events: Vec<Event>,
    pub(super) recorded: BTreeMap<String, StoredEvent>,
    pub(super) waiting: Vec<StoredEvent>,
    /// Whether `overview` fails.
    pub(super) reads_fail: bool,
    /// Number of writes before the store fails; `None`: it never fails.
    pub(super) writes_left: Option<usize>,
    pub(super) remote: Vec<(SubscriptionId, GatewaySubscription)>,
    pub(super) remote_payments: Vec<GatewayPayment>,
    pub(super) injected_faults: VecDeque<(&'static str, InjectedFault)>,
    pub(super) calls: Vec<&'static str>,
    pub(super) now: Option<OffsetDateTime>,
    next: u128,
}

#[derive(Clone, Default)]
pub(super) struct Fixture(pub(super) Arc<Mutex<State>>);

pub(super) fn account() -> AccountId {
    AccountId(Uuid::from_u128(7))
}

pub(super) fn tenant() -> Tenant {
    Tenant::for_tests(account(), UserId(Uuid::from_u128(8)), Role::Owner)
}

pub(super) fn input(billing_type: &str) -> SubscribeInput {
    let some = |text: &str| Some(text.to_owned());
    SubscribeInput {
        plan: some("starter"),
        billing_type: some(billing_type),
        cycle: some("MONTHLY"),
        billing_email: some("ana@example.com"),
        cpf_cnpj: some("529.982.247-25"),
        credit_card: Some(CardInput {
            holder_name: Some("ANA".into()),
            number: Some("4111111111111111".into()),
            expiry_month: Some("05".into()),
            expiry_year: Some("2030".into()),
            ccv: Some("123".into()),
        }),
        credit_card_holder_info: Some(HolderInput {
            name: some("Ana"),
            email: some("ana@example.com"),
            cpf_cnpj: some("52998224725"),
            postal_code: some("01001000"),
            address_number: some("1"),
            phone: some("11961234567"),
        }),
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        let fixture = Self::default();
        fixture.with(|state| {
            state.plan = "free".into();
            state.now = Some(NOW);
        });
        fixture
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(super) fn billing(&self) -> Billing {
        let shared = Arc::new(self.clone());
        Billing::new(shared.clone(), shared.clone(), shared.clone(), shared.clone(), shared)
    }

    pub(super) fn reconciler(&self) -> SubscriptionReconciler {
        let shared = Arc::new(self.clone());
        SubscriptionReconciler::new(shared.clone(), shared.clone(), shared.clone(), shared.clone(), shared)
    }

    pub(super) fn events(&self) -> GatewayEvents {
        let shared = Arc::new(self.clone());
        GatewayEvents::new(shared.clone(), shared.clone(), shared.clone(), shared)
    }

    pub(super) fn inject_fault(&self, call: &'static str, injected_fault: InjectedFault) {
        self.with(|state| state.injected_faults.push_back((call, injected_fault)));
    }

    pub(super) fn advance_clock(&self, time: Duration) {
        self.with(|state| state.now = state.now.map(|now| now + time));
    }

    /// Runs the reconciler until nothing is due.
    pub(super) async fn reconcile(&self) {
        while self.reconciler().reconcile_next().await.unwrap() {}
        while self.reconciler().check_next().await.unwrap() {}
        while self.reconciler().lapse_next().await.unwrap() {}
    }

    /// Receives and applies an event of the gateway subscription `sub_1`.
    pub(super) async fn deliver(&self, event: &GatewayEvent) {
        self.deliver_for(event, "sub_1").await;
    }

    /// Receives and applies an event of this gateway subscription.
    pub(super) async fn deliver_for(&self, event: &GatewayEvent, subject: &str) {
        let (events, now) = (self.events(), self.with(|state| state.now.unwrap()));
        let received = events.receive(event, now).await.unwrap();
        events.apply_received(received.as_ref(), subject).await.unwrap();
    }

    /// Stores an event without applying it.
    pub(super) async fn record_event(&self, event: &GatewayEvent) {
        let now = self.with(|state| state.now.unwrap());
        self.events().record(event, now).await.unwrap();
    }

    /// Returns the only subscription that is no attempt.
    pub(super) fn only_subscription(&self) -> Subscription {
        self.with(|state| {
            let rows: Vec<_> = state.rows.values().filter(|row| !row.is_attempt()).cloned().collect();
            assert_eq!(rows.len(), 1, "{rows:?}");
            rows[0].clone()
        })
    }

    /// Counts the subscriptions that the gateway would charge.
    pub(super) fn charged_count(&self) -> usize {
        self.with(|state| state.remote.iter().filter(|(_, remote)| !remote.deleted).count())
    }

    pub(super) fn call_count(&self, name: &str) -> usize {
        self.with(|state| state.calls.iter().filter(|call| **call == name).count())
    }

    pub(super) fn notification_titles(&self) -> Vec<String> {
        self.with(|state| {
            let titles = state.events.iter().filter_map(|event| match event {
                Event::Notification(notification) => Some(notification.title.clone()),
                Event::Audit(_) | Event::Webhook(_) => None,
            });
            titles.collect()
        })
    }

    pub(super) fn call<T>(
        &self,
        call: &'static str,
        act: impl FnOnce(&mut State) -> Result<T, PaymentGatewayError>,
    ) -> Result<T, PaymentGatewayError> {
        self.with(|state| {
            state.calls.push(call);
            let at = state.injected_faults.iter().position(|(name, _)| *name == call);
            match at
                .and_then(|at| state.injected_faults.remove(at))
                .map(|(_, injected_fault)| injected_fault)
            {
                Some(InjectedFault::Before(error)) => Err(error),
                Some(InjectedFault::After(error)) => act(state).and(Err(error)),
                None => act(state),
            }
        })
    }
}

impl State {
    fn id(&mut self) -> Uuid {
        self.next += 1;
        Uuid::from_u128(self.next)
    }

    fn write(&mut self) -> Result<(), StoreError> {
        match &mut self.writes_left {
            Some(0) => return Err(StoreError::Unavailable("down".into())),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn other_live(&self, id: SubscriptionId) -> Option<&Subscription> {
        self.rows.values().find(|row| row.id != id && row.status.is_live())
    }

    fn others(&self, id: SubscriptionId) -> Vec<SubscriptionState> {
        let others = self.rows.values().filter(|row| row.id != id && !row.is_attempt());
        let state = |row: &Subscription| SubscriptionState {
            plan: row.plan.clone(),
            status: row.status,
            current_period_end: row.current_period_end,
        };
        others.map(state).collect()
    }
}

impl Clock for Fixture {
    fn now(&self) -> OffsetDateTime {
        self.with(|state| state.now.unwrap())
    }
}

impl Ids for Fixture {
    fn next(&self) -> Uuid {
        self.with(State::id)
    }
}

#[async_trait]
impl SubscriptionStore for Fixture {
    async fn reserve(&self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError> {
        self.with(|state| {
            state.write()?;
            if let Some(other) = state.other_live(attempt.id) {
                return Ok(ReserveOutcome::Taken(Box::new(other.clone())));
            }
            state.rows.insert(attempt.id, attempt.clone());
            Ok(ReserveOutcome::Done)
        })
    }

    async fn find(&self, _: AccountId, id: SubscriptionId) -> Result<Option<Subscription>, StoreError> {
        Ok(self.with(|state| state.rows.get(&id).cloned()))
    }

    async fn facts(
        &self,
        _: AccountId,
        id: SubscriptionId,
        payment: Option<String>,
    ) -> Result<Option<SubscriptionFacts>, StoreError> {
        Ok(self.with(|state| {
            let has_id = |row: &&Payment| Some(&row.gateway_payment_id) == payment.as_ref();
            Some(SubscriptionFacts {
                subscription: state.rows.get(&id)?.clone(),
                payment: state.payments.iter().find(has_id).cloned(),
                other_live: state.other_live(id).is_some(),
                others: state.others(id),
            })
        }))
    }

    async fn write(&self, change: &Change) -> Result<ChangeOutcome, StoreError> {
        self.with(|state| {
            state.write()?;
            let Some(row) = state.rows.get(&change.subscription.id) else {
                return Ok(ChangeOutcome::Missing);
            };
            let second_live = change.subscription.status.is_live() && state.other_live(row.id).is_some();
            if change.applies.is_some_and(|event| state.applied.contains(&event)) {
                return Ok(ChangeOutcome::Repeated);
            }
            if row.version != change.subscription.version || second_live {
                return Ok(ChangeOutcome::Stale);
            }
            if let Some(Err(errors)) = change.limits.as_ref().map(|limits| exceeded(&state.usage, limits)) {
                return Ok(ChangeOutcome::Exceeds(errors));
            }
            let mut row = change.subscription.clone();
            row.version += 1;
            state.rows.insert(row.id, row);
            if let Some(payment) = &change.payment {
                state
                    .payments
                    .retain(|stored| stored.gateway_payment_id != payment.gateway_payment_id);
                state.payments.push(payment.clone());
            }
            state.applied.extend(change.applies);
            if change.withdraws_grant {
                state.granted = None;
            }
            if let Some(paid) = &change.account_plan {
                state.plan = better_plan(paid, state.granted.as_deref()).to_owned();
            }
            state.events.extend(change.events.iter().cloned());
            Ok(ChangeOutcome::Done)
        })
    }

    async fn mark_applied(&self, _: AccountId, event: GatewayEventId) -> Result<(), StoreError> {
        self.with(|state| state.applied.insert(event));
        Ok(())
    }

    async fn remove(&self, attempt: &Subscription) -> Result<GuardOutcome, StoreError> {
        self.with(|state| {
            state.write()?;
            let same = |row: &Subscription| row.version == attempt.version && row.is_attempt();
            if !state.rows.get(&attempt.id).is_some_and(same) {
                return Ok(GuardOutcome::Stale);
            }
            state.rows.remove(&attempt.id);
            Ok(GuardOutcome::Done)
        })
    }
}

#[async_trait]
impl BillingAccountStore for Fixture {
    async fn overview(&self, _: AccountId) -> Result<Overview, StoreError> {
        if self.with(|state| state.reads_fail) {
            return Err(StoreError::Unavailable("down".into()));
        }
        Ok(self.with(|state| Overview {
            account_name: "Loja".into(),
            account_plan: state.plan.clone(),
            granted_plan: state.granted.clone(),
            subscription: state
                .rows
                .values()
                .find(|row| row.status.is_live() && !row.is_attempt())
                .cloned(),
            usage: state.usage,
        }))
    }

    async fn history(&self, _: AccountId, page: PageQuery) -> Result<Page<Payment>, StoreError> {
        Ok(self.with(|state| Page::new(page, state.payments.clone(), 0)))
    }

    async fn owns(&self, _: AccountId, payment: &GatewayPayment) -> Result<bool, StoreError> {
        Ok(self.with(|state| {
            let mut rows = state.rows.values();
            rows.any(|row| row.gateway_subscription_id.is_some() && row.gateway_subscription_id == payment.subscription)
        }))
    }
}

#[async_trait]
impl GatewayEventStore for Fixture {
    async fn record(
        &self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> Result<RecordOutcome, StoreError> {
        self.with(|state| {
            state.write()?;
            if state.recorded.contains_key(&event.key) {
                return Ok(RecordOutcome::Known);
            }
            let stored = StoredEvent {
                id,
                subject: event.subject.clone().unwrap_or_default(),
                data: event.data.clone(),
                received_at,
                attempts: 0,
            };
            state.recorded.insert(event.key.clone(), stored.clone());
            if !event.has_effect() {
                return Ok(RecordOutcome::Stored);
            }
            let first = !state.waiting.iter().any(|waiting| waiting.subject == stored.subject);
            state.waiting.push(stored);
            Ok(match first && lease > Duration::ZERO {
                true => RecordOutcome::Claimed,
                false => RecordOutcome::Stored,
            })
        })
    }

    async fn claim(&self, subject: Option<String>, _: Duration) -> Result<Option<StoredEvent>, StoreError> {
        Ok(self.with(|state| {
            let fits = |event: &&StoredEvent| subject.as_ref().is_none_or(|subject| *subject == event.subject);
            state.waiting.iter().find(fits).cloned()
        }))
    }

    async fn finish(&self, id: GatewayEventId) -> Result<(), StoreError> {
        self.with(|state| {
            state.write()?;
            state.waiting.retain(|event| event.id != id);
            Ok(())
        })
    }

    async fn defer(&self, id: GatewayEventId, _: Duration) -> Result<(), StoreError> {
        self.with(|state| {
            let waiting = state.waiting.iter_mut().filter(|event| event.id == id);
            waiting.for_each(|event| event.attempts += 1);
        });
        Ok(())
    }

    async fn owner(&self, subject: &str) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.with(|state| {
            let has_id = |row: &&Subscription| row.gateway_subscription_id.as_deref() == Some(subject);
            state.rows.values().find(has_id).map(|row| (row.account_id, row.id))
        }))
    }

    async fn purge(&self, _: Duration, _: i64) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl SubscriptionWorkStore for Fixture {
    async fn claim_intent(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.with(|state| {
            let now = state.now.unwrap();
            let due = |row: &&mut Subscription| row.pending.as_ref().is_some_and(|pending| pending.check_at <= now);
            let row = state.rows.values_mut().find(due)?;
            row.pending.as_mut()?.check_at = now + pause;
            Some((row.account_id, row.id))
        }))
    }

    async fn claim_check(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.with(|state| {
            let now = state.now.unwrap();
            let due = |row: &&mut Subscription| row.check_at.is_some_and(|at| at <= now);
            let row = state.rows.values_mut().find(due)?;
            row.check_at = Some(now + pause);
            Some((row.account_id, row.id))
        }))
    }

    async fn next_lapse(&self) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.with(|state| {
            let now = state.now.unwrap();
            let over = |row: &&Subscription| {
                row.status == SubscriptionStatus::Cancelled
                    && row.lapsed_at.is_none()
                    && row.current_period_end.is_none_or(|end| end <= now)
            };
            state.rows.values().find(over).map(|row| (row.account_id, row.id))
        }))
    }
}
