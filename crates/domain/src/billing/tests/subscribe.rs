//! Subscribing: every billing type, every fault of the gateway and of the store, and many at once.

use time::Duration;

use super::fakes::{Fixture, InjectedFault, NOW, input, tenant};
use crate::billing::*;
use crate::shared::{FieldErrors, StoreError};

fn fields(error: &BillingError) -> Vec<String> {
    match error {
        BillingError::Invalid(FieldErrors(fields)) => fields.keys().cloned().collect(),
        other => panic!("{other:?}"),
    }
}

fn lost() -> PaymentGatewayError {
    PaymentGatewayError::Unanswered("time-out".into())
}

fn broken() -> PaymentGatewayError {
    PaymentGatewayError::Failed("HTTP 500".into())
}

#[tokio::test]
async fn pix_and_boleto_wait_for_the_payment_and_cards_do_not() {
    for (billing_type, status, period) in [
        ("PIX", SubscriptionStatus::Pending, false),
        ("BOLETO", SubscriptionStatus::Pending, false),
        ("CREDIT_CARD", SubscriptionStatus::Active, true),
    ] {
        let fixture = Fixture::new();
        let done = fixture
            .billing()
            .subscribe(&tenant(), input(billing_type))
            .await
            .unwrap();
        let row = fixture.only();
        assert_eq!(
            (row.status, row.current_period_end.is_some()),
            (status, period),
            "{billing_type}"
        );
        assert_eq!(row.gateway_subscription_id.as_deref(), Some("sub_1"));
        assert_eq!(row.pending, None);
        assert_eq!(done.payment_data.payment.unwrap().id, "pay_1");
        fixture.with(|state| {
            assert_eq!(
                (state.plan.as_str(), state.payments.len(), state.events.len()),
                ("starter", 1, 2)
            );
            assert_eq!(
                state.payments[0].credited, period,
                "the card's period is paid by its first payment"
            );
        });
    }
}

#[tokio::test]
async fn wrong_input_is_named_and_asks_nobody() {
    let fixture = Fixture::new();
    let empty = fixture
        .billing()
        .subscribe(&tenant(), SubscribeInput::default())
        .await
        .unwrap_err();
    assert_eq!(fields(&empty), ["billing_type", "cpf_cnpj", "cycle", "plan"]);
    let with = |change: fn(&mut SubscribeInput)| {
        let mut input = input("CREDIT_CARD");
        change(&mut input);
        input
    };
    for (wrong, field) in [
        (with(|input| input.plan = Some("free".into())), "plan"),
        (with(|input| input.plan = Some("gold".into())), "plan"),
        (with(|input| input.cycle = Some("monthly".into())), "cycle"),
        (with(|input| input.billing_email = Some("no".into())), "billing_email"),
        (with(|input| input.cpf_cnpj = Some("12ABC34501DE34".into())), "cpf_cnpj"),
        (with(|input| input.credit_card = None), "credit_card"),
        (
            with(|input| input.credit_card_holder_info = None),
            "credit_card_holder_info",
        ),
    ] {
        let error = fixture.billing().subscribe(&tenant(), wrong).await.unwrap_err();
        assert_eq!(fields(&error), [field]);
    }
    fixture.with(|state| assert!(state.calls.is_empty() && state.rows.is_empty()));
}

