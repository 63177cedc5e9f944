//! Subscribing: every billing type, gateway and store failures, and concurrent requests.

use serde_json::{Value, json};
use time::Duration;

use super::fixture::{Fixture, NOW, input, tenant};
use crate::billing::in_memory::{InMemoryBillingAccount, InjectedFault};
use crate::billing::*;
use crate::shared::{Event, FieldErrors, StoreError, WebhookKind, timestamp};

fn fields(error: &BillingError) -> Vec<String> {
    match error {
        BillingError::Invalid(FieldErrors(fields)) => fields.keys().cloned().collect(),
        other => panic!("{other:?}"),
    }
}

fn unanswered() -> PaymentGatewayError {
    PaymentGatewayError::Unanswered("time-out".into())
}

fn failed() -> PaymentGatewayError {
    PaymentGatewayError::Failed("HTTP 500".into())
}

#[tokio::test]
async fn subscribe_by_card_starts_the_period_at_once() {
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
        let row = fixture.only_subscription();
        assert_eq!(
            (row.status, row.current_period_end.is_some()),
            (status, period),
            "{billing_type}"
        );
        assert_eq!(row.gateway_subscription_id.as_deref(), Some("sub_1"));
        assert_eq!(row.pending, None);
        assert_eq!(done.payment_data.payment.unwrap().id, "pay_1");
        fixture.with(|account| {
            assert_eq!(
                (account.plan.as_str(), account.payments.len(), account.events.len()),
                ("starter", 1, 2)
            );
            assert_eq!(
                account.payments[0].credited, period,
                "the first payment pays for the card's period"
            );
        });
    }
}

#[tokio::test]
async fn subscribe_with_invalid_input_makes_no_gateway_call() {
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
    assert!(fixture.gateway().calls.is_empty());
    fixture.with(|account| assert!(account.subscriptions.is_empty()));
}

