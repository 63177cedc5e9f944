//! A gateway that stays silent is asked, and what it says is applied as if it had told.

use time::Duration;

use super::events::gateway_event;
use super::fakes::{World, input, tenant};
use crate::billing::*;

async fn subscribed(billing_type: &str) -> World {
    let world = World::new();
    world.billing().subscribe(&tenant(), input(billing_type)).await.unwrap();
    world.with(|state| {
        state.events.clear();
        state.calls.clear();
    });
    world
}

#[tokio::test]
async fn a_payment_that_nobody_told_of_is_found_after_a_day() {
    let world = subscribed("PIX").await;
    world.with(|state| state.remote_payments[0].status = "RECEIVED".into());
    world.pass(Duration::hours(23));
    world.reconcile().await;
    assert_eq!(world.calls("payments"), 0, "a gateway that is not late is left alone");
    world.pass(Duration::hours(2));
    world.reconcile().await;
    world.reconcile().await;
    let row = world.only();
    assert_eq!(row.status, SubscriptionStatus::Active);
    assert_eq!(
        (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days(),
        31
    );
    assert_eq!(
        (world.titles(), world.calls("payments")),
        (vec!["Payment received".to_owned()], 1)
    );
    // The event itself, late, is old news.
    world
        .deliver(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            "2026-03-10 10:00:00",
        ))
        .await;
    assert_eq!(
        (world.titles().len(), world.only().current_period_end),
        (1, row.current_period_end)
    );
}

#[tokio::test]
async fn while_the_payment_is_open_the_gateway_is_asked_once_a_day() {
    let world = subscribed("BOLETO").await;
    for days in 1..=3 {
        world.pass(Duration::hours(25));
        world.reconcile().await;
        world.reconcile().await;
        assert_eq!(world.calls("payments"), days);
    }
    assert_eq!(world.only().status, SubscriptionStatus::Pending);
    assert!(world.titles().is_empty());
    world.with(|state| state.remote_payments[0].status = "OVERDUE".into());
    world.pass(Duration::hours(25));
    world.reconcile().await;
    assert_eq!(
        (world.only().status, world.titles()),
        (SubscriptionStatus::PastDue, vec!["Payment overdue".to_owned()])
    );
}

#[tokio::test]
async fn the_next_month_is_found_too() {
    let world = subscribed("CREDIT_CARD").await;
    let first = world.only().current_period_end.unwrap();
    world.with(|state| {
        let next = GatewayPayment {
            id: "pay_next".into(),
            due_date: Some(first.date()),
            ..state.remote_payments[0].clone()
        };
        state.remote_payments.push(next);
    });
    world.pass(Duration::days(33));
    world.reconcile().await;
    let row = world.only();
    assert_eq!(
        (row.current_period_start, row.current_period_end.unwrap().date()),
        (Some(first), time::macros::date!(2026 - 05 - 10))
    );
    world.with(|state| assert_eq!(state.payments.len(), 2));
}

#[tokio::test]
async fn a_gateway_that_cannot_be_asked_changes_nothing() {
    let world = subscribed("PIX").await;
    world.pass(Duration::hours(25));
    world.strike(
        "payments",
        super::fakes::Strike::Before(PaymentGatewayError::Unanswered("x".into())),
    );
    world.reconciler().check_next().await.unwrap_err();
    assert!(
        !world.reconciler().check_next().await.unwrap(),
        "it is left alone for a while"
    );
    world.pass(Duration::hours(1));
    assert!(world.reconciler().check_next().await.unwrap());
    assert_eq!(world.only().status, SubscriptionStatus::Pending);
}