#[tokio::test]
async fn what_the_gateway_refuses_leaves_nothing() {
    let refusal = PaymentGatewayError::Refused(vec![Description {
        code: "invalid_creditCard".into(),
        description: "Transação não autorizada.".into(),
    }]);
    for call in ["customer", "subscribe"] {
        for fault in [
            refusal.clone(),
            PaymentGatewayError::NotDone("refused".into()),
            PaymentGatewayError::NotConfigured,
        ] {
            let fixture = Fixture::new();
            fixture.injected_fault(call, InjectedFault::Before(fault.clone()));
            let error = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
            assert_eq!(matches!(error, BillingError::Refused(_)), fault == refusal, "{error:?}");
            fixture.with(|state| assert!(state.rows.is_empty() && state.events.is_empty() && state.plan == "free"));
            fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_is_looked_for() {
    for fault in [lost(), broken()] {
        let fixture = Fixture::new();
        fixture.injected_fault("subscribe", InjectedFault::After(fault));
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        assert_eq!((fixture.charged(), fixture.calls("subscribe")), (1, 1));
        assert_eq!(fixture.only().status, SubscriptionStatus::Pending);
    }
}

#[tokio::test]
async fn a_fault_that_made_nothing_frees_the_place_at_once() {
    let fixture = Fixture::new();
    fixture.injected_fault("subscribe", InjectedFault::Before(broken()));
    let error = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    assert!(matches!(error, BillingError::Gateway(PaymentGatewayError::Failed(_))));
    assert!(
        fixture
            .billing()
            .overview(&tenant())
            .await
            .unwrap()
            .subscription
            .is_none()
    );
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    assert_eq!(fixture.charged(), 1);
    // In time what came to nothing is forgotten.
    fixture.pass(Duration::days(2));
    fixture.reconcile().await;
    fixture.with(|state| assert_eq!(state.rows.len(), 1));
}

#[tokio::test]
async fn a_fault_that_nobody_could_look_into_is_looked_into_by_whoever_comes_next() {
    for made in [true, false] {
        let fixture = Fixture::new();
        let injected_fault = if made {
            InjectedFault::After(broken())
        } else {
            InjectedFault::Before(broken())
        };
        fixture.injected_fault("subscribe", injected_fault);
        fixture.injected_fault("find", InjectedFault::Before(broken()));
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        let again = fixture.billing().subscribe(&tenant(), input("PIX")).await;
        assert_eq!(again.is_err(), made, "{again:?}");
        assert_eq!(
            (fixture.charged(), fixture.only().status),
            (1, SubscriptionStatus::Pending)
        );
    }
}

/// The answer is lost and the gateway cannot be asked: until it can, nobody knows; then the next request does.
#[tokio::test]
async fn in_doubt_nobody_subscribes_again_until_it_is_settled() {
    for made in [true, false] {
        let fixture = Fixture::new();
        let injected_fault = if made {
            InjectedFault::After(lost())
        } else {
            InjectedFault::Before(lost())
        };
        fixture.injected_fault("subscribe", injected_fault);
        fixture.injected_fault("find", InjectedFault::Before(lost()));
        let error = fixture
            .billing()
            .subscribe(&tenant(), input("CREDIT_CARD"))
            .await
            .unwrap_err();
        assert!(matches!(error, BillingError::Gateway(_)), "{error:?}");
        fixture.with(|state| assert_eq!(state.plan, "free", "no plan before it is sure"));
        let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        assert_eq!(fields(&again), ["plan"]);
        // What was made is found by the second request at once; what was not may yet be, until the doubt is over.
        fixture.with(|state| assert_eq!(state.plan == "starter", made));
        fixture.pass(UNANSWERED_DOUBT);
        fixture.reconcile().await;
        assert_eq!(fixture.charged(), usize::from(made));
        if made {
            assert_eq!(fixture.only().status, SubscriptionStatus::Active);
            fixture.with(|state| {
                assert_eq!(state.plan, "starter");
                let end = world_end(state);
                assert_eq!(
                    end,
                    Some(time::macros::date!(2026 - 04 - 10)),
                    "one period for one payment"
                );
            });
        } else {
            fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        }
        assert_eq!(fixture.calls("subscribe"), if made { 1 } else { 2 });
    }
}

fn world_end(state: &super::fakes::State) -> Option<time::Date> {
    let row = state.rows.values().next().unwrap();
    row.current_period_end.map(time::OffsetDateTime::date)
}

#[tokio::test]
async fn what_lands_late_at_the_gateway_is_removed_there() {
    let fixture = Fixture::new();
    fixture.injected_fault("subscribe", InjectedFault::Before(broken()));
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    let attempt = fixture.with(|state| state.rows.values().next().unwrap().id);
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    fixture.with(|state| {
        let late = GatewaySubscription {
            id: "sub_late".into(),
            ..state.remote[0].1.clone()
        };
        state.remote.push((attempt, late));
    });
    assert_eq!(fixture.charged(), 2);
    fixture.pass(Duration::hours(1));
    fixture.reconcile().await;
    assert_eq!(fixture.charged(), 1);
    assert_eq!(fixture.only().gateway_subscription_id.as_deref(), Some("sub_1"));
}

#[tokio::test]
async fn a_crash_behind_the_gateways_answer_is_found_by_whoever_comes_next() {
    for by_worker in [true, false] {
        let fixture = Fixture::new();
        // The reservation is written, the completion is not.
        fixture.with(|state| state.writes_left = Some(1));
        let error = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        assert!(
            matches!(error, BillingError::Store(StoreError::Unavailable(_))),
            "{error:?}"
        );
        fixture.with(|state| {
            state.writes_left = None;
            assert_eq!(
                (state.plan.as_str(), state.events.len(), state.rows.len()),
                ("free", 0, 1)
            );
        });
        assert_eq!(fixture.charged(), 1);
        if by_worker {
            fixture.reconcile().await;
            fixture.with(|state| assert_eq!(state.plan, "free", "a request that is fast is left alone"));
            fixture.pass(INTENT_CHECK_PAUSE);
            fixture.reconcile().await;
        } else {
            let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
            assert_eq!(fields(&again), ["plan"]);
        }
        assert_eq!(
            (fixture.only().status, fixture.charged()),
            (SubscriptionStatus::Pending, 1)
        );
        fixture.with(|state| assert_eq!((state.plan.as_str(), state.events.len()), ("starter", 2)));
    }
}

/// A worker looks while the request is slow: the gateway has made it, so that both record the same, once.
#[tokio::test]
async fn a_slow_request_and_the_worker_that_is_faster_agree() {
    let fixture = Fixture::new();
    fixture.with(|state| state.writes_left = Some(1));
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    let attempt = fixture.with(|state| {
        state.writes_left = None;
        state.rows.values().next().unwrap().clone()
    });
    fixture.pass(INTENT_CHECK_PAUSE);
    fixture.reconcile().await;
    let made = fixture.with(|state| state.remote[0].1.clone());
    let core = fixture.billing().core;
    let completed = core.complete(&attempt, &made, None, NOW).await.unwrap();
    assert_eq!(completed, Some(fixture.only()));
    fixture.with(|state| assert_eq!(state.events.len(), 2, "told once"));
}

/// What is not at the gateway may be under way until the lease is over.
#[tokio::test]
async fn an_attempt_under_way_is_left_alone_until_its_lease_is_over() {
    let fixture = Fixture::new();
    fixture.with(|state| state.writes_left = Some(1));
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    fixture.with(|state| {
        state.writes_left = None;
        state.remote.clear();
    });
    for _ in 0..5 {
        fixture.pass(INTENT_CHECK_PAUSE);
        fixture.reconcile().await;
        let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        assert_eq!(fields(&again), ["plan"]);
        fixture.with(|state| assert!(state.rows.values().all(|row| row.status.is_live())));
    }
    fixture.pass(INTENT_CHECK_PAUSE);
    fixture.reconcile().await;
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    assert_eq!(fixture.charged(), 1);
}

/// The gateway is down when what was left unfinished has to be settled first: its fault, not the store's.
#[tokio::test]
async fn a_gateway_that_is_down_during_reconciliation_is_the_gateways_fault() {
    let fixture = Fixture::new();
    fixture.injected_fault("subscribe", InjectedFault::After(broken()));
    fixture.injected_fault("find", InjectedFault::Before(broken()));
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    fixture.injected_fault("find", InjectedFault::Before(PaymentGatewayError::Refused(vec![])));
    let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    assert!(matches!(again, BillingError::Gateway(_)), "{again:?}");
    fixture.injected_fault("find", InjectedFault::Before(lost()));
    let by_worker = fixture.reconciler().reconcile_next().await.unwrap_err();
    assert!(matches!(by_worker, ReconcileError::Gateway(_)), "{by_worker:?}");
    // Without a gateway the worker has nothing to complain of.
    fixture.pass(INTENT_CHECK_PAUSE);
    fixture.injected_fault("find", InjectedFault::Before(PaymentGatewayError::NotConfigured));
    assert!(fixture.reconciler().reconcile_next().await.unwrap());
}

/// The payer's name stands on every slip: without the account's own nothing is registered.
#[tokio::test]
async fn without_the_accounts_name_nobody_is_registered() {
    let fixture = Fixture::new();
    fixture.with(|state| state.reads_fail = true);
    let error = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    assert!(
        matches!(error, BillingError::Store(StoreError::Unavailable(_))),
        "{error:?}"
    );
    fixture.with(|state| assert!(state.calls.is_empty() && state.rows.is_empty()));
}

#[tokio::test]
async fn of_many_at_once_one_subscribes() {
    let fixture = Fixture::new();
    let billing = fixture.billing();
    let tenant = tenant();
    let all = (0..20).map(|_| billing.subscribe(&tenant, input("PIX")));
    let results = futures_util::future::join_all(all).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!(fields(error), ["plan"]);
    }
    assert_eq!(
        (fixture.calls("customer"), fixture.calls("subscribe"), fixture.charged()),
        (1, 1, 1)
    );
    assert_eq!(fixture.only().created_at, NOW);
}
