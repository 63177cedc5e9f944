//! Plan changes and cancellations: the rules, and gateway and store failures at every step.

use time::Duration;

use super::events::parsed_event;
use super::fixture::{Fixture, NOW, input, tenant};
use crate::billing::in_memory::InjectedFault;
use crate::billing::*;
use crate::shared::{Event, FieldErrors, NotificationKind};

async fn subscribed(billing_type: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture
        .billing()
        .subscribe(&tenant(), input(billing_type))
        .await
        .unwrap();
    fixture.with(|account| account.events.clear());
    fixture
}

fn change_to(plan: &str, cycle: Option<&str>) -> PlanChangeInput {
    PlanChangeInput {
        plan: Some(plan.into()),
        cycle: cycle.map(str::to_owned),
    }
}

fn invalid_fields(result: Result<PlanChange, BillingError>) -> Vec<String> {
    match result {
        Err(BillingError::Invalid(FieldErrors(fields))) => fields.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn plan_change_updates_subscription_and_gateway() {
    let fixture = subscribed("CREDIT_CARD").await;
    let changed = fixture
        .billing()
        .change(&tenant(), &change_to("growth", Some("YEARLY")))
        .await
        .unwrap();
    assert_eq!(
        (changed.previous_plan.as_str(), changed.new_plan.as_str()),
        ("starter", "growth")
    );
    let row = fixture.only_subscription();
    assert_eq!(
        (row.plan.as_str(), row.cycle, row.value),
        ("growth", Cycle::Yearly, Cents(297_000))
    );
    let changed = fixture.gateway().subscriptions[0].1.clone();
    assert_eq!(
        (changed.value, changed.cycle),
        (Some(Cents(297_000)), Some(Cycle::Yearly))
    );
    fixture.with(|account| {
        assert_eq!(account.plan, "growth");
        let Some(Event::Notification(notification)) = account.events.last() else {
            panic!()
        };
        assert!(
            notification.message.contains("Starter") && notification.message.contains("Growth"),
            "{}",
            notification.message
        );
    });
    fixture
        .billing()
        .change(&tenant(), &change_to("growth", Some("MONTHLY")))
        .await
        .unwrap();
    let changed_again = fixture
        .billing()
        .change(&tenant(), &change_to("scale", None))
        .await
        .unwrap();
    assert_eq!(
        (changed_again.subscription.cycle, changed_again.subscription.value),
        (Cycle::Monthly, Cents(79_700))
    );
}

#[tokio::test]
async fn plan_change_with_invalid_input_makes_no_gateway_call() {
    let fixture = Fixture::new();
    let none = fixture.billing().change(&tenant(), &change_to("growth", None)).await;
    assert!(matches!(none, Err(BillingError::NotFound)));
    let fixture = subscribed("PIX").await;
    let billing = fixture.billing();
    for wrong in [
        change_to("starter", None),
        change_to("starter", Some("MONTHLY")),
        change_to("free", None),
        change_to("gold", None),
    ] {
        assert_eq!(invalid_fields(billing.change(&tenant(), &wrong).await), ["plan"]);
    }
    assert_eq!(
        invalid_fields(billing.change(&tenant(), &PlanChangeInput::default()).await),
        ["plan"]
    );
    assert_eq!(
        invalid_fields(billing.change(&tenant(), &change_to("growth", Some("WEEKLY"))).await),
        ["cycle"]
    );
    fixture.with(|account| account.usage.contacts = 25_001);
    assert_eq!(
        invalid_fields(billing.change(&tenant(), &change_to("growth", None)).await),
        ["plan"]
    );
    assert_eq!(fixture.call_count("change"), 0);
    billing.change(&tenant(), &change_to("scale", None)).await.unwrap();
    billing
        .change(&tenant(), &change_to("scale", Some("YEARLY")))
        .await
        .unwrap();
}

#[tokio::test]
async fn plan_change_refused_by_gateway_changes_nothing() {
    for (injected_fault, refused) in [
        (InjectedFault::Before(PaymentGatewayError::Refused(vec![])), true),
        (InjectedFault::Before(PaymentGatewayError::NotDone("401".into())), false),
        (InjectedFault::Before(PaymentGatewayError::Failed("500".into())), false),
    ] {
        let fixture = subscribed("PIX").await;
        fixture.inject_fault("change", injected_fault);
        let error = fixture
            .billing()
            .change(&tenant(), &change_to("growth", None))
            .await
            .unwrap_err();
        assert_eq!(matches!(error, BillingError::Refused(_)), refused, "{error:?}");
        let row = fixture.only_subscription();
        assert_eq!((row.plan.as_str(), row.pending), ("starter", None));
        fixture.with(|account| assert!(account.events.is_empty() && account.plan == "starter"));
        fixture
            .billing()
            .change(&tenant(), &change_to("growth", None))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn plan_change_applied_at_gateway_completes_after_lost_response() {
    let fixture = subscribed("PIX").await;
    fixture.inject_fault(
        "change",
        InjectedFault::After(PaymentGatewayError::Failed("500".into())),
    );
    fixture
        .billing()
        .change(&tenant(), &change_to("growth", None))
        .await
        .unwrap();
    for (applied, plan) in [(true, "growth"), (false, "starter")] {
        let fixture = subscribed("PIX").await;
        let error = PaymentGatewayError::Unanswered("time-out".into());
        fixture.inject_fault(
            "change",
            if applied {
                InjectedFault::After(error.clone())
            } else {
                InjectedFault::Before(error.clone())
            },
        );
        fixture.inject_fault("subscription", InjectedFault::Before(error));
        fixture
            .billing()
            .change(&tenant(), &change_to("growth", None))
            .await
            .unwrap_err();
        if !applied {
            let busy = fixture.billing().cancel(&tenant()).await;
            assert!(matches!(busy, Err(BillingError::Contended)));
        }
        fixture.advance_clock(UNANSWERED_LEASE);
        fixture.reconcile().await;
        assert_eq!(
            (
                fixture.only_subscription().plan.as_str(),
                fixture.only_subscription().pending
            ),
            (plan, None)
        );
        fixture.with(|account| assert_eq!(account.plan, plan));
    }
}

#[tokio::test]
async fn next_request_resolves_intent_after_gateway_outage() {
    let down = || PaymentGatewayError::Failed("503".into());
    for applied in [true, false] {
        let injected_fault = || {
            if applied {
                InjectedFault::After(down())
            } else {
                InjectedFault::Before(down())
            }
        };
        let fixture = subscribed("PIX").await;
        fixture.inject_fault("change", injected_fault());
        fixture.inject_fault("subscription", InjectedFault::Before(down()));
        fixture
            .billing()
            .change(&tenant(), &change_to("growth", None))
            .await
            .unwrap_err();
        let again = fixture.billing().change(&tenant(), &change_to("growth", None)).await;
        match applied {
            // The lookup finds the change that the gateway applied despite its error.
            true => assert_eq!(invalid_fields(again), ["plan"]),
            false => assert_eq!(again.unwrap().new_plan, "growth"),
        }
        assert_eq!(fixture.only_subscription().plan, "growth");
        fixture.inject_fault("cancel", injected_fault());
        fixture.inject_fault("subscription", InjectedFault::Before(down()));
        fixture.billing().cancel(&tenant()).await.unwrap_err();
        let again = fixture.billing().cancel(&tenant()).await;
        assert_eq!(again.is_err(), applied, "{again:?}");
        assert!(!fixture.only_subscription().status.is_live());
    }
}

#[tokio::test]
async fn reconciler_completes_plan_change_after_crash() {
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.tables().writes_left = Some(1);
    fixture
        .billing()
        .change(&tenant(), &change_to("growth", None))
        .await
        .unwrap_err();
    fixture.tables().writes_left = None;
    assert_eq!(fixture.gateway().subscriptions[0].1.value, Some(Cents(29_700)));
    fixture.with(|account| assert_eq!(account.plan, "starter"));
    fixture.advance_clock(INTENT_CHECK_PAUSE);
    fixture.reconcile().await;
    assert_eq!(fixture.only_subscription().plan, "growth");
    assert_eq!(fixture.notification_titles(), ["Plan changed"]);
}

/// The response was lost or the server crashed: the account's next request completes the intent at once.
#[tokio::test]
async fn next_request_completes_intent_after_crash() {
    let fixture = subscribed("CREDIT_CARD").await;
    let crashed = |fixture: &Fixture| fixture.tables().writes_left = Some(1);
    let restarted = |fixture: &Fixture| fixture.tables().writes_left = None;
    crashed(&fixture);
    let change = change_to("growth", None);
    fixture.billing().change(&tenant(), &change).await.unwrap_err();
    restarted(&fixture);
    let again = fixture
        .billing()
        .change(&tenant(), &change_to("scale", None))
        .await
        .unwrap();
    assert_eq!(
        (again.previous_plan.as_str(), again.new_plan.as_str()),
        ("growth", "scale")
    );
    crashed(&fixture);
    fixture.billing().cancel(&tenant()).await.unwrap_err();
    restarted(&fixture);
    let gone = fixture.billing().cancel(&tenant()).await;
    assert!(matches!(gone, Err(BillingError::NotFound)), "{gone:?}");
    assert_eq!(
        (fixture.only_subscription().status, fixture.charged_count()),
        (SubscriptionStatus::Cancelled, 0)
    );
}

/// A worker records the gateway's change before the request receives its response. The request succeeds, too.
#[tokio::test]
async fn request_succeeds_if_a_worker_recorded_its_change() {
    for cancels in [false, true] {
        let fixture = subscribed("CREDIT_CARD").await;
        fixture.tables().writes_left = Some(1);
        match cancels {
            true => drop(fixture.billing().cancel(&tenant()).await.unwrap_err()),
            false => drop(
                fixture
                    .billing()
                    .change(&tenant(), &change_to("growth", None))
                    .await
                    .unwrap_err(),
            ),
        }
        fixture.tables().writes_left = None;
        let intended = fixture.only_subscription();
        fixture.advance_clock(INTENT_CHECK_PAUSE);
        fixture.reconcile().await;
        let (core, titles) = (fixture.billing().core, fixture.notification_titles());
        let finished = match cancels {
            true => core.finish_cancel(&intended).await.unwrap(),
            false => core.finish_change(&intended).await.unwrap(),
        };
        assert_eq!(
            (finished, fixture.notification_titles()),
            (Some(fixture.only_subscription()), titles),
            "cancels: {cancels}"
        );
    }
}

#[tokio::test]
async fn intent_reconciliation_reports_gateway_failure() {
    for cancels in [false, true] {
        let fixture = subscribed("PIX").await;
        let down = || InjectedFault::Before(PaymentGatewayError::Unanswered("time-out".into()));
        fixture.inject_fault(
            "change",
            InjectedFault::After(PaymentGatewayError::Unanswered("time-out".into())),
        );
        fixture.inject_fault("subscription", down());
        fixture
            .billing()
            .change(&tenant(), &change_to("growth", None))
            .await
            .unwrap_err();
        fixture.inject_fault("subscription", down());
        let again = match cancels {
            true => fixture.billing().cancel(&tenant()).await.unwrap_err(),
            false => fixture
                .billing()
                .change(&tenant(), &change_to("scale", None))
                .await
                .unwrap_err(),
        };
        assert!(matches!(again, BillingError::Gateway(_)), "{again:?}");
    }
}

/// A granted plan outlives subscriptions and does not reduce a paid plan.
#[tokio::test]
async fn ended_subscription_leaves_the_granted_plan() {
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.with(|account| account.granted_plan = Some("growth".into()));
    fixture.advance_clock(Duration::days(31));
    fixture.reconcile().await;
    fixture.with(|account| assert_eq!(account.plan, "growth"));
    // A smaller paid plan does not change the account's plan; a larger one does.
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let shown = fixture.billing().overview(&tenant()).await.unwrap();
    assert_eq!((shown.plan(), shown.account_plan.as_str()), ("growth", "growth"));
    fixture
        .billing()
        .change(&tenant(), &change_to("scale", None))
        .await
        .unwrap();
    assert_eq!(fixture.billing().overview(&tenant()).await.unwrap().plan(), "scale");
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.with(|account| assert_eq!(account.plan, "growth"));
}

#[tokio::test]
async fn cancelled_plan_stays_until_period_end() {
    let fixture = subscribed("CREDIT_CARD").await;
    let done = fixture.billing().cancel(&tenant()).await.unwrap();
    assert_eq!(
        done.effective_until,
        Some(NOW.replace_date(time::macros::date!(2026 - 04 - 10)))
    );
    let row = fixture.only_subscription();
    assert_eq!(
        (row.status, row.cancelled_at, row.lapsed_at),
        (SubscriptionStatus::Cancelled, Some(NOW), None)
    );
    assert_eq!(fixture.charged_count(), 0);
    fixture.with(|account| {
        assert_eq!(account.plan, "starter");
        let last = account.events.last();
        assert!(matches!(last, Some(Event::Notification(sent)) if sent.kind == NotificationKind::Warning));
    });
    assert!(matches!(
        fixture.billing().cancel(&tenant()).await,
        Err(BillingError::NotFound)
    ));
    fixture.reconcile().await;
    fixture.with(|account| assert_eq!(account.plan, "starter"));
    fixture.advance_clock(Duration::days(31));
    fixture.reconcile().await;
    fixture.with(|account| assert_eq!(account.plan, "free"));
    // The lapse happens once.
    fixture.with(|account| account.plan = "scale".into());
    fixture.reconcile().await;
    fixture.with(|account| assert_eq!(account.plan, "scale"));
}

#[tokio::test]
async fn unpaid_plan_ends_at_once_and_new_subscription_stays() {
    let fixture = subscribed("PIX").await;
    assert_eq!(fixture.billing().cancel(&tenant()).await.unwrap().effective_until, None);
    fixture.with(|account| assert_eq!(account.plan, "free"));
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.advance_clock(Duration::days(40));
    fixture.gateway().injected_faults.clear();
    while fixture.reconciler().lapse_next().await.unwrap() {}
    fixture.with(|account| assert_eq!(account.plan, "starter", "the new subscription sets the plan"));
}

/// When a later subscription ends, the account's plan is again the one that is still paid for.
#[tokio::test]
async fn ended_subscription_leaves_the_plan_that_is_paid() {
    for by_the_gateway in [false, true] {
        let fixture = subscribed("CREDIT_CARD").await;
        fixture.billing().cancel(&tenant()).await.unwrap();
        let mut growth = input("PIX");
        growth.plan = Some("growth".into());
        let created = fixture.billing().subscribe(&tenant(), growth).await.unwrap();
        fixture.with(|account| assert_eq!(account.plan, "growth"));
        match by_the_gateway {
            true => {
                let id = created.subscription.gateway_subscription_id.as_ref().unwrap();
                let ended = parsed_event("evt_9", GatewayEventKind::Inactivated, Some(id), None, None);
                fixture.deliver_for(&ended, id).await;
            }
            false => drop(fixture.billing().cancel(&tenant()).await.unwrap()),
        }
        fixture.with(|account| assert_eq!(account.plan, "starter", "by the gateway: {by_the_gateway}"));
        fixture.advance_clock(Duration::days(31));
        while fixture.reconciler().lapse_next().await.unwrap() {}
        fixture.with(|account| assert_eq!(account.plan, "free"));
    }
}

#[tokio::test]
async fn cancellation_follows_the_gateway_state_after_failures() {
    for (applied, status) in [
        (true, SubscriptionStatus::Cancelled),
        (false, SubscriptionStatus::Active),
    ] {
        let fixture = subscribed("CREDIT_CARD").await;
        let error = PaymentGatewayError::Unanswered("time-out".into());
        fixture.inject_fault(
            "cancel",
            if applied {
                InjectedFault::After(error.clone())
            } else {
                InjectedFault::Before(error.clone())
            },
        );
        fixture.inject_fault("subscription", InjectedFault::Before(error));
        fixture.billing().cancel(&tenant()).await.unwrap_err();
        fixture.advance_clock(UNANSWERED_LEASE);
        fixture.reconcile().await;
        let row = fixture.only_subscription();
        assert_eq!((row.status, row.pending), (status, None));
    }
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.inject_fault(
        "cancel",
        InjectedFault::After(PaymentGatewayError::Failed("500".into())),
    );
    fixture.billing().cancel(&tenant()).await.unwrap();
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.inject_fault(
        "cancel",
        InjectedFault::Before(PaymentGatewayError::Failed("500".into())),
    );
    fixture.billing().cancel(&tenant()).await.unwrap_err();
    assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Active);
    fixture.billing().cancel(&tenant()).await.unwrap();
}

#[tokio::test]
async fn payment_is_visible_to_its_own_account_only() {
    let fixture = subscribed("PIX").await;
    assert_eq!(
        fixture.billing().payment(&tenant(), "pay_1").await.unwrap().status,
        PaymentStatus::Pending
    );
    let foreign = GatewayPayment {
        id: "pay_other".into(),
        subscription: Some("sub_other".into()),
        ..fixture.gateway().payments[0].clone()
    };
    fixture.gateway().payments.push(foreign);
    for id in ["pay_other", "pay_none"] {
        assert!(
            matches!(
                fixture.billing().payment(&tenant(), id).await,
                Err(BillingError::NotFound)
            ),
            "{id}"
        );
    }
}
