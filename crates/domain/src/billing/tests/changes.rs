//! Changing the plan and cancelling: the rules, and every fault in between.

use serde_json::json;
use time::Duration;

use super::fakes::{Fixture, InjectedFault, NOW, input, tenant};
use crate::billing::*;
use crate::shared::{Event, FieldErrors, NotificationKind};

async fn subscribed(billing_type: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture
        .billing()
        .subscribe(&tenant(), input(billing_type))
        .await
        .unwrap();
    fixture.with(|state| state.events.clear());
    fixture
}

fn to(plan: &str, cycle: Option<&str>) -> PlanChangeInput {
    PlanChangeInput {
        plan: Some(plan.into()),
        cycle: cycle.map(str::to_owned),
    }
}

fn invalid(result: Result<PlanChange, BillingError>) -> Vec<String> {
    match result {
        Err(BillingError::Invalid(FieldErrors(fields))) => fields.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn plan_and_cycle_change_here_and_there() {
    let fixture = subscribed("CREDIT_CARD").await;
    let changed = fixture
        .billing()
        .change(&tenant(), &to("growth", Some("YEARLY")))
        .await
        .unwrap();
    assert_eq!(
        (changed.previous_plan.as_str(), changed.new_plan.as_str()),
        ("starter", "growth")
    );
    let row = fixture.only();
    assert_eq!(
        (row.plan.as_str(), row.cycle, row.value),
        ("growth", Cycle::Yearly, Cents(297_000))
    );
    fixture.with(|state| {
        assert_eq!(
            (state.remote[0].1.value, state.remote[0].1.cycle.as_str()),
            (Some(Cents(297_000)), "YEARLY")
        );
        assert_eq!(state.plan, "growth");
        let Some(Event::Notification(notice)) = state.events.last() else {
            panic!()
        };
        assert!(
            notice.message.contains("Starter") && notice.message.contains("Growth"),
            "{}",
            notice.message
        );
    });
    fixture
        .billing()
        .change(&tenant(), &to("growth", Some("MONTHLY")))
        .await
        .unwrap();
    let kept = fixture.billing().change(&tenant(), &to("scale", None)).await.unwrap();
    assert_eq!(
        (kept.subscription.cycle, kept.subscription.value),
        (Cycle::Monthly, Cents(79_700))
    );
}

#[tokio::test]
async fn what_cannot_be_changed_asks_nobody() {
    let fixture = Fixture::new();
    let none = fixture.billing().change(&tenant(), &to("growth", None)).await;
    assert!(matches!(none, Err(BillingError::NotFound)));
    let fixture = subscribed("PIX").await;
    let billing = fixture.billing();
    for wrong in [
        to("starter", None),
        to("starter", Some("MONTHLY")),
        to("free", None),
        to("gold", None),
    ] {
        assert_eq!(invalid(billing.change(&tenant(), &wrong).await), ["plan"]);
    }
    assert_eq!(
        invalid(billing.change(&tenant(), &PlanChangeInput::default()).await),
        ["plan"]
    );
    assert_eq!(
        invalid(billing.change(&tenant(), &to("growth", Some("WEEKLY"))).await),
        ["cycle"]
    );
    fixture.with(|state| state.usage.contacts = 25_001);
    assert_eq!(invalid(billing.change(&tenant(), &to("growth", None)).await), ["plan"]);
    assert_eq!(fixture.calls("change"), 0);
    billing.change(&tenant(), &to("scale", None)).await.unwrap();
    billing.change(&tenant(), &to("scale", Some("YEARLY"))).await.unwrap();
}

#[tokio::test]
async fn a_refused_change_leaves_everything_as_it_was() {
    for (injected_fault, refused) in [
        (InjectedFault::Before(PaymentGatewayError::Refused(vec![])), true),
        (InjectedFault::Before(PaymentGatewayError::NotDone("401".into())), false),
        (InjectedFault::Before(PaymentGatewayError::Failed("500".into())), false),
    ] {
        let fixture = subscribed("PIX").await;
        fixture.injected_fault("change", injected_fault);
        let error = fixture
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        assert_eq!(matches!(error, BillingError::Refused(_)), refused, "{error:?}");
        let row = fixture.only();
        assert_eq!((row.plan.as_str(), row.pending), ("starter", None));
        fixture.with(|state| assert!(state.events.is_empty() && state.plan == "starter"));
        fixture.billing().change(&tenant(), &to("growth", None)).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_that_was_made_is_finished_whatever_happened_to_its_answer() {
    let fixture = subscribed("PIX").await;
    fixture.injected_fault(
        "change",
        InjectedFault::After(PaymentGatewayError::Failed("500".into())),
    );
    fixture.billing().change(&tenant(), &to("growth", None)).await.unwrap();
    for (made, plan) in [(true, "growth"), (false, "starter")] {
        let fixture = subscribed("PIX").await;
        let fault = PaymentGatewayError::Unanswered("time-out".into());
        fixture.injected_fault(
            "change",
            if made {
                InjectedFault::After(fault.clone())
            } else {
                InjectedFault::Before(fault.clone())
            },
        );
        fixture.injected_fault("subscription", InjectedFault::Before(fault));
        fixture
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        if !made {
            let busy = fixture.billing().cancel(&tenant()).await;
            assert!(matches!(busy, Err(BillingError::Contended)));
        }
        fixture.pass(UNANSWERED_DOUBT);
        fixture.reconcile().await;
        assert_eq!((fixture.only().plan.as_str(), fixture.only().pending), (plan, None));
        fixture.with(|state| assert_eq!(state.plan, plan));
    }
}

#[tokio::test]
async fn after_a_gateway_that_was_down_whoever_comes_next_goes_on() {
    let down = || PaymentGatewayError::Failed("503".into());
    for made in [true, false] {
        let injected_fault = || {
            if made {
                InjectedFault::After(down())
            } else {
                InjectedFault::Before(down())
            }
        };
        let fixture = subscribed("PIX").await;
        fixture.injected_fault("change", injected_fault());
        fixture.injected_fault("subscription", InjectedFault::Before(down()));
        fixture
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        let again = fixture.billing().change(&tenant(), &to("growth", None)).await;
        match made {
            // What it did all the same is found.
            true => assert_eq!(invalid(again), ["plan"]),
            false => assert_eq!(again.unwrap().new_plan, "growth"),
        }
        assert_eq!(fixture.only().plan, "growth");
        fixture.injected_fault("cancel", injected_fault());
        fixture.injected_fault("subscription", InjectedFault::Before(down()));
        fixture.billing().cancel(&tenant()).await.unwrap_err();
        let again = fixture.billing().cancel(&tenant()).await;
        assert_eq!(again.is_err(), made, "{again:?}");
        assert!(!fixture.only().status.is_live());
    }
}

#[tokio::test]
async fn a_crash_behind_the_gateways_answer_to_a_change_is_settled() {
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.with(|state| state.writes_left = Some(1));
    fixture
        .billing()
        .change(&tenant(), &to("growth", None))
        .await
        .unwrap_err();
    fixture.with(|state| {
        state.writes_left = None;
        assert_eq!(state.remote[0].1.value, Some(Cents(29_700)));
        assert_eq!(state.plan, "starter");
    });
    fixture.pass(INTENT_CHECK_PAUSE);
    fixture.reconcile().await;
    assert_eq!(fixture.only().plan, "growth");
    assert_eq!(fixture.titles(), ["Plan changed"]);
}

/// The answer was lost, or the server died: the account's next request finds what the gateway has done, at once.
#[tokio::test]
async fn the_next_request_settles_what_the_gateway_has_done() {
    let fixture = subscribed("CREDIT_CARD").await;
    let crashed = |fixture: &Fixture| fixture.with(|state| state.writes_left = Some(1));
    let restarted = |fixture: &Fixture| fixture.with(|state| state.writes_left = None);
    crashed(&fixture);
    let change = to("growth", None);
    fixture.billing().change(&tenant(), &change).await.unwrap_err();
    restarted(&fixture);
    let again = fixture.billing().change(&tenant(), &to("scale", None)).await.unwrap();
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
        (fixture.only().status, fixture.charged()),
        (SubscriptionStatus::Cancelled, 0)
    );
}

/// A worker sees at the gateway what was done before the answer is here, and records it: the request succeeds too.
#[tokio::test]
async fn a_request_whose_change_was_recorded_by_a_worker_succeeds() {
    for cancels in [false, true] {
        let fixture = subscribed("CREDIT_CARD").await;
        fixture.with(|state| state.writes_left = Some(1));
        match cancels {
            true => drop(fixture.billing().cancel(&tenant()).await.unwrap_err()),
            false => drop(
                fixture
                    .billing()
                    .change(&tenant(), &to("growth", None))
                    .await
                    .unwrap_err(),
            ),
        }
        fixture.with(|state| state.writes_left = None);
        let intended = fixture.only();
        fixture.pass(INTENT_CHECK_PAUSE);
        fixture.reconcile().await;
        let (core, titles) = (fixture.billing().core, fixture.titles());
        let finished = match cancels {
            true => core.finish_cancel(&intended).await.unwrap(),
            false => core.finish_change(&intended).await.unwrap(),
        };
        assert_eq!(
            (finished, fixture.titles()),
            (Some(fixture.only()), titles),
            "cancels: {cancels}"
        );
    }
}

#[tokio::test]
async fn a_gateway_that_is_down_during_reconciliation_is_the_gateways_fault() {
    for cancels in [false, true] {
        let fixture = subscribed("PIX").await;
        let down = || InjectedFault::Before(PaymentGatewayError::Unanswered("time-out".into()));
        fixture.injected_fault(
            "change",
            InjectedFault::After(PaymentGatewayError::Unanswered("time-out".into())),
        );
        fixture.injected_fault("subscription", down());
        fixture
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        fixture.injected_fault("subscription", down());
        let again = match cancels {
            true => fixture.billing().cancel(&tenant()).await.unwrap_err(),
            false => fixture
                .billing()
                .change(&tenant(), &to("scale", None))
                .await
                .unwrap_err(),
        };
        assert!(matches!(again, BillingError::Gateway(_)), "{again:?}");
    }
}

/// What an administrator granted outlives subscriptions, and takes nothing from what is paid.
#[tokio::test]
async fn what_ends_leaves_the_plan_that_was_granted() {
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.with(|state| state.granted = Some("growth".into()));
    fixture.pass(Duration::days(31));
    fixture.reconcile().await;
    fixture.with(|state| assert_eq!(state.plan, "growth"));
    // A smaller plan that is bought beside it adds nothing; a larger one does.
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let shown = fixture.billing().overview(&tenant()).await.unwrap();
    assert_eq!((shown.plan(), shown.account_plan.as_str()), ("growth", "growth"));
    fixture.billing().change(&tenant(), &to("scale", None)).await.unwrap();
    assert_eq!(fixture.billing().overview(&tenant()).await.unwrap().plan(), "scale");
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.with(|state| assert_eq!(state.plan, "growth"));
}

#[tokio::test]
async fn what_is_paid_stays_until_its_end() {
    let fixture = subscribed("CREDIT_CARD").await;
    let done = fixture.billing().cancel(&tenant()).await.unwrap();
    assert_eq!(
        done.effective_until,
        Some(NOW.replace_date(time::macros::date!(2026 - 04 - 10)))
    );
    let row = fixture.only();
    assert_eq!(
        (row.status, row.cancelled_at, row.lapsed_at),
        (SubscriptionStatus::Cancelled, Some(NOW), None)
    );
    assert_eq!(fixture.charged(), 0);
    fixture.with(|state| {
        assert_eq!(state.plan, "starter");
        assert!(
            matches!(state.events.last(), Some(Event::Notification(notice)) if notice.kind == NotificationKind::Warning)
        );
    });
    assert!(matches!(
        fixture.billing().cancel(&tenant()).await,
        Err(BillingError::NotFound)
    ));
    fixture.reconcile().await;
    fixture.with(|state| assert_eq!(state.plan, "starter"));
    fixture.pass(Duration::days(31));
    fixture.reconcile().await;
    fixture.with(|state| assert_eq!(state.plan, "free"));
    // It ends the plan once.
    fixture.with(|state| state.plan = "scale".into());
    fixture.reconcile().await;
    fixture.with(|state| assert_eq!(state.plan, "scale"));
}

#[tokio::test]
async fn without_a_payment_the_plan_goes_at_once_and_a_new_subscription_is_left_alone() {
    let fixture = subscribed("PIX").await;
    assert_eq!(fixture.billing().cancel(&tenant()).await.unwrap().effective_until, None);
    fixture.with(|state| assert_eq!(state.plan, "free"));
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.billing().cancel(&tenant()).await.unwrap();
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.pass(Duration::days(40));
    fixture.with(|state| state.strikes.clear());
    while fixture.reconciler().lapse_next().await.unwrap() {}
    fixture.with(|state| assert_eq!(state.plan, "starter", "the new subscription has it"));
}

/// What is still paid for gives the account its plan again when what came after it ends.
#[tokio::test]
async fn what_ends_leaves_the_plan_that_is_paid_for() {
    for by_the_gateway in [false, true] {
        let fixture = subscribed("CREDIT_CARD").await;
        fixture.billing().cancel(&tenant()).await.unwrap();
        let mut growth = input("PIX");
        growth.plan = Some("growth".into());
        let made = fixture.billing().subscribe(&tenant(), growth).await.unwrap();
        fixture.with(|state| assert_eq!(state.plan, "growth"));
        match by_the_gateway {
            true => {
                let id = made.subscription.gateway_subscription_id.as_ref().unwrap();
                let body = json!({ "id": "evt_9", "event": "SUBSCRIPTION_INACTIVATED", "subscription": { "id": id } });
                fixture
                    .deliver_to(&GatewayEvent::read(body.to_string().as_bytes()), id)
                    .await;
            }
            false => drop(fixture.billing().cancel(&tenant()).await.unwrap()),
        }
        fixture.with(|state| assert_eq!(state.plan, "starter", "by the gateway: {by_the_gateway}"));
        fixture.pass(Duration::days(31));
        while fixture.reconciler().lapse_next().await.unwrap() {}
        fixture.with(|state| assert_eq!(state.plan, "free"));
    }
}

#[tokio::test]
async fn a_cancellation_is_finished_or_taken_back_by_what_the_gateway_says() {
    for (made, status) in [
        (true, SubscriptionStatus::Cancelled),
        (false, SubscriptionStatus::Active),
    ] {
        let fixture = subscribed("CREDIT_CARD").await;
        let fault = PaymentGatewayError::Unanswered("time-out".into());
        fixture.injected_fault(
            "cancel",
            if made {
                InjectedFault::After(fault.clone())
            } else {
                InjectedFault::Before(fault.clone())
            },
        );
        fixture.injected_fault("subscription", InjectedFault::Before(fault));
        fixture.billing().cancel(&tenant()).await.unwrap_err();
        fixture.pass(UNANSWERED_DOUBT);
        fixture.reconcile().await;
        let row = fixture.only();
        assert_eq!((row.status, row.pending), (status, None));
    }
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.injected_fault(
        "cancel",
        InjectedFault::After(PaymentGatewayError::Failed("500".into())),
    );
    fixture.billing().cancel(&tenant()).await.unwrap();
    let fixture = subscribed("CREDIT_CARD").await;
    fixture.injected_fault(
        "cancel",
        InjectedFault::Before(PaymentGatewayError::Failed("500".into())),
    );
    fixture.billing().cancel(&tenant()).await.unwrap_err();
    assert_eq!(fixture.only().status, SubscriptionStatus::Active);
    fixture.billing().cancel(&tenant()).await.unwrap();
}

#[tokio::test]
async fn a_payment_is_shown_to_its_account_alone() {
    let fixture = subscribed("PIX").await;
    assert_eq!(
        fixture.billing().payment(&tenant(), "pay_1").await.unwrap().status,
        "PENDING"
    );
    fixture.with(|state| state.remote_payments[0].subscription = Some("sub_other".into()));
    for id in ["pay_1", "pay_none"] {
        assert!(
            matches!(
                fixture.billing().payment(&tenant(), id).await,
                Err(BillingError::NotFound)
            ),
            "{id}"
        );
    }
}
