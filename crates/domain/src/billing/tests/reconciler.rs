//! The reconciler asks a gateway that sends no events and applies its payments like events.

use time::Duration;

use super::events::gateway_event;
use super::fixture::{Fixture, input, tenant};
use crate::billing::in_memory::InjectedFault;
use crate::billing::*;

async fn subscribed(billing_type: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture
        .billing()
        .subscribe(&tenant(), input(billing_type))
        .await
        .unwrap();
    fixture.with(|account| account.events.clear());
    fixture.gateway().calls.clear();
    fixture
}

#[tokio::test]
async fn reconciler_finds_unreported_payment_after_a_day() {
    let fixture = subscribed("PIX").await;
    fixture.gateway().payments[0].status = PaymentStatus::Received;
    fixture.advance_clock(Duration::hours(23));
    fixture.reconcile().await;
    assert_eq!(fixture.call_count("payments"), 0, "no check before `RECONCILE_AFTER`");
    fixture.advance_clock(Duration::hours(2));
    fixture.reconcile().await;
    fixture.reconcile().await;
    let row = fixture.only_subscription();
    assert_eq!(row.status, SubscriptionStatus::Active);
    assert_eq!(
        (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days(),
        31
    );
    assert_eq!(
        (fixture.notification_titles(), fixture.call_count("payments")),
        (vec!["Payment received".to_owned()], 1)
    );
    // The event itself arrives late and has no effect.
    fixture
        .deliver(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            "2026-03-10 10:00:00",
        ))
        .await;
    assert_eq!(
        (
            fixture.notification_titles().len(),
            fixture.only_subscription().current_period_end
        ),
        (1, row.current_period_end)
    );
}

#[tokio::test]
async fn reconciler_checks_open_payment_once_a_day() {
    let fixture = subscribed("BOLETO").await;
    for days in 1..=3 {
        fixture.advance_clock(Duration::hours(25));
        fixture.reconcile().await;
        fixture.reconcile().await;
        assert_eq!(fixture.call_count("payments"), days);
    }
    assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Pending);
    assert!(fixture.notification_titles().is_empty());
    fixture.gateway().payments[0].status = PaymentStatus::Overdue;
    fixture.advance_clock(Duration::hours(25));
    fixture.reconcile().await;
    assert_eq!(
        (fixture.only_subscription().status, fixture.notification_titles()),
        (SubscriptionStatus::PastDue, vec!["Payment overdue".to_owned()])
    );
}

#[tokio::test]
async fn reconciler_finds_the_payment_of_the_next_month() {
    let fixture = subscribed("CREDIT_CARD").await;
    let first = fixture.only_subscription().current_period_end.unwrap();
    let next = GatewayPayment {
        id: "pay_next".into(),
        due_date: Some(first.date()),
        ..fixture.gateway().payments[0].clone()
    };
    fixture.gateway().payments.push(next);
    fixture.advance_clock(Duration::days(33));
    fixture.reconcile().await;
    let row = fixture.only_subscription();
    assert_eq!(
        (row.current_period_start, row.current_period_end.unwrap().date()),
        (Some(first), time::macros::date!(2026 - 05 - 10))
    );
    fixture.with(|account| assert_eq!(account.payments.len(), 2));
}

#[tokio::test]
async fn reconciler_changes_nothing_if_the_gateway_is_down() {
    let fixture = subscribed("PIX").await;
    fixture.advance_clock(Duration::hours(25));
    fixture.inject_fault(
        "payments",
        InjectedFault::Before(PaymentGatewayError::Unanswered("x".into())),
    );
    fixture.reconciler().check_next().await.unwrap_err();
    assert!(
        !fixture.reconciler().check_next().await.unwrap(),
        "the next check is deferred by `CHECK_PAUSE`"
    );
    fixture.advance_clock(Duration::hours(1));
    assert!(fixture.reconciler().check_next().await.unwrap());
    assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Pending);
}

/// A worker reads an intent whose lease is over and stalls. Another one reverts the intent, and the account's next
/// request stores an equal one. The first worker must not revert that one: its gateway call may be in flight.
#[tokio::test]
async fn stalled_worker_does_not_revert_an_equal_later_intent() {
    let plan_change = PlanChangeInput {
        plan: Some("growth".into()),
        cycle: None,
    };
    for call in ["cancel", "change"] {
        let fixture = subscribed("CREDIT_CARD").await;
        let request_fails = async || match call {
            "cancel" => drop(fixture.billing().cancel(&tenant()).await.unwrap_err()),
            _ => drop(fixture.billing().change(&tenant(), &plan_change).await.unwrap_err()),
        };
        let failed = || InjectedFault::Before(PaymentGatewayError::Failed("x".into()));
        let unanswered = InjectedFault::After(PaymentGatewayError::Unanswered("x".into()));
        fixture.inject_fault(call, failed());
        fixture.inject_fault("subscription", failed());
        request_fails().await;
        let read = fixture.only_subscription();
        fixture.workflow().clear_intent(&read).await.unwrap();
        fixture.advance_clock(Duration::SECOND);
        fixture.inject_fault(call, unanswered);
        fixture.inject_fault("subscription", failed());
        request_fails().await;
        fixture.workflow().clear_intent(&read).await.unwrap();
        assert!(fixture.only_subscription().pending.is_some(), "{call}");
        fixture.advance_clock(Duration::MINUTE);
        fixture.reconcile().await;
        let row = fixture.only_subscription();
        let is_done = [row.status == SubscriptionStatus::Cancelled, row.plan == "growth"];
        assert_eq!(is_done, [call == "cancel", call == "change"]);
    }
}

/// A worker reads a payment from the gateway, and the account cancels before the worker applies it.
#[tokio::test]
async fn check_does_not_revive_a_subscription_cancelled_meanwhile() {
    for (status, is_paid) in [(PaymentStatus::Overdue, false), (PaymentStatus::Confirmed, true)] {
        let fixture = subscribed("BOLETO").await;
        fixture.gateway().payments[0].status = status;
        let read = fixture.read_payment();
        fixture.advance_clock(Duration::SECOND);
        fixture.billing().cancel(&tenant()).await.unwrap();
        fixture.apply_payment(&read).await;
        let row = fixture.only_subscription();
        assert_eq!(
            (row.status, row.current_period_end.is_some(), fixture.charged_count()),
            (SubscriptionStatus::Cancelled, is_paid, 0)
        );
        let plan = fixture.with(|account| account.plan.clone());
        assert_eq!(plan, if is_paid { "starter" } else { "free" });
    }
}

/// A worker reads an overdue payment, which is paid before the worker applies it. Both orders leave it paid.
#[tokio::test]
async fn payment_during_a_check_counts_in_any_order() {
    for event_first in [true, false] {
        let fixture = subscribed("PIX").await;
        fixture.advance_clock(Duration::days(2));
        fixture.gateway().payments[0].status = PaymentStatus::Overdue;
        let read = fixture.read_payment();
        fixture.advance_clock(Duration::seconds(10));
        let paid = gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-12 09:00:05");
        if event_first {
            fixture.deliver(&paid).await;
        }
        fixture.apply_payment(&read).await;
        if !event_first {
            fixture.deliver(&paid).await;
        }
        let payment = fixture.with(|account| account.payments[0].status.clone());
        assert_eq!(
            (fixture.only_subscription().status, payment),
            (SubscriptionStatus::Active, PaymentStatus::Received),
            "event first: {event_first}"
        );
    }
}
