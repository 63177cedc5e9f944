//! The tables of the in-memory store, and the statements on them.

use std::collections::{BTreeMap, BTreeSet};

use time::{Duration, OffsetDateTime};

use super::super::{
    Change, ChangeOutcome, GatewayEvent, GatewayPayment, Overview, Payment, RecordOutcome, ReserveOutcome, StoredEvent,
    Subscription, SubscriptionFacts, SubscriptionState, SubscriptionStatus, Usage, better_plan, changed_event,
    exceeded,
};
use crate::shared::{AccountId, Event, GatewayEventId, Page, PageQuery, StoreError, SubscriptionId};

/// A received gateway event.
#[derive(Clone, Debug)]
pub struct InMemoryGatewayEvent {
    /// Deduplication key.
    pub key: String,
    pub event: StoredEvent,
    /// Until then it is leased or deferred. None: it is finished.
    pub due_at: Option<OffsetDateTime>,
}

/// The rows of one account.
#[derive(Clone, Debug, Default)]
pub struct InMemoryBillingAccount {
    pub name: String,
    pub plan: String,
    pub granted_plan: Option<String>,
    pub usage: Usage,
    /// Whether an endpoint of the account subscribes to webhook events.
    pub has_endpoint: bool,
    pub subscriptions: BTreeMap<SubscriptionId, Subscription>,
    pub payments: Vec<Payment>,
    /// The gateway events that are marked as applied.
    pub applied_events: BTreeSet<GatewayEventId>,
    /// The appended outbox events.
    pub events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct BillingTables {
    pub now: OffsetDateTime,
    pub accounts: BTreeMap<AccountId, InMemoryBillingAccount>,
    /// The subscription of each gateway subscription id.
    pub owners: BTreeMap<String, (AccountId, SubscriptionId)>,
    /// In the order of their insertion.
    pub gateway_events: Vec<InMemoryGatewayEvent>,
    /// The number of generated ids.
    pub id_count: u128,
    /// Whether [`overview`](super::super::BillingAccountStore::overview) fails.
    pub overview_fails: bool,
    /// The number of writes, not counting claims, before the store fails. None: it never fails.
    pub writes_left: Option<usize>,
}

impl InMemoryBillingAccount {
    fn other_live(&self, id: SubscriptionId) -> Option<&Subscription> {
        let mut rows = self.subscriptions.values();
        rows.find(|row| row.id != id && row.status.is_live())
    }

    pub(super) fn facts(&self, id: SubscriptionId, gateway_payment_id: Option<&str>) -> Option<SubscriptionFacts> {
        let others = self.subscriptions.values();
        let others = others.filter(|row| row.id != id && !row.is_attempt());
        let state = |row: &Subscription| SubscriptionState {
            plan: row.plan.clone(),
            status: row.status,
            current_period_end: row.current_period_end,
        };
        let mut payments = self.payments.iter();
        Some(SubscriptionFacts {
            subscription: self.subscriptions.get(&id)?.clone(),
            payment: payments
                .find(|payment| Some(payment.gateway_payment_id.as_str()) == gateway_payment_id)
                .cloned(),
            other_live: self.other_live(id).is_some(),
            others: others.map(state).collect(),
        })
    }

    /// Writes the change if no guard refuses it.
    fn write(&mut self, change: &Change) -> ChangeOutcome {
        let after = &change.subscription;
        if change.applies.is_some_and(|event| self.applied_events.contains(&event)) {
            return ChangeOutcome::Repeated;
        }
        if let Some(Err(errors)) = change.limits.map(|limits| exceeded(&self.usage, &limits)) {
            return ChangeOutcome::Exceeds(errors);
        }
        let Some(before) = self.subscriptions.get(&after.id) else {
            return ChangeOutcome::Missing;
        };
        let second_live = after.status.is_live() && self.other_live(after.id).is_some();
        if before.version != after.version || second_live {
            return ChangeOutcome::Stale;
        }
        let row = Subscription {
            billing_type: before.billing_type,
            billing_email: before.billing_email.clone(),
            created_at: before.created_at,
            version: before.version + 1,
            ..after.clone()
        };
        let changed = changed_event(&before.into(), after);
        self.subscriptions.insert(row.id, row);
        self.applied_events.extend(change.applies);
        change.payment.iter().for_each(|payment| self.upsert_payment(payment));
        if let Some(paid) = &change.account_plan {
            self.granted_plan = self.granted_plan.take().filter(|_| !change.withdraws_grant);
            self.plan = better_plan(paid, self.granted_plan.as_deref()).to_owned();
        }
        let has_subscriber = |event: &&Event| self.has_endpoint || !matches!(event, Event::Webhook(_));
        let appended = change.events.iter().chain(&changed).filter(has_subscriber);
        self.events.extend(appended.cloned());
        ChangeOutcome::Done
    }

