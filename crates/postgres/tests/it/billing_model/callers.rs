//! Executes the steps on the ports of one store. Outcomes are compared as text.

use std::sync::Arc;

use recado_domain::billing::in_memory::{FakePaymentGateway, InMemoryBilling};
use recado_domain::billing::{
    Billing, BillingAccountStore, GatewayEventStore, GatewayEvents, PlanChangeInput, SubscribeInput,
    SubscriptionReconciler, SubscriptionStore, SubscriptionWorkStore,
};
use recado_domain::shared::{AccountId, Clock as _, PageQuery, Role, Tenant};

use super::state::{State, USER, accounts};
use super::steps::{PAUSE, SUBJECTS, Step};

/// The ports of one store, with a gateway, a clock and ids that are equal for both stores.
pub(super) struct Caller {
    pub(super) subscriptions: Arc<dyn SubscriptionStore>,
    pub(super) accounts: Arc<dyn BillingAccountStore>,
    pub(super) events: Arc<dyn GatewayEventStore>,
    pub(super) work: Arc<dyn SubscriptionWorkStore>,
    pub(super) gateway: Arc<FakePaymentGateway>,
    pub(super) clock_and_ids: Arc<InMemoryBilling>,
}

fn tenant(account: AccountId) -> Tenant {
    Tenant::for_tests(account, USER, Role::Owner)
}

impl Caller {
    fn billing(&self) -> Billing {
        let (accounts, subscriptions) = (self.accounts.clone(), self.subscriptions.clone());
        let (clock, ids) = (self.clock_and_ids.clone(), self.clock_and_ids.clone());
        Billing::new(accounts, subscriptions, self.gateway.clone(), clock, ids)
    }

    fn gateway_events(&self) -> GatewayEvents {
        let (events, subscriptions) = (self.events.clone(), self.subscriptions.clone());
        let (clock, ids) = (self.clock_and_ids.clone(), self.clock_and_ids.clone());
        GatewayEvents::new(events, subscriptions, clock, ids)
    }

    fn reconciler(&self) -> SubscriptionReconciler {
        let (subscriptions, work) = (self.subscriptions.clone(), self.work.clone());
        let (clock, ids) = (self.clock_and_ids.clone(), self.clock_and_ids.clone());
        SubscriptionReconciler::new(subscriptions, work, self.gateway.clone(), clock, ids)
    }

    /// Executes the step. Does nothing for a step that no store performs.
    pub(super) async fn run(&self, step: &Step) -> String {
        match step {
            Step::Subscribe {
                account,
                plan,
                billing_type,
            } => {
                let input = SubscribeInput::for_tests(plan, billing_type.as_str());
                text(self.billing().subscribe(&tenant(*account), input).await)
            }
            Step::ChangePlan { account, plan, cycle } => {
                let input = PlanChangeInput {
                    plan: Some((*plan).to_owned()),
                    cycle: Some(cycle.as_str().to_owned()),
                };
                text(self.billing().change(&tenant(*account), &input).await)
            }
            Step::Cancel(account) => text(self.billing().cancel(&tenant(*account)).await),
            Step::Receive(event) => {
                let (events, now) = (self.gateway_events(), self.clock_and_ids.now());
                let received = events.receive(event, now).await.unwrap();
                let subject = event.subject.as_deref().unwrap_or_default();
                text(events.apply_received(received.as_ref(), subject).await)
            }
            Step::ResumeStalled(event) => {
                let events = self.gateway_events();
                text(events.apply_received(Some(event), &event.subject).await)
            }
            Step::ApplyNext => text(self.gateway_events().apply_next().await),
            Step::Reconcile => text(self.reconciler().reconcile_next().await),
            Step::Check => text(self.reconciler().check_next().await),
            Step::Lapse => text(self.reconciler().lapse_next().await),
            _ => self.call_port(step).await,
        }
    }

    async fn call_port(&self, step: &Step) -> String {
        let (subscriptions, events) = (&self.subscriptions, &self.events);
        match step {
            Step::Reserve(attempt) => text(subscriptions.reserve(attempt).await),
            Step::Write(change) => text(subscriptions.write(change).await),
            Step::Remove(attempt) => text(subscriptions.remove(attempt).await),
            Step::MarkApplied(account, event) => text(subscriptions.mark_applied(*account, *event).await),
            Step::Record(id, event, lease) => text(events.record(*id, event, self.clock_and_ids.now(), *lease).await),
            Step::ClaimEvent(subject) => text(events.claim(subject.map(str::to_owned), PAUSE).await),
            Step::Finish(event) => text(events.finish(*event).await),
            Step::Defer(event, delay) => text(events.defer(*event, *delay).await),
            Step::Purge(age, limit) => text(events.purge(*age, *limit).await),
            Step::ClaimIntent => text(self.work.claim_intent(PAUSE).await),
            Step::ClaimCheck => text(self.work.claim_check(PAUSE).await),
            Step::NextLapse => text(self.work.next_lapse().await),
            _ => String::new(),
        }
    }

    /// Reads everything that the ports return about this state.
    pub(super) async fn reads(&self, state: &State) -> Vec<String> {
        let mut reads = Vec::new();
        for account in accounts() {
            reads.push(text(self.accounts.overview(account).await));
            let page = PageQuery::new(None, None, 100, 100);
            reads.push(text(self.accounts.history(account, page).await));
            for payment in state.gateway.payments.iter().take(2) {
                reads.push(text(self.accounts.owns(account, payment).await));
            }
        }
        for (number, row) in state.tables.subscriptions().enumerate() {
            let payment = format!("pay_{}", 1 + number % SUBJECTS.len());
            let facts = self.subscriptions.facts(row.account_id, row.id, Some(payment)).await;
            let facts = facts.unwrap().map(|mut facts| {
                facts.others.sort_by_key(|other| text(other));
                facts
            });
            reads.push(text(facts));
        }
        for subject in SUBJECTS {
            reads.push(text(self.events.owner(subject).await));
        }
        reads
    }
}

fn text(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}
