//! Events: kept once, applied once, in their order; and those that come too early.

use serde_json::{Value, json};

use super::fakes::{World, input, tenant};
use crate::billing::*;

pub(super) fn told(event: &str, id: &str, payment: &str, at: &str) -> GatewayEvent {
    let status = event.trim_start_matches("PAYMENT_");
    let body = match event {
        "SUBSCRIPTION_INACTIVATED" => json!({ "id": id, "event": event, "subscription": { "id": "sub_1" } }),
        _ => json!({ "id": id, "event": event, "dateCreated": at,
            "payment": { "id": payment, "subscription": "sub_1", "billingType": "PIX", "value": 97.0, "status": status } }),
    };
    GatewayEvent::read(body.to_string().as_bytes())
}

#[tokio::test]
async fn a_repeated_event_changes_nothing() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world.with(|state| state.told.clear());
    for _ in 0..10 {
        world
            .tell(&told("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-10 10:00:00"))
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
    world.with(|state| state.told.clear());
    let event = told("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-10 10:00:00");
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
    let event = told("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    world.tell(&event).await;
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
    let event = told("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    world.keep(&event).await;
    for _ in 0..10 {
        assert!(world.events().apply_next().await.unwrap());
    }
    assert!(!world.events().apply_next().await.unwrap());
    world.keep(&event).await;
    assert!(!world.events().apply_next().await.unwrap(), "it is known again");
}

#[tokio::test]
async fn what_is_no_news_is_kept_and_changes_nothing() {
    let world = World::new();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let before = world.only();
    let odd: [Value; 3] = [
        json!({ "id": "e1", "event": "PAYMENT_REFUNDED", "payment": { "id": "pay_1", "subscription": "sub_1" } }),
        json!({ "id": "e2", "event": "PAYMENT_CONFIRMED", "payment": { "subscription": "sub_1" } }),
        json!({ "id": "e3", "event": "PAYMENT_CONFIRMED", "payment": { "id": "pay_1" } }),
    ];
    for body in odd {
        world.tell(&GatewayEvent::read(body.to_string().as_bytes())).await;
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
        .keep(&told("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-10 10:00:00"))
        .await;
    world
        .keep(&told("PAYMENT_OVERDUE", "evt_2", "pay_2", "2026-03-10 10:00:00"))
        .await;
    world.pass(time::Duration::SECOND);
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
    world.pass(time::Duration::SECOND);
    world
        .tell(&told("PAYMENT_RECEIVED", "evt_3", "pay_3", "2026-03-10 10:00:09"))
        .await;
    assert_eq!(
        world.only().status,
        SubscriptionStatus::Active,
        "what arrives later does"
    );
}