    fn upsert_payment(&mut self, payment: &Payment) {
        let mut payments = self.payments.iter_mut();
        match payments.find(|stored| stored.gateway_payment_id == payment.gateway_payment_id) {
            Some(stored) => {
                *stored = Payment {
                    id: stored.id,
                    subscription_id: stored.subscription_id,
                    created_at: stored.created_at,
                    ..payment.clone()
                };
            }
            None => self.payments.push(payment.clone()),
        }
    }

    /// Whether the attempt was removed, with its payments.
    pub(super) fn remove(&mut self, attempt: &Subscription) -> bool {
        let stored = self.subscriptions.get(&attempt.id);
        let is_unchanged = stored.is_some_and(|row| row.version == attempt.version && row.is_attempt());
        if is_unchanged {
            self.subscriptions.remove(&attempt.id);
            self.payments.retain(|payment| payment.subscription_id != attempt.id);
        }
        is_unchanged
    }

    pub(super) fn overview(&self) -> Overview {
        let mut rows = self.subscriptions.values();
        Overview {
            account_name: self.name.clone(),
            account_plan: self.plan.clone(),
            granted_plan: self.granted_plan.clone(),
            subscription: rows.find(|row| row.status.is_live() && !row.is_attempt()).cloned(),
            usage: self.usage,
        }
    }

    pub(super) fn history(&self, page: PageQuery) -> Page<Payment> {
        let mut payments = self.payments.clone();
        payments.sort_by_key(|payment| std::cmp::Reverse((payment.created_at, payment.id)));
        let total = i64::try_from(payments.len()).unwrap_or(i64::MAX);
        let [offset, limit] = [page.offset(), page.limit()].map(|count| usize::try_from(count).unwrap_or_default());
        Page::new(page, payments.into_iter().skip(offset).take(limit).collect(), total)
    }

    pub(super) fn owns(&self, payment: &GatewayPayment) -> bool {
        let has_subscription = self.subscriptions.values().any(|row| match &payment.subscription {
            Some(id) => row.gateway_subscription_id.as_ref() == Some(id),
            None => payment.customer.is_some() && row.gateway_customer_id == payment.customer,
        });
        let mut payments = self.payments.iter();
        has_subscription || payments.any(|stored| stored.gateway_payment_id == payment.id)
    }
}

impl BillingTables {
    pub fn new(now: OffsetDateTime) -> Self {
        Self {
            now,
            accounts: BTreeMap::new(),
            owners: BTreeMap::new(),
            gateway_events: vec![],
            id_count: 0,
            overview_fails: false,
            writes_left: None,
        }
    }

    pub(super) fn account_mut(&mut self, id: AccountId) -> Result<&mut InMemoryBillingAccount, StoreError> {
        let account = self.accounts.get_mut(&id);
        account.ok_or_else(|| StoreError::Failed("the account does not exist".into()))
    }

