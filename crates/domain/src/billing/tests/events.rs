//! Gateway events: stored once, applied once and in order, also if they arrive before their subscription.

use time::macros::{format_description, offset};
use time::{Duration, OffsetDateTime, PrimitiveDateTime, UtcOffset};

use super::fixture::{Fixture, input, tenant};
use crate::billing::*;

pub(super) fn gateway_event(event: &str, id: &str, payment: &str, at: &str) -> GatewayEvent {
    gateway_event_of_value(event, id, payment, at, Cents(9_700))
}

pub(super) fn gateway_event_of_value(event: &str, id: &str, payment: &str, at: &str, value: Cents) -> GatewayEvent {
    let status = event.trim_start_matches("PAYMENT_");
    let payment = PaymentSnapshot {
        billing_type: Some("PIX".into()),
        value: Some(value),
        status: Some(PaymentStatus::from(status.to_owned())),
        ..payment_snapshot(payment)
    };
    let (kind, subject) = (event.parse().unwrap(), Some("sub_1"));
    match kind {
        GatewayEventKind::Inactivated => parsed_event(id, kind, subject, None, None),
        _ => parsed_event(id, kind, subject, Some(payment), gateway_time(at)),
    }
}

pub(super) fn payment_snapshot(id: &str) -> PaymentSnapshot {
    PaymentSnapshot {
        id: id.into(),
        ..PaymentSnapshot::default()
    }
}

/// An event with this id, as the gateway's adapter parses it.
pub(super) fn parsed_event(
    id: &str,
    kind: GatewayEventKind,
    subject: Option<&str>,
    payment: Option<PaymentSnapshot>,
    created_at: Option<OffsetDateTime>,
) -> GatewayEvent {
    GatewayEvent {
        key: format!("id:{id}"),
        event: kind.to_string(),
        subject: subject.map(str::to_owned),
        data: GatewayEventData {
            kind,
            payment,
            created_at,
        },
    }
}

/// A time of the gateway, whose zone is São Paulo; none for any other text.
fn gateway_time(text: &str) -> Option<OffsetDateTime> {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let local = PrimitiveDateTime::parse(text, format).ok()?;
    Some(local.assume_offset(offset!(-3)).to_offset(UtcOffset::UTC))
}

#[tokio::test]
async fn gateway_event_repeated_changes_nothing() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.with(|account| account.events.clear());
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
    let row = fixture.only_subscription();
    assert_eq!(row.status, SubscriptionStatus::Active);
    let period = (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days();
    assert_eq!(period, 31, "one period");
    assert_eq!(fixture.notification_titles(), ["Payment received"]);
    fixture.with(|account| assert_eq!(account.payments.len(), 1));
    assert!(fixture.waiting().is_empty());
}

#[tokio::test]
async fn gateway_event_notifies_once_after_crash_before_finish() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.with(|account| account.events.clear());
    let event = gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    fixture.record_event(&event).await;
    fixture.tables().writes_left = Some(1);
    fixture.events().apply_next().await.unwrap_err();
    fixture.tables().writes_left = None;
    assert_eq!(fixture.waiting().len(), 1);
    assert!(!fixture.events().apply_next().await.unwrap(), "the event is leased");
    fixture.advance_clock(EVENT_LEASE);
    assert!(fixture.events().apply_next().await.unwrap());
    assert!(!fixture.events().apply_next().await.unwrap());
    assert_eq!(fixture.notification_titles(), ["Payment received"]);
}

