//! The state of a history: the in-memory store and the payment gateway.

use std::sync::Arc;

use futures_util::FutureExt;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;
use recado_domain::billing::Usage;
use recado_domain::billing::in_memory::{
    BillingTables, FakePaymentGateway, GatewayState, InMemoryBilling, InMemoryBillingAccount,
};
use recado_domain::shared::{AccountId, UserId};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::callers::Caller;
use super::steps::{Step, any_step};

/// The start of a history, later than the real time: `CURRENT_TIMESTAMP`, which cannot be shadowed like `now()`, makes a
/// row due.
const START: OffsetDateTime = datetime!(2099-01-31 12:00 UTC);

/// The duration of a step. The microsecond makes every time unique that is a whole number of seconds from `now()`, so
/// that the order of all queues is defined.
const STEP_TIME: Duration = Duration::microseconds(1_000_001);

/// The accounts. An endpoint of the first one subscribes to webhook events.
pub(super) fn accounts() -> [AccountId; 2] {
    [1, 2].map(|number| AccountId(Uuid::from_u128(number << 64)))
}

/// The member who acts.
pub(super) const USER: UserId = UserId(Uuid::from_u128(8));

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) tables: BillingTables,
    pub(super) gateway: GatewayState,
    /// The outcome of the last step.
    pub(super) outcome: String,
    /// What the ports return after the last step.
    pub(super) reads: Vec<String>,
}

impl State {
    fn new() -> Self {
        let mut tables = BillingTables::new(START);
        for (at, id) in accounts().into_iter().enumerate() {
            let account = InMemoryBillingAccount {
                name: "Loja da Ana".into(),
                plan: "free".into(),
                usage: Usage {
                    team: 1,
                    ..Usage::default()
                },
                has_endpoint: at == 0,
                ..InMemoryBillingAccount::default()
            };
            tables.accounts.insert(id, account);
        }
        Self {
            tables,
            gateway: GatewayState::default(),
            outcome: String::new(),
            reads: vec![],
        }
    }

    /// The state in which a step begins: time has passed, and what no store performs has happened.
    pub(super) fn begin(&self, step: &Step) -> Self {
        let mut state = self.clone();
        state.tables.now += STEP_TIME;
        match step {
            Step::PassTime(time) => state.tables.now += *time,
            Step::InjectFault(call, injected) => state.gateway.injected_faults.push_back((*call, injected.clone())),
            Step::ReportPayment { payment, status } => {
                if let Some(payment) = state.gateway.payments.get_mut(*payment) {
                    payment.status = status.clone();
                }
            }
            Step::SetContacts(account, contacts) => {
                state.tables.accounts.get_mut(account).unwrap().usage.contacts = *contacts;
            }
            Step::Grant(account, plan) => {
                let plan = plan.map(str::to_owned);
                state.tables.accounts.get_mut(account).unwrap().granted_plan = plan;
            }
            _ => {}
        }
        state
    }

    /// The state after the step.
    fn after(&self, step: &Step) -> Self {
        let begun = self.begin(step);
        let store = Arc::new(InMemoryBilling::new(begun.tables));
        let caller = Caller {
            subscriptions: store.clone(),
            accounts: store.clone(),
            events: store.clone(),
            work: store.clone(),
            gateway: Arc::new(FakePaymentGateway::new(begun.gateway)),
            clock_and_ids: store.clone(),
        };
        let outcome = caller.run(step).now_or_never().expect("nothing waits");
        let mut state = Self {
            tables: store.tables().clone(),
            gateway: caller.gateway.state().clone(),
            outcome,
            reads: vec![],
        };
        state.reads = caller.reads(&state).now_or_never().expect("nothing waits");
        state
    }

    /// The rows that the database must have, one line each, sorted.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, account) in &self.tables.accounts {
            let granted = account.granted_plan.as_deref().unwrap_or("-");
            lines.push(format!("account {id} plan={} granted={granted}", account.plan));
            lines.extend(account.subscriptions.values().map(|row| {
                let attempt = row.is_attempt();
                format!("subscription {id} {} version={} attempt={attempt}", row.id, row.version)
            }));
            let payments = account.payments.iter();
            lines.extend(
                payments.map(|row| format!("payment {id} {} of {}", row.gateway_payment_id, row.subscription_id)),
            );
            lines.extend(
                account
                    .applied_events
                    .iter()
                    .map(|event| format!("applied {id} {event}")),
            );
        }
        for stored in &self.tables.gateway_events {
            let due = match stored.due_at {
                None => "finished".to_owned(),
                Some(at) if at <= self.tables.now => "due".to_owned(),
                Some(at) => format!("until {}", microseconds(at)),
            };
            let (event, received) = (&stored.event, microseconds(stored.event.received_at));
            let (id, subject, attempts) = (event.id, &event.subject, event.attempts);
            let key = &stored.key;
            lines.push(format!(
                "event {id} key={key} subject={subject} attempts={attempts} received={received} {due}"
            ));
        }
        let owners = self.tables.owners.iter();
        lines.extend(owners.map(|(subject, (account, id))| format!("owner {subject} {account} {id}")));
        lines.sort_unstable();
        lines
    }

    /// The outbox events of each account, in their order.
    pub(super) fn appended(&self) -> Vec<String> {
        let events = self.tables.accounts.iter().flat_map(|(id, account)| {
            let payloads = account.events.iter().map(serde_json::to_value);
            payloads.map(move |payload| format!("{id} {}", payload.unwrap()))
        });
        events.collect()
    }
}

/// The time in the format of the database's lines.
pub(super) fn microseconds(at: OffsetDateTime) -> i128 {
    at.unix_timestamp_nanos() / 1000
}

/// The in-memory store as the reference.
pub(super) struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        Just(State::new()).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        any_step(state)
    }

    fn apply(state: State, step: &Step) -> State {
        state.after(step)
    }
}