#[tokio::test]
async fn subscribe_refused_by_gateway_stores_nothing() {
    let refusal = PaymentGatewayError::Refused(vec![Description {
        code: "invalid_creditCard".into(),
        description: "Transação não autorizada.".into(),
    }]);
    for call in ["customer", "subscribe"] {
        for error in [
            refusal.clone(),
            PaymentGatewayError::NotDone("refused".into()),
            PaymentGatewayError::NotConfigured,
        ] {
            let fixture = Fixture::new();
            fixture.inject_fault(call, InjectedFault::Before(error.clone()));
            let result = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
            assert_eq!(
                matches!(result, BillingError::Refused(_)),
                error == refusal,
                "{result:?}"
            );
            fixture.with(|account| {
                assert!(account.subscriptions.is_empty() && account.events.is_empty() && account.plan == "free")
            });
            fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn changed_subscription_is_published_unless_no_published_value_changed() {
    let fixture = Fixture::new();
    fixture
        .billing()
        .subscribe(&tenant(), input("CREDIT_CARD"))
        .await
        .unwrap();
    let subscription = fixture.only_subscription();
    let published = PublishedSubscription::from(&subscription);
    let item = |before: &PublishedSubscription, after: &Subscription| match changed_event(before, after) {
        Some(Event::Webhook(batch)) => {
            assert_eq!(batch.kind, WebhookKind::SubscriptionChanged);
            batch.items.into_iter().next()
        }
        _ => None,
    };
    let mut other = subscription.clone();
    other.billing_email = Some("outra@example.com".into());
    assert_eq!(item(&published, &other), None);
    let pending = PublishedSubscription {
        status: SubscriptionStatus::Pending,
        ..published.clone()
    };
    assert_eq!(
        item(&pending, &subscription),
        Some(
            json!({ "id": subscription.id, "plan": "starter", "cycle": "MONTHLY", "status": "active",
                     "previous_status": "pending", "value": subscription.value.0,
                     "current_period_end": subscription.current_period_end.map(timestamp::format) })
        )
    );
    let attempt = PublishedSubscription {
        is_attempt: true,
        ..published
    };
    let first = item(&attempt, &subscription).unwrap();
    assert_eq!(first["previous_status"], Value::Null);
}

#[tokio::test]
async fn subscribe_with_lost_response_finds_the_subscription() {
    for error in [unanswered(), failed()] {
        let fixture = Fixture::new();
        fixture.inject_fault("subscribe", InjectedFault::After(error));
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        assert_eq!((fixture.charged_count(), fixture.call_count("subscribe")), (1, 1));
        assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Pending);
    }
}

#[tokio::test]
async fn subscribe_after_gateway_error_can_be_repeated_at_once() {
    let fixture = Fixture::new();
    fixture.inject_fault("subscribe", InjectedFault::Before(failed()));
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
    assert_eq!(fixture.charged_count(), 1);
    // The abandoned attempt is deleted after `ABANDONED_FOR`.
    fixture.advance_clock(Duration::days(2));
    fixture.reconcile().await;
    fixture.with(|account| assert_eq!(account.subscriptions.len(), 1));
}

#[tokio::test]
async fn next_subscribe_resolves_attempt_of_unknown_outcome() {
    for created in [true, false] {
        let fixture = Fixture::new();
        let injected_fault = if created {
            InjectedFault::After(failed())
        } else {
            InjectedFault::Before(failed())
        };
        fixture.inject_fault("subscribe", injected_fault);
        fixture.inject_fault("find", InjectedFault::Before(failed()));
        fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        let again = fixture.billing().subscribe(&tenant(), input("PIX")).await;
        assert_eq!(again.is_err(), created, "{again:?}");
        assert_eq!(
            (fixture.charged_count(), fixture.only_subscription().status),
            (1, SubscriptionStatus::Pending)
        );
    }
}

/// The response is lost and the lookup fails: the outcome stays unknown until the next request reaches the gateway.
#[tokio::test]
async fn subscribe_is_refused_while_an_attempt_is_unresolved() {
    for created in [true, false] {
        let fixture = Fixture::new();
        let injected_fault = if created {
            InjectedFault::After(unanswered())
        } else {
            InjectedFault::Before(unanswered())
        };
        fixture.inject_fault("subscribe", injected_fault);
        fixture.inject_fault("find", InjectedFault::Before(unanswered()));
        let error = fixture
            .billing()
            .subscribe(&tenant(), input("CREDIT_CARD"))
            .await
            .unwrap_err();
        assert!(matches!(error, BillingError::Gateway(_)), "{error:?}");
        fixture.with(|account| assert_eq!(account.plan, "free", "no plan while the outcome is unknown"));
        let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        assert_eq!(fields(&again), ["plan"]);
        // The second request finds a created subscription at once. A missing one may still be created until the lease
        // expires.
        fixture.with(|account| assert_eq!(account.plan == "starter", created));
        fixture.advance_clock(UNANSWERED_LEASE);
        fixture.reconcile().await;
        assert_eq!(fixture.charged_count(), usize::from(created));
        if created {
            assert_eq!(fixture.only_subscription().status, SubscriptionStatus::Active);
            fixture.with(|account| {
                assert_eq!(account.plan, "starter");
                let end = period_end(account);
                assert_eq!(
                    end,
                    Some(time::macros::date!(2026 - 04 - 10)),
                    "one period for one payment"
                );
            });
        } else {
            fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
        }
        assert_eq!(fixture.call_count("subscribe"), if created { 1 } else { 2 });
    }
}

fn period_end(account: &InMemoryBillingAccount) -> Option<time::Date> {
    let row = account.subscriptions.values().next().unwrap();
    row.current_period_end.map(time::OffsetDateTime::date)
}

#[tokio::test]
async fn late_gateway_subscription_of_abandoned_attempt_is_cancelled() {
    let fixture = Fixture::new();
    fixture.inject_fault("subscribe", InjectedFault::Before(failed()));
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    let attempt = fixture.with(|account| account.subscriptions.values().next().unwrap().id);
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    let late = GatewaySubscription {
        id: "sub_late".into(),
        ..fixture.gateway().subscriptions[0].1.clone()
    };
    fixture.gateway().subscriptions.push((attempt, late));
    assert_eq!(fixture.charged_count(), 2);
    fixture.advance_clock(Duration::hours(1));
    fixture.reconcile().await;
    assert_eq!(fixture.charged_count(), 1);
    assert_eq!(
        fixture.only_subscription().gateway_subscription_id.as_deref(),
        Some("sub_1")
    );
}

#[tokio::test]
async fn subscribe_attempt_completes_after_crash() {
    for by_worker in [true, false] {
        let fixture = Fixture::new();
        // The reservation is written, the completion is not.
        fixture.tables().writes_left = Some(1);
        let error = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        assert!(
            matches!(error, BillingError::Store(StoreError::Unavailable(_))),
            "{error:?}"
        );
        fixture.tables().writes_left = None;
        fixture.with(|account| {
            assert_eq!(
                (account.plan.as_str(), account.events.len(), account.subscriptions.len()),
                ("free", 0, 1)
            );
        });
        assert_eq!(fixture.charged_count(), 1);
        if by_worker {
            fixture.reconcile().await;
            fixture.with(|account| assert_eq!(account.plan, "free", "no check before `INTENT_CHECK_PAUSE`"));
            fixture.advance_clock(INTENT_CHECK_PAUSE);
            fixture.reconcile().await;
        } else {
            let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
            assert_eq!(fields(&again), ["plan"]);
        }
        assert_eq!(
            (fixture.only_subscription().status, fixture.charged_count()),
            (SubscriptionStatus::Pending, 1)
        );
        fixture.with(|account| assert_eq!((account.plan.as_str(), account.events.len()), ("starter", 2)));
    }
}

/// The reconciler completes the attempt of a slow request. The request then returns the same subscription, without a
/// second notification.
#[tokio::test]
async fn slow_subscribe_and_reconciler_complete_the_attempt_once() {
    let fixture = Fixture::new();
    fixture.tables().writes_left = Some(1);
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    fixture.tables().writes_left = None;
    let attempt = fixture.with(|account| account.subscriptions.values().next().unwrap().clone());
    fixture.advance_clock(INTENT_CHECK_PAUSE);
    fixture.reconcile().await;
    let created = fixture.gateway().subscriptions[0].1.clone();
    let core = fixture.billing().core;
    let completed = core.complete(&attempt, &created, None, NOW).await.unwrap();
    assert_eq!(completed, Some(fixture.only_subscription()));
    fixture.with(|account| assert_eq!(account.events.len(), 2, "one audit entry and one notification"));
}

/// The gateway may still create the subscription until the lease expires.
#[tokio::test]
async fn attempt_in_progress_is_untouched_until_lease_expires() {
    let fixture = Fixture::new();
    fixture.tables().writes_left = Some(1);
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    fixture.tables().writes_left = None;
    fixture.gateway().subscriptions.clear();
    for _ in 0..5 {
        fixture.advance_clock(INTENT_CHECK_PAUSE);
        fixture.reconcile().await;
        let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
        assert_eq!(fields(&again), ["plan"]);
        fixture.with(|account| assert!(account.subscriptions.values().all(|row| row.status.is_live())));
    }
    fixture.advance_clock(INTENT_CHECK_PAUSE);
    fixture.reconcile().await;
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap();
    assert_eq!(fixture.charged_count(), 1);
}

/// A gateway failure during reconciliation is reported as `Gateway`, not as `Refused` or `Store`.
#[tokio::test]
async fn attempt_reconciliation_reports_gateway_failure() {
    let fixture = Fixture::new();
    fixture.inject_fault("subscribe", InjectedFault::After(failed()));
    fixture.inject_fault("find", InjectedFault::Before(failed()));
    fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    fixture.inject_fault("find", InjectedFault::Before(PaymentGatewayError::Refused(vec![])));
    let again = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    assert!(matches!(again, BillingError::Gateway(_)), "{again:?}");
    fixture.inject_fault("find", InjectedFault::Before(unanswered()));
    let by_worker = fixture.reconciler().reconcile_next().await.unwrap_err();
    assert!(matches!(by_worker, ReconcileError::Gateway(_)), "{by_worker:?}");
    // Without a configured gateway the worker reports no error.
    fixture.advance_clock(INTENT_CHECK_PAUSE);
    fixture.inject_fault("find", InjectedFault::Before(PaymentGatewayError::NotConfigured));
    assert!(fixture.reconciler().reconcile_next().await.unwrap());
}

/// The payer's name is printed on every boleto, so no customer is registered without the account's name.
#[tokio::test]
async fn subscribe_without_account_name_makes_no_gateway_call() {
    let fixture = Fixture::new();
    fixture.tables().overview_fails = true;
    let error = fixture.billing().subscribe(&tenant(), input("PIX")).await.unwrap_err();
    assert!(
        matches!(error, BillingError::Store(StoreError::Unavailable(_))),
        "{error:?}"
    );
    assert!(fixture.gateway().calls.is_empty());
    fixture.with(|account| assert!(account.subscriptions.is_empty()));
}

#[tokio::test]
async fn concurrent_subscribes_create_one_subscription() {
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
        (
            fixture.call_count("customer"),
            fixture.call_count("subscribe"),
            fixture.charged_count()
        ),
        (1, 1, 1)
    );
    assert_eq!(fixture.only_subscription().created_at, NOW);
}