#[tokio::test]
async fn gateway_event_waits_for_an_unfinished_subscribe() {
    let fixture = Fixture::new();
    let event = gateway_event("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    fixture.deliver(&event).await;
    assert_eq!(fixture.waiting()[0].attempts, 1);
    fixture
        .billing()
        .subscribe(&tenant(), input("CREDIT_CARD"))
        .await
        .unwrap();
    fixture.events().apply_next().await.unwrap();
    assert!(fixture.waiting().is_empty());
    fixture.with(|account| assert!(account.payments[0].confirmed));
    let row = fixture.only_subscription();
    let days = (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days();
    assert_eq!(days, 31, "the first payment pays for the granted period");
}

#[tokio::test]
async fn unknown_gateway_event_is_dropped_after_retries() {
    let fixture = Fixture::new();
    let event = gateway_event("PAYMENT_CONFIRMED", "evt_1", "pay_1", "2026-03-10 10:00:00");
    fixture.record_event(&event).await;
    for attempt in 0..10 {
        assert!(fixture.events().apply_next().await.unwrap());
        assert!(
            !fixture.events().apply_next().await.unwrap(),
            "the next attempt is deferred"
        );
        fixture.advance_clock(Duration::seconds(2_i64.pow(attempt)));
    }
    assert!(!fixture.events().apply_next().await.unwrap());
    fixture.record_event(&event).await;
    assert!(
        !fixture.events().apply_next().await.unwrap(),
        "the event is deduplicated"
    );
}

#[tokio::test]
async fn gateway_event_without_effect_is_stored_only() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let before = fixture.only_subscription();
    let (subject, payment) = (Some("sub_1"), Some(payment_snapshot("pay_1")));
    for event in [
        parsed_event("e1", GatewayEventKind::Other, subject, payment.clone(), None),
        parsed_event("e2", GatewayEventKind::Confirmed, subject, None, None),
        parsed_event("e3", GatewayEventKind::Confirmed, None, payment, None),
    ] {
        fixture.deliver(&event).await;
    }
    assert_eq!(fixture.only_subscription(), before);
    assert_eq!(fixture.tables().gateway_events.len(), 3);
    assert!(fixture.waiting().is_empty());
}

/// The account cancels before an earlier event is applied. Events apply in the order of receipt.
#[tokio::test]
async fn gateway_event_received_before_cancellation_keeps_it() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture
        .record_event(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            "2026-03-10 10:00:00",
        ))
        .await;
    fixture
        .record_event(&gateway_event(
            "PAYMENT_OVERDUE",
            "evt_2",
            "pay_2",
            "2026-03-10 10:00:00",
        ))
        .await;
    fixture.advance_clock(Duration::SECOND);
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.with(|account| assert_eq!(account.plan, "free", "no payment was applied yet"));
    while fixture.events().apply_next().await.unwrap() {}
    let row = fixture.only_subscription();
    assert_eq!((row.status, row.lapsed_at), (SubscriptionStatus::Cancelled, None));
    assert!(row.current_period_end.is_some() && row.cancelled_at.is_some());
    fixture.with(|account| {
        assert_eq!(
            (account.plan.as_str(), account.payments.len()),
            ("starter", 2),
            "the paid plan stays usable"
        )
    });
    fixture.advance_clock(Duration::SECOND);
    fixture
        .deliver(&gateway_event(
            "PAYMENT_RECEIVED",
            "evt_3",
            "pay_3",
            "2026-03-10 10:00:09",
        ))
        .await;
    assert_eq!(
        fixture.only_subscription().status,
        SubscriptionStatus::Active,
        "a payment received later reactivates the subscription"
    );
}

/// The gateway's end of the subscription always counts, also if the account cancels before the event is applied.
#[tokio::test]
async fn gateway_end_received_before_cancellation_ends_the_plan() {
    let fixture = Fixture::new();
    fixture
        .billing()
        .subscribe(&tenant(), input("CREDIT_CARD"))
        .await
        .unwrap();
    fixture
        .record_event(&gateway_event("SUBSCRIPTION_INACTIVATED", "evt_1", "", ""))
        .await;
    fixture.advance_clock(Duration::SECOND);
    fixture.billing().cancel(&tenant()).await.unwrap();
    while fixture.events().apply_next().await.unwrap() {}
    let row = fixture.only_subscription();
    assert_eq!(row.status, SubscriptionStatus::Inactive);
    assert!(row.lapsed_at.is_some());
    fixture.with(|account| assert_eq!(account.plan, "free"));
}

/// What an event may change.
fn account_rows(fixture: &Fixture) -> impl PartialEq + std::fmt::Debug {
    fixture.with(|account| {
        let (rows, plan) = (account.subscriptions.clone(), account.plan.clone());
        (rows, plan, account.events.len())
    })
}

