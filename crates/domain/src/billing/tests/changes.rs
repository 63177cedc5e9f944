//! Changing the plan and cancelling: the rules, and every fault in between.

use serde_json::json;
use time::Duration;

use super::fakes::{NOW, Strike, World, input, tenant};
use crate::billing::*;
use crate::shared::{Event, FieldErrors, NotificationKind};

async fn subscribed(billing_type: &str) -> World {
    let world = World::new();
    world.billing().subscribe(&tenant(), input(billing_type)).await.unwrap();
    world.with(|state| state.events.clear());
    world
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
    let world = subscribed("CREDIT_CARD").await;
    let changed = world
        .billing()
        .change(&tenant(), &to("growth", Some("YEARLY")))
        .await
        .unwrap();
    assert_eq!(
        (changed.previous_plan.as_str(), changed.new_plan.as_str()),
        ("starter", "growth")
    );
    let row = world.only();
    assert_eq!(
        (row.plan.as_str(), row.cycle, row.value),
        ("growth", Cycle::Yearly, Cents(297_000))
    );
    world.with(|state| {
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
    world
        .billing()
        .change(&tenant(), &to("growth", Some("MONTHLY")))
        .await
        .unwrap();
    let kept = world.billing().change(&tenant(), &to("scale", None)).await.unwrap();
    assert_eq!(
        (kept.subscription.cycle, kept.subscription.value),
        (Cycle::Monthly, Cents(79_700))
    );
}

#[tokio::test]
async fn what_cannot_be_changed_asks_nobody() {
    let world = World::new();
    let none = world.billing().change(&tenant(), &to("growth", None)).await;
    assert!(matches!(none, Err(BillingError::NotFound)));
    let world = subscribed("PIX").await;
    let billing = world.billing();
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
    world.with(|state| state.usage.contacts = 25_001);
    assert_eq!(invalid(billing.change(&tenant(), &to("growth", None)).await), ["plan"]);
    assert_eq!(world.calls("change"), 0);
    billing.change(&tenant(), &to("scale", None)).await.unwrap();
    billing.change(&tenant(), &to("scale", Some("YEARLY"))).await.unwrap();
}

#[tokio::test]
async fn a_refused_change_leaves_everything_as_it_was() {
    for (strike, refused) in [
        (Strike::Before(PaymentGatewayError::Refused(vec![])), true),
        (Strike::Before(PaymentGatewayError::NotDone("401".into())), false),
        (Strike::Before(PaymentGatewayError::Failed("500".into())), false),
    ] {
        let world = subscribed("PIX").await;
        world.strike("change", strike);
        let error = world
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        assert_eq!(matches!(error, BillingError::Refused(_)), refused, "{error:?}");
        let row = world.only();
        assert_eq!((row.plan.as_str(), row.pending), ("starter", None));
        world.with(|state| assert!(state.events.is_empty() && state.plan == "starter"));
        world.billing().change(&tenant(), &to("growth", None)).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_that_was_made_is_finished_whatever_happened_to_its_answer() {
    let world = subscribed("PIX").await;
    world.strike("change", Strike::After(PaymentGatewayError::Failed("500".into())));
    world.billing().change(&tenant(), &to("growth", None)).await.unwrap();
    for (made, plan) in [(true, "growth"), (false, "starter")] {
        let world = subscribed("PIX").await;
        let fault = PaymentGatewayError::Unanswered("time-out".into());
        world.strike(
            "change",
            if made {
                Strike::After(fault.clone())
            } else {
                Strike::Before(fault.clone())
            },
        );
        world.strike("subscription", Strike::Before(fault));
        world
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        if !made {
            let busy = world.billing().cancel(&tenant()).await;
            assert!(matches!(busy, Err(BillingError::Contended)));
        }
        world.pass(UNANSWERED_DOUBT);
        world.reconcile().await;
        assert_eq!((world.only().plan.as_str(), world.only().pending), (plan, None));
        world.with(|state| assert_eq!(state.plan, plan));
    }
}

#[tokio::test]
async fn after_a_gateway_that_was_down_whoever_comes_next_goes_on() {
    let down = || PaymentGatewayError::Failed("503".into());
    for made in [true, false] {
        let strike = || {
            if made {
                Strike::After(down())
            } else {
                Strike::Before(down())
            }
        };
        let world = subscribed("PIX").await;
        world.strike("change", strike());
        world.strike("subscription", Strike::Before(down()));
        world
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        let again = world.billing().change(&tenant(), &to("growth", None)).await;
        match made {
            // What it did all the same is found.
            true => assert_eq!(invalid(again), ["plan"]),
            false => assert_eq!(again.unwrap().new_plan, "growth"),
        }
        assert_eq!(world.only().plan, "growth");
        world.strike("cancel", strike());
        world.strike("subscription", Strike::Before(down()));
        world.billing().cancel(&tenant()).await.unwrap_err();
        let again = world.billing().cancel(&tenant()).await;
        assert_eq!(again.is_err(), made, "{again:?}");
        assert!(!world.only().status.is_live());
    }
}

#[tokio::test]
async fn a_crash_behind_the_gateways_answer_to_a_change_is_settled() {
    let world = subscribed("CREDIT_CARD").await;
    world.with(|state| state.writes_left = Some(1));
    world
        .billing()
        .change(&tenant(), &to("growth", None))
        .await
        .unwrap_err();
    world.with(|state| {
        state.writes_left = None;
        assert_eq!(state.remote[0].1.value, Some(Cents(29_700)));
        assert_eq!(state.plan, "starter");
    });
    world.pass(INTENT_CHECK_PAUSE);
    world.reconcile().await;
    assert_eq!(world.only().plan, "growth");
    assert_eq!(world.titles(), ["Plan changed"]);
}

/// The answer was lost, or the server died: the account's next request finds what the gateway has done, at once.
#[tokio::test]
async fn the_next_request_settles_what_the_gateway_has_done() {
    let world = subscribed("CREDIT_CARD").await;
    let crashed = |world: &World| world.with(|state| state.writes_left = Some(1));
    let restarted = |world: &World| world.with(|state| state.writes_left = None);
    crashed(&world);
    let change = to("growth", None);
    world.billing().change(&tenant(), &change).await.unwrap_err();
    restarted(&world);
    let again = world.billing().change(&tenant(), &to("scale", None)).await.unwrap();
    assert_eq!(
        (again.previous_plan.as_str(), again.new_plan.as_str()),
        ("growth", "scale")
    );
    crashed(&world);
    world.billing().cancel(&tenant()).await.unwrap_err();
    restarted(&world);
    let gone = world.billing().cancel(&tenant()).await;
    assert!(matches!(gone, Err(BillingError::NotFound)), "{gone:?}");
    assert_eq!(
        (world.only().status, world.charged()),
        (SubscriptionStatus::Cancelled, 0)
    );
}

/// A worker sees at the gateway what was done before the answer is here, and records it: the request succeeds too.
#[tokio::test]
async fn a_request_whose_change_was_recorded_by_a_worker_succeeds() {
    for cancels in [false, true] {
        let world = subscribed("CREDIT_CARD").await;
        world.with(|state| state.writes_left = Some(1));
        match cancels {
            true => drop(world.billing().cancel(&tenant()).await.unwrap_err()),
            false => drop(
                world
                    .billing()
                    .change(&tenant(), &to("growth", None))
                    .await
                    .unwrap_err(),
            ),
        }
        world.with(|state| state.writes_left = None);
        let intended = world.only();
        world.pass(INTENT_CHECK_PAUSE);
        world.reconcile().await;
        let (core, titles) = (world.billing().core, world.titles());
        let finished = match cancels {
            true => core.finish_cancel(&intended).await.unwrap(),
            false => core.finish_change(&intended).await.unwrap(),
        };
        assert_eq!(
            (finished, world.titles()),
            (Some(world.only()), titles),
            "cancels: {cancels}"
        );
    }
}

#[tokio::test]
async fn a_gateway_that_is_down_during_reconciliation_is_the_gateways_fault() {
    for cancels in [false, true] {
        let world = subscribed("PIX").await;
        let down = || Strike::Before(PaymentGatewayError::Unanswered("time-out".into()));
        world.strike(
            "change",
            Strike::After(PaymentGatewayError::Unanswered("time-out".into())),
        );
        world.strike("subscription", down());
        world
            .billing()
            .change(&tenant(), &to("growth", None))
            .await
            .unwrap_err();
        world.strike("subscription", down());
        let again = match cancels {
            true => world.billing().cancel(&tenant()).await.unwrap_err(),
            false => world.billing().change(&tenant(), &to("scale", None)).await.unwrap_err(),
        };
        assert!(matches!(again, BillingError::Gateway(_)), "{again:?}");
    }
}

/// What an administrator granted outlives subscriptions, and takes nothing from what is paid.
#[tokio::test]
async fn what_ends_leaves_the_plan_that_was_granted() {
    let world = subscribed("CREDIT_CARD").await;
    world.billing().cancel(&tenant()).await.unwrap();
    world.with(|state| state.granted = Some("growth".into()));
    world.pass(Duration::days(31));
    world.reconcile().await;
    world.with(|state| assert_eq!(state.plan, "growth"));
    // A smaller plan that is bought beside it adds nothing; a larger one does.
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let shown = world.billing().overview(&tenant()).await.unwrap();
    assert_eq!((shown.plan(), shown.account_plan.as_str()), ("growth", "growth"));
    world.billing().change(&tenant(), &to("scale", None)).await.unwrap();
    assert_eq!(world.billing().overview(&tenant()).await.unwrap().plan(), "scale");
    world.billing().cancel(&tenant()).await.unwrap();
    world.with(|state| assert_eq!(state.plan, "growth"));
}

#[tokio::test]
async fn what_is_paid_stays_until_its_end() {
    let world = subscribed("CREDIT_CARD").await;
    let done = world.billing().cancel(&tenant()).await.unwrap();
    assert_eq!(
        done.effective_until,
        Some(NOW.replace_date(time::macros::date!(2026 - 04 - 10)))
    );
    let row = world.only();
    assert_eq!(
        (row.status, row.cancelled_at, row.lapsed_at),
        (SubscriptionStatus::Cancelled, Some(NOW), None)
    );
    assert_eq!(world.charged(), 0);
    world.with(|state| {
        assert_eq!(state.plan, "starter");
        assert!(
            matches!(state.events.last(), Some(Event::Notification(notice)) if notice.kind == NotificationKind::Warning)
        );
    });
    assert!(matches!(
        world.billing().cancel(&tenant()).await,
        Err(BillingError::NotFound)
    ));
    world.reconcile().await;
    world.with(|state| assert_eq!(state.plan, "starter"));
    world.pass(Duration::days(31));
    world.reconcile().await;
    world.with(|state| assert_eq!(state.plan, "free"));
    // It ends the plan once.
    world.with(|state| state.plan = "scale".into());
    world.reconcile().await;
    world.with(|state| assert_eq!(state.plan, "scale"));
}

#[tokio::test]
async fn without_a_payment_the_plan_goes_at_once_and_a_new_subscription_is_left_alone() {
    let world = subscribed("PIX").await;
    assert_eq!(world.billing().cancel(&tenant()).await.unwrap().effective_until, None);
    world.with(|state| assert_eq!(state.plan, "free"));
    let world = subscribed("CREDIT_CARD").await;
    world.billing().cancel(&tenant()).await.unwrap();
    world.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    world.pass(Duration::days(40));
    world.with(|state| state.strikes.clear());
    while world.reconciler().lapse_next().await.unwrap() {}
    world.with(|state| assert_eq!(state.plan, "starter", "the new subscription has it"));
}

/// What is still paid for gives the account its plan again when what came after it ends.
#[tokio::test]
async fn what_ends_leaves_the_plan_that_is_paid_for() {
    for by_the_gateway in [false, true] {
        let world = subscribed("CREDIT_CARD").await;
        world.billing().cancel(&tenant()).await.unwrap();
        let mut growth = input("PIX");
        growth.plan = Some("growth".into());
        let made = world.billing().subscribe(&tenant(), growth).await.unwrap();
        world.with(|state| assert_eq!(state.plan, "growth"));
        match by_the_gateway {
            true => {
                let id = made.subscription.gateway_subscription_id.as_ref().unwrap();
                let body = json!({ "id": "evt_9", "event": "SUBSCRIPTION_INACTIVATED", "subscription": { "id": id } });
                world
                    .deliver_to(&GatewayEvent::read(body.to_string().as_bytes()), id)
                    .await;
            }
            false => drop(world.billing().cancel(&tenant()).await.unwrap()),
        }
        world.with(|state| assert_eq!(state.plan, "starter", "by the gateway: {by_the_gateway}"));
        world.pass(Duration::days(31));
        while world.reconciler().lapse_next().await.unwrap() {}
        world.with(|state| assert_eq!(state.plan, "free"));
    }
}

#[tokio::test]
async fn a_cancellation_is_finished_or_taken_back_by_what_the_gateway_says() {
    for (made, status) in [
        (true, SubscriptionStatus::Cancelled),
        (false, SubscriptionStatus::Active),
    ] {
        let world = subscribed("CREDIT_CARD").await;
        let fault = PaymentGatewayError::Unanswered("time-out".into());
        world.strike(
            "cancel",
            if made {
                Strike::After(fault.clone())
            } else {
                Strike::Before(fault.clone())
            },
        );
        world.strike("subscription", Strike::Before(fault));
        world.billing().cancel(&tenant()).await.unwrap_err();
        world.pass(UNANSWERED_DOUBT);
        world.reconcile().await;
        let row = world.only();
        assert_eq!((row.status, row.pending), (status, None));
    }
    let world = subscribed("CREDIT_CARD").await;
    world.strike("cancel", Strike::After(PaymentGatewayError::Failed("500".into())));
    world.billing().cancel(&tenant()).await.unwrap();
    let world = subscribed("CREDIT_CARD").await;
    world.strike("cancel", Strike::Before(PaymentGatewayError::Failed("500".into())));
    world.billing().cancel(&tenant()).await.unwrap_err();
    assert_eq!(world.only().status, SubscriptionStatus::Active);
    world.billing().cancel(&tenant()).await.unwrap();
}

#[tokio::test]
async fn a_payment_is_shown_to_its_account_alone() {
    let world = subscribed("PIX").await;
    assert_eq!(
        world.billing().payment(&tenant(), "pay_1").await.unwrap().status,
        "PENDING"
    );
    world.with(|state| state.remote_payments[0].subscription = Some("sub_other".into()));
    for id in ["pay_1", "pay_none"] {
        assert!(
            matches!(
                world.billing().payment(&tenant(), id).await,
                Err(BillingError::NotFound)
            ),
            "{id}"
        );
    }
}
