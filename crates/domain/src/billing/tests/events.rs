//! Events: kept once, applied once, in their order; and those that come too early.

use serde_json::{Value, json};
use time::Duration;

use super::fakes::{World, input, tenant};
use crate::billing::*;

pub(super) fn gateway_event(event: &str, id: &str, payment: &str, at: &str) -> GatewayEvent {
    gateway_event_of_value(event, id, payment, at, 97.0)
}

pub(super) fn gateway_event_of_value(event: &str, id: &str, payment: &str, at: &str, value: f64) -> GatewayEvent {
    let status = event.trim_start_matches("PAYMENT_");
    let body = match event {
        "SUBSCRIPTION_INACTIVATED" => json!({ "id": id, "event": event, "subscription": { "id": "sub_1" } }),
        _ => json!({ "id": id, "event": event, "dateCreated": at,
            "payment": { "id": payment, "subscription": "sub_1", "billingType": "PIX", "value": value, "status": status } }),
    };
    GatewayEvent::read(body.to_string().as_bytes())
}

#[tokio::test]
async fn a_repeated_event_changes_nothing() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world.with(|state| state.events.clear());
    for _ in 0..10 {
        world
            .deliver(&gateway_event(
                "PAYMENT_RECEIVED",
                "evt_1",
                "pay_1",
                "2026-03-10 10:00:00",
            ))
            .await;
    }
    let row = world.only();
    assert_eq!(row.status, SubscriptionStatus::Active);
    let period = (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days();
    assert_eq!(period, 31, "one period");
    assert_eq!(world.titles(), ["Payment received"]);
    world.with(|state| assert_eq!((state.payments.len(), state.waiting.len()), (1, 0)));
}

#[tokio::test]
async fn a_crash_between_the_effect_and_its_mark_tells_nobody_twice() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world.with(|state| state.events.clear());
    let event = gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    world.keep(&event).await;
    world.with(|state| state.writes_left = Some(1));
    world.events().apply_next().await.unwrap_err();
    world.with(|state| {
        state.writes_left = None;
        assert_eq!(state.waiting.len(), 1);
    });
    assert!(world.events().apply_next().await.unwrap());
    assert!(!world.events().apply_next().await.unwrap());
    assert_eq!(world.titles(), ["Payment received"]);
}

#[tokio::test]
async fn an_event_that_is_faster_than_the_subscribe_waits_for_it() {
    let world = World::new();
    let event = gateway_event("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    world.deliver(&event).await;
    world.with(|state| assert_eq!(state.waiting[0].attempts, 1));
    world
        .billing()
        .subscribe(&tenant(), input("CREDIT_CARD"))
        .await
        .unwrap();
    world.events().apply_next().await.unwrap();
    world.with(|state| assert!(state.waiting.is_empty() && state.payments[0].confirmed));
    let row = world.only();
    let days = (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days();
    assert_eq!(days, 31, "the first payment is for the period that was given");
}

#[tokio::test]
async fn a_subscription_that_nobody_knows_is_given_up_in_the_end() {
    let world = World::new();
    let event = gateway_event("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    world.keep(&event).await;
    for _ in 0..10 {
        assert!(world.events().apply_next().await.unwrap());
    }
    assert!(!world.events().apply_next().await.unwrap());
    world.keep(&event).await;
    assert!(!world.events().apply_next().await.unwrap(), "it is known again");
}

#[tokio::test]
async fn what_has_no_effect_is_stored_and_changes_nothing() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let before = world.only();
    let odd: [Value; 3] = [
        json!({ "id": "e1", "event": "PAYMENT_REFUNDED", "payment": { "id": "pay_1", "subscription": "sub_1" } }),
        json!({ "id": "e2", "event": "PAYMENT_CONFIRMED", "payment": { "subscription": "sub_1" } }),
        json!({ "id": "e3", "event": "PAYMENT_CONFIRMED", "payment": { "id": "pay_1" } }),
    ];
    for body in odd {
        world.deliver(&GatewayEvent::read(body.to_string().as_bytes())).await;
    }
    assert_eq!(world.only(), before);
    world.with(|state| assert_eq!((state.seen.len(), state.waiting.len()), (3, 0)));
}

/// The account cancels before an event that arrived earlier could be applied: the order is that of arrival.
#[tokio::test]
async fn a_payment_that_arrived_before_the_end_does_not_undo_it() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world
        .keep(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            "2026-03-10 10:00:00",
        ))
        .await;
    world
        .keep(&gateway_event(
            "PAYMENT_OVERDUE",
            "evt_2",
            "pay_2",
            "2026-03-10 10:00:00",
        ))
        .await;
    world.pass(Duration::SECOND);
    world.billing().cancel(&tenant()).await.unwrap();
    world.with(|state| assert_eq!(state.plan, "free", "nothing was known to be paid"));
    while world.events().apply_next().await.unwrap() {}
    let row = world.only();
    assert_eq!((row.status, row.lapsed_at), (SubscriptionStatus::Cancelled, None));
    assert!(row.current_period_end.is_some() && row.cancelled_at.is_some());
    world.with(|state| {
        assert_eq!(
            (state.plan.as_str(), state.payments.len()),
            ("starter", 2),
            "it is paid"
        )
    });
    world.pass(Duration::SECOND);
    world
        .deliver(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_3",
            "pay_3",
            "2026-03-10 10:00:09",
        ))
        .await;
    assert_eq!(
        world.only().status,
        SubscriptionStatus::Active,
        "what arrives later does"
    );
}

