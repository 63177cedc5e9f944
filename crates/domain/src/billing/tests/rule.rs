//! Property test: any order and repetition of gateway events ends in the state of the documented rule. The model
//! implements the rule independently, as a walk over the events in the order of their first receipt.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::events::gateway_event_of_value;
use super::fixture::{Fixture, NOW, input, tenant};
use crate::billing::*;
use crate::shared::GatewayEventId;

#[derive(Clone, Debug)]
enum Step {
    /// Kind, payment, second of the event, and whether its value is the yearly price.
    NewEvent(usize, usize, Option<u8>, bool),
    /// Delivers an earlier event again.
    Again(usize),
    /// A stalled worker resumes with an event that it claimed earlier.
    Stalled(usize),
    Cancel,
    /// The account changes to the yearly cycle (true) or the monthly cycle.
    Cycle(bool),
    /// An administrator grants a plan (true) or withdraws it.
    Grant(bool),
}

const KINDS: [&str; 4] = [
    "PAYMENT_CONFIRMED",
    "PAYMENT_RECEIVED",
    "PAYMENT_OVERDUE",
    "SUBSCRIPTION_INACTIVATED",
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_usize..4, 0_usize..3, proptest::option::weighted(0.8, 0_u8..20), proptest::bool::weighted(0.3))
            .prop_map(|(kind, payment, at, year)| Step::NewEvent(kind, payment, at, year)),
        3 => (0_usize..12).prop_map(Step::Again),
        3 => (0_usize..12).prop_map(Step::Stalled),
        1 => Just(Step::Cancel),
        2 => any::<bool>().prop_map(Step::Cycle),
        1 => any::<bool>().prop_map(Step::Grant),
    ];
    proptest::collection::vec(step, 0..25)
}

fn event(number: usize, step: &Step) -> Option<GatewayEvent> {
    let Step::NewEvent(kind, payment, at, year) = step else {
        return None;
    };
    let at = at.map_or("undated".to_owned(), |at| format!("2026-03-10 10:00:{at:02}"));
    Some(gateway_event_of_value(
        KINDS[*kind],
        &format!("evt_{number}"),
        &format!("pay_{}", payment + 1),
        &at,
        Cents(if *year { 97_000 } else { 9_700 }),
    ))
}

/// The rule of decisions.md, section 6.
#[derive(Debug, Default, PartialEq)]
struct Model {
    status: &'static str,
    plan: &'static str,
    last: BTreeMap<usize, u8>,
    confirmed: BTreeSet<usize>,
    /// Months that each credited payment has paid for.
    periods: BTreeMap<usize, usize>,
    notifications: usize,
    /// Whether the current cycle is yearly.
    yearly: bool,
    granted: bool,
    lapsed: bool,
}

impl Model {
    /// The account's plan if no plan is paid.
    fn without_payment(&self) -> &'static str {
        if self.granted { "growth" } else { "free" }
    }

    fn with_payment(&self) -> &'static str {
        if self.granted { "growth" } else { "starter" }
    }

    fn apply_event(&mut self, kind: usize, payment: usize, at: Option<u8>, year: bool) {
        if KINDS[kind] == "SUBSCRIPTION_INACTIVATED" {
            if !self.lapsed {
                self.plan = self.without_payment();
            }
            (self.status, self.lapsed) = ("inactive", true);
            return;
        }
        if at.zip(self.last.get(&payment)).is_some_and(|(at, last)| at < *last) {
            return;
        }
        if let Some(at) = at {
            self.last.insert(payment, at);
        }
        self.notifications += 1;
        let ended = matches!(self.status, "cancelled" | "inactive");
        match KINDS[kind] {
            "PAYMENT_RECEIVED" if self.confirmed.contains(&payment) && ended => return,
            "PAYMENT_OVERDUE" => self.status = "past_due",
            kind => {
                if kind == "PAYMENT_CONFIRMED" {
                    self.confirmed.insert(payment);
                }
                self.status = "active";
                // Money after a confirmation pays for no further period.
                let settles = kind == "PAYMENT_RECEIVED" && self.confirmed.contains(&payment);
                if !settles {
                    self.periods.entry(payment).or_insert(if year { 12 } else { 1 });
                }
            }
        }
        (self.plan, self.lapsed) = (self.with_payment(), false);
    }
}

async fn play(steps: &[Step]) -> (Fixture, Model) {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.with(|account| account.events.clear());
    let mut model = Model {
        status: "pending",
        plan: "starter",
        ..Model::default()
    };
    let mut delivered = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::NewEvent(kind, payment, at, year) => {
                model.apply_event(*kind, *payment, *at, *year);
                delivered.push(event(number, step).unwrap());
                fixture.deliver(delivered.last().unwrap()).await;
            }
            Step::Again(index) => {
                if let Some(event) = delivered.get(*index) {
                    fixture.deliver(event).await;
                }
            }
            Step::Stalled(index) => resume_stalled_worker(&fixture, delivered.get(*index)).await,
            Step::Cancel => cancel(&fixture, &mut model).await,
            Step::Cycle(yearly) => change_cycle(&fixture, &mut model, *yearly).await,
            Step::Grant(granted) => grant(&fixture, &mut model, *granted),
        }
    }
    (fixture, model)
}