    pub(super) fn reserve(&mut self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError> {
        let account = self.account_mut(attempt.account_id)?;
        if let Some(holder) = account.other_live(attempt.id) {
            return Ok(ReserveOutcome::Taken(Box::new(holder.clone())));
        }
        account.subscriptions.insert(attempt.id, attempt.clone());
        Ok(ReserveOutcome::Done)
    }

    pub(super) fn write(&mut self, change: &Change) -> ChangeOutcome {
        let after = &change.subscription;
        let Some(account) = self.accounts.get_mut(&after.account_id) else {
            return ChangeOutcome::Missing;
        };
        let outcome = account.write(change);
        if outcome == ChangeOutcome::Done
            && let Some(gateway_id) = &after.gateway_subscription_id
            && !self.owners.contains_key(gateway_id)
        {
            self.owners.insert(gateway_id.clone(), (after.account_id, after.id));
            self.wake_events(gateway_id);
        }
        outcome
    }

    /// Makes the deferred events of a gateway subscription due.
    fn wake_events(&mut self, subject: &str) {
        for stored in &mut self.gateway_events {
            if stored.event.subject == subject && stored.event.attempts > 0 {
                stored.due_at = stored.due_at.map(|due_at| due_at.min(self.now));
            }
        }
    }

    pub(super) fn owner(&self, subject: &str) -> Option<(AccountId, SubscriptionId)> {
        let (account, id) = self.owners.get(subject)?;
        let row = self.accounts.get(account)?.subscriptions.get(id)?;
        (row.gateway_subscription_id.as_deref() == Some(subject)).then_some((*account, *id))
    }

    pub(super) fn record(
        &mut self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> RecordOutcome {
        let mut others = self.gateway_events.iter();
        if others.clone().any(|other| other.key == event.key) {
            return RecordOutcome::Known;
        }
        let stored = event.received(id, received_at);
        let has_older = others.any(|other| other.due_at.is_some() && other.event.subject == stored.subject);
        let lease = if has_older { Duration::ZERO } else { lease };
        let due_at = event.has_effect().then_some(self.now + lease);
        self.gateway_events.push(InMemoryGatewayEvent {
            key: event.key.clone(),
            event: stored,
            due_at,
        });
        match due_at.is_some_and(|due_at| due_at > self.now) {
            true => RecordOutcome::Claimed,
            false => RecordOutcome::Stored,
        }
    }

    /// The events that are not finished.
    pub fn waiting_events(&self) -> impl Iterator<Item = &InMemoryGatewayEvent> {
        self.gateway_events.iter().filter(|stored| stored.due_at.is_some())
    }

    pub(super) fn waiting_event_mut(&mut self, id: GatewayEventId) -> Option<&mut InMemoryGatewayEvent> {
        let mut events = self.gateway_events.iter_mut();
        events.find(|stored| stored.event.id == id && stored.due_at.is_some())
    }

    pub(super) fn claim_event(&mut self, subject: Option<&str>, lease: Duration) -> Option<StoredEvent> {
        let now = self.now;
        let mut subjects = BTreeSet::new();
        let stored = self.gateway_events.iter_mut().find(|stored| {
            let is_first = stored.due_at.is_some() && subjects.insert(stored.event.subject.clone());
            is_first && stored.due_at <= Some(now) && subject.is_none_or(|subject| stored.event.subject == subject)
        })?;
        stored.due_at = Some(now + lease);
        Some(stored.event.clone())
    }

    pub(super) fn purge(&mut self, age: Duration, limit: i64) -> usize {
        let until = self.now - age;
        let finished = self.gateway_events.iter().filter(|stored| stored.due_at.is_none());
        let old = finished.filter(|stored| stored.event.received_at <= until);
        let mut old: Vec<_> = old.map(|stored| (stored.event.received_at, stored.event.id)).collect();
        old.sort_unstable();
        old.truncate(usize::try_from(limit).unwrap_or_default());
        let purged: BTreeSet<_> = old.into_iter().map(|(_, id)| id).collect();
        self.gateway_events.retain(|stored| !purged.contains(&stored.event.id));
        for account in self.accounts.values_mut() {
            account.applied_events.retain(|id| !purged.contains(id));
        }
        purged.len()
    }

    /// The subscriptions of all accounts.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        let accounts = self.accounts.values();
        accounts.flat_map(|account| account.subscriptions.values())
    }

    fn subscriptions_mut(&mut self) -> impl Iterator<Item = &mut Subscription> {
        let accounts = self.accounts.values_mut();
        accounts.flat_map(|account| account.subscriptions.values_mut())
    }

    pub(super) fn claim_intent(&mut self, pause: Duration) -> Option<(AccountId, SubscriptionId)> {
        let now = self.now;
        let check_at = |row: &Subscription| row.pending.as_ref().map(|pending| pending.check_at);
        let due = self
            .subscriptions_mut()
            .filter(|row| check_at(row).is_some_and(|at| at <= now));
        let row = due.min_by_key(|row| check_at(row))?;
        row.pending.as_mut()?.check_at = now + pause;
        Some((row.account_id, row.id))
    }

    pub(super) fn claim_check(&mut self, pause: Duration) -> Option<(AccountId, SubscriptionId)> {
        let now = self.now;
        let due = self
            .subscriptions_mut()
            .filter(|row| row.check_at.is_some_and(|at| at <= now));
        let row = due.min_by_key(|row| row.check_at)?;
        row.check_at = Some(now + pause);
        Some((row.account_id, row.id))
    }

    pub(super) fn next_lapse(&self) -> Option<(AccountId, SubscriptionId)> {
        let is_over = |row: &&Subscription| row.current_period_end.is_none_or(|end| end <= self.now);
        let cancelled = self
            .subscriptions()
            .filter(|row| row.status == SubscriptionStatus::Cancelled && row.lapsed_at.is_none());
        let row = cancelled.filter(is_over).min_by_key(|row| row.current_period_end)?;
        Some((row.account_id, row.id))
    }
}
