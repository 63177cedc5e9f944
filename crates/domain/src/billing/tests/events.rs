//! Events: kept once, applied once, in their order; and those that come too early.

use serde_json::{Value, json};
use time::Duration;

use super::fakes::{Fixture, input, tenant};
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
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.with(|state| state.events.clear());
    for _ in 0..10 {
        fixture
            .deliver(&gateway_event(
                "PAYMENT_RECEIVED",
                "evt_1",
                "pay_1",
                "2026-03-10 10:00:00",
            ))
            .await;
    }
    let row = fixture.only();
    assert_eq!(row.status, SubscriptionStatus::Active);
    let period = (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days();
    assert_eq!(period, 31, "one period");
    assert_eq!(fixture.titles(), ["Payment received"]);
    fixture.with(|state| assert_eq!((state.payments.len(), state.waiting.len()), (1, 0)));
}

#[tokio::test]
async fn a_crash_between_the_effect_and_its_mark_tells_nobody_twice() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.with(|state| state.events.clear());
    let event = gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    fixture.keep(&event).await;
    fixture.with(|state| state.writes_left = Some(1));
    fixture.events().apply_next().await.unwrap_err();
    fixture.with(|state| {
        state.writes_left = None;
        assert_eq!(state.waiting.len(), 1);
    });
    assert!(fixture.events().apply_next().await.unwrap());
    assert!(!fixture.events().apply_next().await.unwrap());
    assert_eq!(fixture.titles(), ["Payment received"]);
}

#[tokio::test]
async fn an_event_that_is_faster_than_the_subscribe_waits_for_it() {
    let fixture = Fixture::new();
    let event = gateway_event("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    fixture.deliver(&event).await;
    fixture.with(|state| assert_eq!(state.waiting[0].attempts, 1));
    fixture
        .billing()
        .subscribe(&tenant(), input("CREDIT_CARD"))
        .await
        .unwrap();
    fixture.events().apply_next().await.unwrap();
    fixture.with(|state| assert!(state.waiting.is_empty() && state.payments[0].confirmed));
    let row = fixture.only();
    let days = (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days();
    assert_eq!(days, 31, "the first payment is for the period that was given");
}

#[tokio::test]
async fn a_subscription_that_nobody_knows_is_given_up_in_the_end() {
    let fixture = Fixture::new();
    let event = gateway_event("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    fixture.keep(&event).await;
    for _ in 0..10 {
        assert!(fixture.events().apply_next().await.unwrap());
    }
    assert!(!fixture.events().apply_next().await.unwrap());
    fixture.keep(&event).await;
    assert!(!fixture.events().apply_next().await.unwrap(), "it is known again");
}

#[tokio::test]
async fn what_has_no_effect_is_stored_and_changes_nothing() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let before = fixture.only();
    let odd: [Value; 3] = [
        json!({ "id": "e1", "event": "PAYMENT_REFUNDED", "payment": { "id": "pay_1", "subscription": "sub_1" } }),
        json!({ "id": "e2", "event": "PAYMENT_CONFIRMED", "payment": { "subscription": "sub_1" } }),
        json!({ "id": "e3", "event": "PAYMENT_CONFIRMED", "payment": { "id": "pay_1" } }),
    ];
    for body in odd {
        fixture.deliver(&GatewayEvent::read(body.to_string().as_bytes())).await;
    }
    assert_eq!(fixture.only(), before);
    fixture.with(|state| assert_eq!((state.seen.len(), state.waiting.len()), (3, 0)));
}

/// The account cancels before an event that arrived earlier could be applied: the order is that of arrival.
#[tokio::test]
async fn a_payment_that_arrived_before_the_end_does_not_undo_it() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture
        .keep(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            "2026-03-10 10:00:00",
        ))
        .await;
    fixture
        .keep(&gateway_event(
            "PAYMENT_OVERDUE",
            "evt_2",
            "pay_2",
            "2026-03-10 10:00:00",
        ))
        .await;
    fixture.pass(Duration::SECOND);
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.with(|state| assert_eq!(state.plan, "free", "nothing was known to be paid"));
    while fixture.events().apply_next().await.unwrap() {}
    let row = fixture.only();
    assert_eq!((row.status, row.lapsed_at), (SubscriptionStatus::Cancelled, None));
    assert!(row.current_period_end.is_some() && row.cancelled_at.is_some());
    fixture.with(|state| {
        assert_eq!(
            (state.plan.as_str(), state.payments.len()),
            ("starter", 2),
            "it is paid"
        )
    });
    fixture.pass(Duration::SECOND);
    fixture
        .deliver(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_3",
            "pay_3",
            "2026-03-10 10:00:09",
        ))
        .await;
    assert_eq!(
        fixture.only().status,
        SubscriptionStatus::Active,
        "what arrives later does"
    );
}