async fn resume_stalled_worker(fixture: &Fixture, event: Option<&GatewayEvent>) {
    let stored = event.and_then(|event| {
        let tables = fixture.tables();
        let stored = tables.gateway_events.iter().find(|stored| stored.key == event.key);
        stored.map(|stored| stored.event.clone())
    });
    if let Some(stored) = stored {
        fixture.events().apply_received(Some(&stored), "sub_1").await.unwrap();
    }
}

async fn cancel(fixture: &Fixture, model: &mut Model) {
    let cancelled = fixture.billing().cancel(&tenant()).await.is_ok();
    assert_eq!(cancelled, !matches!(model.status, "cancelled" | "inactive"));
    if cancelled {
        model.status = "cancelled";
        model.notifications += 1;
        if model.periods.is_empty() {
            (model.plan, model.lapsed) = (model.without_payment(), true);
        }
    }
}

async fn change_cycle(fixture: &Fixture, model: &mut Model, yearly: bool) {
    let cycle = if yearly { "YEARLY" } else { "MONTHLY" };
    let change = PlanChangeInput {
        plan: Some("starter".into()),
        cycle: Some(cycle.into()),
    };
    let changed = fixture.billing().change(&tenant(), &change).await.is_ok();
    let is_live = !matches!(model.status, "cancelled" | "inactive");
    assert_eq!(changed, is_live && model.yearly != yearly);
    if changed {
        (model.yearly, model.plan) = (yearly, model.with_payment());
        model.notifications += 1;
    }
}

/// Like the administration store: the account's plan is the better of the granted and the paid plan.
fn grant(fixture: &Fixture, model: &mut Model, granted: bool) {
    model.granted = granted;
    let is_paid = match model.status {
        "active" => true,
        "past_due" | "cancelled" => !model.periods.is_empty(),
        _ => false,
    };
    model.plan = match is_paid {
        true => model.with_payment(),
        false => model.without_payment(),
    };
    fixture.with(|account| {
        account.granted_plan = granted.then(|| "growth".to_owned());
        account.plan = model.plan.to_owned();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn gateway_events_in_any_order_match_the_documented_rule(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (fixture, model) = runtime.block_on(play(&steps));
        let row = fixture.only_subscription();
        prop_assert_eq!(row.status.as_str(), model.status);
        let (plan, payments) = fixture.with(|account| (account.plan.clone(), account.payments.clone()));
        prop_assert_eq!(plan.as_str(), model.plan);
        let credited: BTreeSet<String> =
            payments.iter().filter(|payment| payment.credited).map(|payment| payment.gateway_payment_id.clone()).collect();
        let expected: BTreeSet<String> = model.periods.keys().map(|payment| format!("pay_{}", payment + 1)).collect();
        prop_assert_eq!(credited, expected);
        prop_assert_eq!(fixture.notification_titles().len(), model.notifications);
        // The period ends as many months from now as were paid.
        let months = row.current_period_end.map_or(0, |end| {
            (end.year() - NOW.year()) * 12 + i32::from(u8::from(end.month())) - i32::from(u8::from(NOW.month()))
        });
        prop_assert_eq!(usize::try_from(months).unwrap(), model.periods.values().sum::<usize>());
        // A status timestamp is set only in its status.
        prop_assert_eq!(row.cancelled_at.is_some() && row.status.is_live(), false);
        prop_assert_eq!(row.inactivated_at.is_some(), model.status == "inactive");
        prop_assert_eq!(row.lapsed_at.is_some(), model.lapsed);
    }

    /// An ended subscription is not reactivated beside another live one, whose plan stays.
    #[test]
    fn ended_subscription_stays_ended_beside_live_one(kind in 0_usize..4, inactive: bool, at in 0_u8..20, year: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let fixture = Fixture::new();
        runtime.block_on(async { fixture.billing().subscribe(&tenant(), input("CREDIT_CARD")).await.unwrap() });
        let mut subscription = fixture.only_subscription();
        subscription.status = if inactive { SubscriptionStatus::Inactive } else { SubscriptionStatus::Cancelled };
        let other = SubscriptionState { plan: "scale".into(), status: SubscriptionStatus::Active, current_period_end: None };
        let facts = SubscriptionFacts { subscription, payment: None, other_live: true, others: vec![other] };
        let gateway_event = event(1, &Step::NewEvent(kind, 7, Some(at), year)).unwrap();
        let receipt = EventReceipt { event: GatewayEventId(Uuid::nil()), received_at: NOW };
        let change = effect(&facts, &gateway_event.data, Some(receipt), Uuid::nil().into(), NOW);
        if let Some(change) = change {
            prop_assert!(!change.subscription.status.is_live());
            prop_assert_eq!(change.account_plan, None);
            prop_assert!(change.payment.is_none_or(|payment| !payment.credited));
        }
    }
}
