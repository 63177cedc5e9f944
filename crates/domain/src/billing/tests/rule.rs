//! Any order and any repetition of events ends in the state of the documented rule, told here once more and in another
//! way: as a walk over the events in the order of their first arrival.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::events::told;
use super::fakes::{NOW, World, input, tenant};
use crate::billing::*;
use crate::shared::GatewayEventId;

#[derive(Clone, Debug)]
enum Step {
    /// Kind, payment, when it happened.
    Told(usize, usize, Option<u8>),
    /// The event told before, again.
    Again(usize),
    /// The account cancels.
    Cancel,
}

const KINDS: [&str; 4] = [
    "PAYMENT_CONFIRMED",
    "PAYMENT_RECEIVED",
    "PAYMENT_OVERDUE",
    "SUBSCRIPTION_INACTIVATED",
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_usize..4, 0_usize..3, proptest::option::weighted(0.8, 0_u8..20)).prop_map(|(k, p, at)| Step::Told(k, p, at)),
        3 => (0_usize..12).prop_map(Step::Again),
        1 => Just(Step::Cancel),
    ];
    proptest::collection::vec(step, 0..25)
}

fn event(number: usize, step: &Step) -> Option<GatewayEvent> {
    let Step::Told(kind, payment, at) = step else {
        return None;
    };
    let at = at.map_or("undated".to_owned(), |at| format!("2026-03-10 10:00:{at:02}"));
    Some(told(
        KINDS[*kind],
        &format!("evt_{number}"),
        &format!("pay_{}", payment + 1),
        &at,
    ))
}

/// The rule in words: decisions section 6.
#[derive(Debug, Default, PartialEq)]
struct Model {
    status: &'static str,
    plan: &'static str,
    last: BTreeMap<usize, u8>,
    confirmed: BTreeSet<usize>,
    periods: BTreeSet<usize>,
    notices: usize,
}

impl Model {
    fn hear(&mut self, kind: usize, payment: usize, at: Option<u8>) {
        if KINDS[kind] == "SUBSCRIPTION_INACTIVATED" {
            (self.status, self.plan) = ("inactive", "free");
            return;
        }
        if at.zip(self.last.get(&payment)).is_some_and(|(at, last)| at < *last) {
            return;
        }
        if let Some(at) = at {
            self.last.insert(payment, at);
        }
        self.notices += 1;
        let ended = matches!(self.status, "cancelled" | "inactive");
        match KINDS[kind] {
            "PAYMENT_RECEIVED" if self.confirmed.contains(&payment) && ended => return,
            "PAYMENT_OVERDUE" => self.status = "past_due",
            word => {
                if word == "PAYMENT_CONFIRMED" {
                    self.confirmed.insert(payment);
                }
                self.status = "active";
                self.periods.insert(payment);
            }
        }
        self.plan = "starter";
    }
}

async fn play(steps: &[Step]) -> (World, Model) {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world.with(|state| state.told.clear());
    let mut model = Model {
        status: "pending",
        plan: "starter",
        ..Model::default()
    };
    let mut said = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let event = match step {
            Step::Told(kind, payment, at) => {
                model.hear(*kind, *payment, *at);
                said.push(event(number, step).unwrap());
                said.last()
            }
            Step::Again(which) => said.get(*which),
            Step::Cancel => {
                let cancelled = world.billing().cancel(&tenant()).await.is_ok();
                assert_eq!(cancelled, !matches!(model.status, "cancelled" | "inactive"));
                if cancelled {
                    model.status = "cancelled";
                    model.notices += 1;
                    model.plan = if model.periods.is_empty() { "free" } else { "starter" };
                }
                None
            }
        };
        if let Some(event) = event {
            world.tell(event).await;
        }
    }
    (world, model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_order_and_repetition_ends_where_the_rule_says(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (world, model) = runtime.block_on(play(&steps));
        let row = world.only();
        prop_assert_eq!(row.status.as_str(), model.status);
        let (plan, payments) = world.with(|state| (state.plan.clone(), state.payments.clone()));
        prop_assert_eq!(plan.as_str(), model.plan);
        let credited: BTreeSet<String> =
            payments.iter().filter(|payment| payment.credited).map(|payment| payment.gateway_payment_id.clone()).collect();
        let wanted: BTreeSet<String> = model.periods.iter().map(|payment| format!("pay_{}", payment + 1)).collect();
        prop_assert_eq!(credited, wanted);
        prop_assert_eq!(world.titles().len(), model.notices);
        // As many periods as payments, the first from now on.
        let months = row.current_period_end.map_or(0, |end| {
            (end.year() - NOW.year()) * 12 + i32::from(u8::from(end.month())) - i32::from(u8::from(NOW.month()))
        });
        prop_assert_eq!(usize::try_from(months).unwrap(), model.periods.len());
        // What belongs to a status is there with it alone.
        prop_assert_eq!(row.cancelled_at.is_some() && row.status.is_live(), false);
        prop_assert_eq!(row.inactivated_at.is_some(), model.status == "inactive");
        prop_assert_eq!(row.lapsed_at.is_some(), model.plan == "free");
    }

    /// Beside another live subscription nothing lives again, and its plan is left alone.
    #[test]
    fn beside_a_live_one_an_ended_one_stays_ended(kind in 0_usize..4, inactive: bool, at in 0_u8..20) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let world = World::new();
        runtime.block_on(async { world.billing().subscribe(&tenant(), input("CREDIT_CARD")).await.unwrap() });
        let mut subscription = world.only();
        subscription.status = if inactive { SubscriptionStatus::Inactive } else { SubscriptionStatus::Cancelled };
        let other = SubscriptionState { plan: "scale".into(), status: SubscriptionStatus::Active, current_period_end: None };
        let facts = Facts { subscription, payment: None, other_live: true, others: vec![other] };
        let told = event(1, &Step::Told(kind, 7, Some(at))).unwrap();
        let by = Told { event: GatewayEventId(Uuid::nil()), received_at: NOW };
        let change = effect(&facts, &told.news, Some(by), Uuid::nil().into(), NOW);
        if let Some(change) = change {
            prop_assert!(!change.subscription.status.is_live());
            prop_assert_eq!(change.account_plan, None);
            prop_assert!(change.payment.is_none_or(|payment| !payment.credited));
        }
    }
}