/// A worker claims an event and stalls beyond its lease; others apply it, and what came after it; then it goes on.
#[tokio::test]
async fn a_worker_that_stalled_applies_its_event_no_second_time() {
    let at = "2026-03-10 10:00:00";
    for first in ["SUBSCRIPTION_INACTIVATED", "PAYMENT_OVERDUE"] {
        let fixture = Fixture::new();
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        fixture.keep(&gateway_event(first, "evt_1", "pay_1", at)).await;
        let stalled = fixture.with(|state| state.waiting[0].clone());
        while fixture.events().apply_next().await.unwrap() {}
        fixture
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_2", "pay_2", at))
            .await;
        let before = fixture.with(|state| (state.rows.clone(), state.plan.clone(), state.events.len()));
        assert_eq!(fixture.only().status, SubscriptionStatus::Active, "{first}");
        fixture.events().apply_kept(Some(&stalled), "sub_1").await.unwrap();
        let after = fixture.with(|state| (state.rows.clone(), state.plan.clone(), state.events.len()));
        assert_eq!(after, before, "{first}");
    }
}

/// The same of an event that changed nothing when its turn was.
#[tokio::test]
async fn what_changed_nothing_in_its_turn_changes_nothing_later() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let inactivated = |id: &str| gateway_event("SUBSCRIPTION_INACTIVATED", id, "", "");
    fixture.deliver(&inactivated("evt_1")).await;
    fixture.keep(&inactivated("evt_2")).await;
    let stalled = fixture.with(|state| state.waiting[0].clone());
    while fixture.events().apply_next().await.unwrap() {}
    let received = gateway_event("PAYMENT_RECEIVED", "evt_3", "pay_1", "2026-03-10 10:00:00");
    fixture.pass(Duration::SECOND);
    fixture.deliver(&received).await;
    assert_eq!(fixture.only().status, SubscriptionStatus::Active);
    fixture.events().apply_kept(Some(&stalled), "sub_1").await.unwrap();
    assert_eq!(fixture.only().status, SubscriptionStatus::Active);
}

/// Days of the present period.
fn days(fixture: &Fixture) -> i64 {
    let row = fixture.only();
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
        let fixture = Fixture::new();
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        fixture.billing().change(&tenant(), &yearly).await.unwrap();
        fixture
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_1", payment, at))
            .await;
        assert_eq!(days(&fixture), 31, "{payment}");
    }
    // The gateway gave the open payment the new price before it was paid: that is a year.
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.billing().change(&tenant(), &yearly).await.unwrap();
    fixture
        .deliver(&gateway_event_of_value("PAYMENT_RECEIVED", "evt_1", "pay_1", at, 970.0))
        .await;
    assert_eq!(days(&fixture), 365);
    // A discount is no other period.
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture
        .deliver(&gateway_event_of_value("PAYMENT_RECEIVED", "evt_1", "pay_1", at, 90.5))
        .await;
    assert_eq!(days(&fixture), 31);
}

/// The gateway's times are whole seconds, ours are not: an event of the second in which it was asked is not old.
#[tokio::test]
async fn an_event_of_the_second_in_which_the_gateway_was_asked_counts() {
    for (second, status) in [(59, SubscriptionStatus::PastDue), (0, SubscriptionStatus::Active)] {
        let fixture = Fixture::new();
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        fixture.with(|state| state.remote_payments[0].status = "OVERDUE".into());
        // 12:00:00.4 UTC, in the gateway's words 09:00:00.
        fixture.pass(Duration::days(2) + Duration::milliseconds(400));
        fixture.reconcile().await;
        assert_eq!(fixture.only().status, SubscriptionStatus::PastDue);
        let at = match second {
            59 => "2026-03-12 08:59:59",
            _ => "2026-03-12 09:00:00",
        };
        fixture
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", at))
            .await;
        assert_eq!(fixture.only().status, status, "{at}");
    }
}