/// A worker claims an event and stalls past its lease. Others apply it and later events. Then the worker resumes.
#[tokio::test]
async fn stalled_worker_does_not_apply_its_event_again() {
    let at = "2026-03-10 10:00:00";
    for first in ["SUBSCRIPTION_INACTIVATED", "PAYMENT_OVERDUE"] {
        let fixture = Fixture::new();
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        fixture.record_event(&gateway_event(first, "evt_1", "pay_1", at)).await;
        let stalled = fixture.waiting()[0].clone();
        while fixture.events().apply_next().await.unwrap() {}
        fixture
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_2", "pay_2", at))
            .await;
        let before = account_rows(&fixture);
        assert_eq!(
            fixture.only_subscription().status,
            SubscriptionStatus::Active,
            "{first}"
        );
        fixture.events().apply_received(Some(&stalled), "sub_1").await.unwrap();
        let after = account_rows(&fixture);
        assert_eq!(after, before, "{first}");
    }
}

/// As above, for an event that had no effect when the other worker applied it.
#[tokio::test]
async fn gateway_event_without_effect_stays_without_effect() {
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let inactivated = |id: &str| gateway_event("SUBSCRIPTION_INACTIVATED", id, "", "");
    fixture.deliver(&inactivated("evt_1")).await;
    fixture.record_event(&inactivated("evt_2")).await;
    let stalled = fixture.waiting()[0].clone();
    while fixture.events().apply_next().await.unwrap() {}
    let received = gateway_event("PAYMENT_RECEIVED", "evt_3", "pay_1", "2026-03-10 10:00:00");
    fixture.advance_clock(Duration::SECOND);
    fixture.deliver(&received).await;
    assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Active);
    fixture.events().apply_received(Some(&stalled), "sub_1").await.unwrap();
    assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Active);
}

/// Length of the current period in days.
fn days(fixture: &Fixture) -> i64 {
    let row = fixture.only_subscription();
    (row.current_period_end.unwrap() - row.current_period_start.unwrap()).whole_days()
}

#[tokio::test]
async fn payment_pays_for_its_own_cycle_after_a_cycle_change() {
    let at = "2026-03-10 10:00:00";
    let yearly = PlanChangeInput {
        plan: Some("starter".into()),
        cycle: Some("YEARLY".into()),
    };
    // The first payment, stored with the subscription, and one first seen later: both pay for a month.
    for payment in ["pay_1", "pay_2"] {
        let fixture = Fixture::new();
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        fixture.billing().change(&tenant(), &yearly).await.unwrap();
        fixture
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_1", payment, at))
            .await;
        assert_eq!(days(&fixture), 31, "{payment}");
    }
    // The gateway changed the open payment to the new price before it was paid: it pays for a year.
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.billing().change(&tenant(), &yearly).await.unwrap();
    fixture
        .deliver(&gateway_event_of_value(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            at,
            Cents(97_000),
        ))
        .await;
    assert_eq!(days(&fixture), 365);
    // A discount does not change the period.
    let fixture = Fixture::new();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture
        .deliver(&gateway_event_of_value(
            "PAYMENT_RECEIVED",
            "evt_1",
            "pay_1",
            at,
            Cents(9_050),
        ))
        .await;
    assert_eq!(days(&fixture), 31);
}

/// The gateway's times are whole seconds, Recado's are not: an event in the second of a check is not outdated.
#[tokio::test]
async fn gateway_event_in_the_second_of_a_check_applies() {
    for (second, status) in [(59, SubscriptionStatus::PastDue), (0, SubscriptionStatus::Active)] {
        let fixture = Fixture::new();
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        fixture.gateway().payments[0].status = PaymentStatus::Overdue;
        // 12:00:00.4 UTC is 09:00:00 in the gateway's time.
        fixture.advance_clock(Duration::days(2) + Duration::milliseconds(400));
        fixture.reconcile().await;
        assert_eq!(fixture.only_subscription().status, SubscriptionStatus::PastDue);
        let at = match second {
            59 => "2026-03-12 08:59:59",
            _ => "2026-03-12 09:00:00",
        };
        fixture
            .deliver(&gateway_event("PAYMENT_RECEIVED", "evt_1", "pay_1", at))
            .await;
        assert_eq!(fixture.only_subscription().status, status, "{at}");
    }
}