/// A worker claims an event and stalls beyond its lease; others apply it, and what came after it; then it goes on.
#[tokio::test]
async fn a_worker_that_stalled_applies_its_event_no_second_time() {
    let at = "2026-03-10 10:00:00";
    for first in ["SUBSCRIPTION_INACTIVATED", "PAYMENT_OVERDUE"] {
        let world = World::new();
        world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        world.keep(&gateway_event(first, "evt_1", "pay_1", at)).await;
        let stalled = world.with(|state| state.waiting[0].clone());
        while world.events().apply_next().await.unwrap() {}
        world
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_2", "pay_2", at))
            .await;
        let before = world.with(|state| (state.rows.clone(), state.plan.clone(), state.events.len()));
        assert_eq!(world.only().status, SubscriptionStatus::Active, "{first}");
        world.events().apply_kept(Some(&stalled), "sub_1").await.unwrap();
        let after = world.with(|state| (state.rows.clone(), state.plan.clone(), state.events.len()));
        assert_eq!(after, before, "{first}");
    }
}

/// The same of an event that changed nothing when its turn was.
#[tokio::test]
async fn what_changed_nothing_in_its_turn_changes_nothing_later() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let inactivated = |id: &str| gateway_event("SUBSCRIPTION_INACTIVATED", id, "", "");
    world.deliver(&inactivated("evt_1")).await;
    world.keep(&inactivated("evt_2")).await;
    let stalled = world.with(|state| state.waiting[0].clone());
    while world.events().apply_next().await.unwrap() {}
    let received = gateway_event("PAYMENT_RECEIVED", "evt_3", "pay_1", "2026-03-10 10:00:00");
    world.pass(Duration::SECOND);
    world.deliver(&received).await;
    assert_eq!(world.only().status, SubscriptionStatus::Active);
    world.events().apply_kept(Some(&stalled), "sub_1").await.unwrap();
    assert_eq!(world.only().status, SubscriptionStatus::Active);
}

/// Days of the present period.
fn days(world: &World) -> i64 {
    let row = world.only();
    (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days()
}

#[tokio::test]
async fn a_payment_is_for_the_period_that_was_paid_whatever_the_cycle_is_now() {
    let at = "2026-03-10 10:00:00";
    let yearly = PlanChangeInput {
        plan: Some("starter".into()),
        cycle: Some("YEARLY".into()),
    };
    // The first payment, which came with the subscription, and one that is heard of later: paid for a month.
    for payment in ["pay_1", "pay_2"] {
        let world = World::new();
        world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        world.billing().change(&tenant(), &yearly).await.unwrap();
        world
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_1", payment, at))
            .await;
        assert_eq!(days(&world), 31, "{payment}");
    }
    // The gateway gave the open payment the new price before it was paid: that is a year.
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world.billing().change(&tenant(), &yearly).await.unwrap();
    world
        .deliver(&gateway_event_of_value("PAYMENT_RECEIVED", "evt_1", "pay_1", at, 970.0))
        .await;
    assert_eq!(days(&world), 365);
    // A discount is no other period.
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world
        .deliver(&gateway_event_of_value("PAYMENT_RECEIVED", "evt_1", "pay_1", at, 90.5))
        .await;
    assert_eq!(days(&world), 31);
}

/// The gateway's times are whole seconds, ours are not: an event of the second in which it was asked is not old.
#[tokio::test]
async fn an_event_of_the_second_in_which_the_gateway_was_asked_counts() {
    for (second, status) in [(59, SubscriptionStatus::PastDue), (0, SubscriptionStatus::Active)] {
        let world = World::new();
        world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        world.with(|state| state.remote_payments[0].status = "OVERDUE".into());
        // 12:00:00.4 UTC, in the gateway's words 09:00:00.
        world.pass(Duration::days(2) + Duration::milliseconds(400));
        world.reconcile().await;
        assert_eq!(world.only().status, SubscriptionStatus::PastDue);
        let at = match second {
            59 => "2026-03-12 08:59:59",
            _ => "2026-03-12 09:00:00",
        };
        world
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", at))
            .await;
        assert_eq!(world.only().status, status, "{at}");
    }
}
