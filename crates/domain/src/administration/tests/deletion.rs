//! Tests of account deletion.

use super::*;
use crate::shared::{RowOutcome, WorkOutcome};

fn cancellation(gateway_id: Option<&str>, until: OffsetDateTime) -> GatewayCancellation {
    GatewayCancellation {
        subscription_id: SubscriptionId(Uuid::from_u128(5)),
        gateway_subscription_id: gateway_id.map(str::to_owned),
        until,
    }
}

fn at_gateway(id: &str) -> GatewaySubscription {
    GatewaySubscription {
        id: id.into(),
        customer: "cus".into(),
        value: None,
        cycle: Some(Cycle::Monthly),
        deleted: false,
    }
}

/// A gateway cancellation stays queued until the gateway has confirmed it.
#[tokio::test]
async fn gateway_cancellation_is_deleted_after_confirmation() {
    let unanswered = || PaymentGatewayError::Unanswered("time-out".into());
    let (later, past) = (NOW + time::Duration::HOUR, NOW);
    type Found = Result<Option<&'static str>, PaymentGatewayError>;
    type CancelResult = Result<(), PaymentGatewayError>;
    type Case = (Option<&'static str>, OffsetDateTime, Found, CancelResult, bool, bool);
    let cases: Vec<Case> = vec![
        (Some("sub_1"), past, Ok(None), Ok(()), true, true),
        (
            Some("sub_1"),
            past,
            Ok(None),
            Err(PaymentGatewayError::Missing),
            true,
            true,
        ),
        (Some("sub_1"), past, Ok(None), Err(unanswered()), false, false),
        (
            Some("sub_1"),
            past,
            Ok(None),
            Err(PaymentGatewayError::NotConfigured),
            false,
            true,
        ),
        (None, later, Ok(None), Ok(()), false, true),
        (None, past, Ok(None), Ok(()), true, true),
        (None, later, Ok(Some("sub_2")), Ok(()), true, true),
        (None, later, Ok(Some("sub_2")), Err(unanswered()), false, false),
        (None, later, Err(unanswered()), Ok(()), false, false),
    ];
    for (id, until, found, cancel_result, is_deleted, succeeds) in cases {
        let case = format!("{id:?} {until} {found:?} {cancel_result:?}");
        let mut store = MockDeletionStore::new();
        let due = cancellation(id, until);
        store
            .expect_claim_cancellation()
            .returning(move |_| Ok(Some(due.clone())));
        store
            .expect_delete_cancellation()
            .times(usize::from(is_deleted))
            .returning(|_| Ok(()));
        let mut gateway = MockPaymentGateway::new();
        gateway
            .expect_find()
            .returning(move |_| found.clone().map(|id| id.map(at_gateway)));
        gateway.expect_cancel().returning(move |_| cancel_result.clone());
        let media = Arc::new(MockMediaStore::new());
        let deletions = Deletions::new(Arc::new(store), media, Arc::new(gateway), no_report(), clock());
        match deletions.cancel_next().await {
            Ok(_) => assert!(succeeds, "{case}"),
            Err(error) => assert!(
                !succeeds && matches!(error, AdministrationError::Gateway(_)),
                "{case}: {error:?}"
            ),
        }
    }
}

/// Expects that no error is swallowed.
fn no_report() -> Arc<MockErrorReport> {
    Arc::new(MockErrorReport::new())
}

#[tokio::test]
async fn account_deletion_completes_despite_gateway_failure() {
    let mut store = MockDeletionStore::new();
    store.expect_begin().returning(|_, _, until, entry| {
        assert_eq!(until, NOW + CANCELLATION_WATCH_TIME);
        assert_eq!(described(&entry), "delete account, account true");
        Ok(RowOutcome::Done)
    });
    store
        .expect_cancellations()
        .returning(|_| Ok(vec![cancellation(Some("sub_1"), NOW)]));
    let batches_left = Mutex::new(3);
    store.expect_purge().times(4).returning(move |_, _| {
        let mut batches_left = batches_left.lock().unwrap();
        *batches_left -= 1;
        Ok(WorkOutcome::of(*batches_left >= 0))
    });
    store.expect_end().times(1).returning(|_| Ok(()));
    let mut gateway = MockPaymentGateway::new();
    let unanswered = PaymentGatewayError::Unanswered("time-out".into());
    gateway
        .expect_cancel()
        .times(1)
        .returning(move |_| Err(unanswered.clone()));
    let mut media = MockMediaStore::new();
    media.expect_delete_account().times(1).returning(|_| Ok(()));
    let mut report = MockErrorReport::new();
    report
        .expect_swallowed()
        .times(1)
        .withf(|step, error| {
            *step == SideStep::CancelSubscription
                && error.to_string()
                    == AdministrationError::from(PaymentGatewayError::Unanswered("time-out".into())).to_string()
        })
        .returning(|_, _| ());
    let (store, media, gateway) = (Arc::new(store), Arc::new(media), Arc::new(gateway));
    let deletions = Deletions::new(store, media, gateway, Arc::new(report), clock());
    deletions.delete(&admin(false), ACCOUNT).await.unwrap();
}

#[tokio::test]
async fn account_deletion_stays_open_until_files_are_deleted() {
    let failed = || MediaStoreError::Failed("down".into());
    for (media_error, ends) in [(failed(), false), (MediaStoreError::NotConfigured, true)] {
        let mut store = MockDeletionStore::new();
        store.expect_claim().returning(|_| Ok(Some(ACCOUNT)));
        store.expect_purge().returning(|_, _| Ok(WorkOutcome::Done));
        store.expect_end().times(usize::from(ends)).returning(|_| Ok(()));
        let mut media = MockMediaStore::new();
        let error = Mutex::new(Some(media_error));
        media
            .expect_delete_account()
            .returning(move |_| Err(error.lock().unwrap().take().unwrap()));
        let gateway = Arc::new(MockPaymentGateway::new());
        let deletions = Deletions::new(Arc::new(store), Arc::new(media), gateway, no_report(), clock());
        assert_eq!(deletions.finish_next().await.is_ok(), ends);
    }
    let mut store = MockDeletionStore::new();
    store.expect_begin().returning(|_, _, _, _| Ok(RowOutcome::Missing));
    let (media, gateway) = (Arc::new(MockMediaStore::new()), Arc::new(MockPaymentGateway::new()));
    let deletions = Deletions::new(Arc::new(store), media, gateway, no_report(), clock());
    assert!(matches!(
        deletions.delete(&admin(false), ACCOUNT).await,
        Err(AdministrationError::NotFound)
    ));
}
