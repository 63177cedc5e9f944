//! Tests of the use cases of verification, with mocked ports.

use std::sync::Mutex;

use async_trait::async_trait;
use time::macros::datetime;
use uuid::Uuid;

use super::super::{
    CanSend, CheckName, CheckState, GraphError, HealthReport, MockVerificationGateway, MockVerificationStore,
    NumberActivity, NumberFacts, NumberPage, ReadNumber, VerificationRecord, VerificationState,
};
use super::*;
use crate::shared::{MockCipher, MockClock, Role, UpdateOutcome, UserId};
use crate::whatsapp::MockProfileStore;

const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(9));
const PROFILE: ProfileId = ProfileId(Uuid::from_u128(1));

fn pending() -> StoredProfile {
    let VerificationRecord { verification, history } = VerificationRecord::new(NOW);
    let mut stored = StoredProfile::for_tests(PROFILE, NOW);
    stored.profile.verification = verification;
    stored.history = history;
    stored
}

fn unavailable<T>() -> Result<T, GraphError> {
    Err(GraphError::Unavailable("HTTP 500".into()))
}

fn number(status: Option<&str>) -> ReadNumber {
    ReadNumber {
        id: "1065".into(),
        facts: NumberFacts {
            status: status.map(str::to_owned),
            ..NumberFacts::default()
        },
    }
}

/// A gateway that accepts the profile's number with this status.
fn accepting(status: Option<&'static str>) -> MockVerificationGateway {
    let mut gateway = MockVerificationGateway::new();
    gateway.expect_number().returning(move |_| Ok(number(status)));
    gateway.expect_business_numbers().returning(|_, after| {
        Ok(match after {
            None => NumberPage {
                ids: vec!["1".into()],
                next: Some("b".into()),
            },
            Some(_) => NumberPage {
                ids: vec!["1065".into()],
                next: None,
            },
        })
    });
    gateway.expect_subscribe().returning(|_| Ok(()));
    gateway.expect_health().returning(|_| unavailable());
    gateway
}

/// A timer whose time never comes.
struct Never;

#[async_trait]
impl Timer for Never {
    async fn sleep(&self, _: Duration) {
        std::future::pending().await
    }
}

fn service(
    stored: Vec<StoredProfile>,
    store: MockVerificationStore,
    gateway: MockVerificationGateway,
) -> Verifications {
    let left = Mutex::new(stored);
    let mut profiles = MockProfileStore::new();
    profiles.expect_find().returning(move |_, _| {
        let mut left = left.lock().unwrap();
        Ok(Some(if left.len() > 1 {
            left.remove(0)
        } else {
            left[0].clone()
        }))
    });
    let mut cipher = MockCipher::new();
    cipher.expect_open().returning(|_, _| Some("EAAG".into()));
    let mut clock = MockClock::new();
    clock.expect_now().return_const(NOW);
    Verifications::new(VerificationPorts {
        profiles: Arc::new(profiles),
        store: Arc::new(store),
        gateway: Arc::new(gateway),
        cipher: Arc::new(cipher),
        clock: Arc::new(clock),
        timer: Arc::new(Never),
    })
}

fn tenant() -> Tenant {
    Tenant::for_tests(ACCOUNT, UserId(Uuid::nil()), Role::Member)
}

fn recording(outcomes: Vec<UpdateOutcome<()>>) -> MockVerificationStore {
    let mut store = MockVerificationStore::new();
    let outcomes = Mutex::new(outcomes);
    store
        .expect_record()
        .returning(move |_, _, _, _| Ok(outcomes.lock().unwrap().remove(0)));
    store
}

#[tokio::test]
async fn accepted_number_becomes_verified_and_is_announced() {
    let mut store = MockVerificationStore::new();
    store
        .expect_record()
        .withf(|_, _, update, events| {
            let [Event::Notification(notice), Event::Webhook(batch)] = events else {
                panic!("{events:?}")
            };
            assert_eq!(notice.title, "WhatsApp number verified: Loja");
            assert_eq!(batch.items[0]["current"], "verified");
            update.credentials_version == 1
        })
        .times(1)
        .returning(|_, _, _, _| Ok(UpdateOutcome::Done(())));
    let service = service(vec![pending()], store, accepting(Some("connected")));
    let profile = service.check_entered(ACCOUNT, PROFILE, None).await.unwrap();
    assert_eq!(profile.verification.state, VerificationState::Verified);
    assert_eq!(profile.number.status.as_deref(), Some("connected"));
}

#[tokio::test]
async fn nothing_is_learned_about_the_number_of_another() {
    let mut gateway = MockVerificationGateway::new();
    gateway.expect_number().returning(|_| Ok(number(Some("connected"))));
    gateway
        .expect_business_numbers()
        .returning(|_, _| Ok(NumberPage::default()));
    let service = service(vec![pending()], recording(vec![UpdateOutcome::Done(())]), gateway);
    let profile = service.check_entered(ACCOUNT, PROFILE, None).await.unwrap();
    assert_eq!(profile.number, NumberFacts::default());
    let failed = profile.verification.failed_check().unwrap();
    assert_eq!(failed.name, CheckName::BusinessAccount);
}

#[tokio::test]
async fn stale_record_is_repeated_without_asking_again() {
    let mut newer = pending();
    newer.verification_version = 2;
    newer.profile.verification.next_check_at = Some(NOW);
    let mut gateway = accepting(None);
    gateway.expect_register().never();
    let store = recording(vec![UpdateOutcome::Stale, UpdateOutcome::Done(())]);
    let service = service(vec![pending(), newer], store, gateway);
    let profile = service.check_entered(ACCOUNT, PROFILE, None).await.unwrap();
    assert_eq!(profile.verification.state, VerificationState::Verified);
    assert_eq!(
        profile.verification.next_check_at,
        Some(NOW),
        "the update waits for a check"
    );
}

#[tokio::test]
async fn answers_about_earlier_credentials_are_dropped() {
    let mut changed = pending();
    changed.credentials_version = 2;
    let store = || recording(vec![UpdateOutcome::Stale]);
    let entered = service(vec![pending(), changed.clone()], store(), accepting(None));
    let profile = entered.check_entered(ACCOUNT, PROFILE, None).await.unwrap();
    assert_eq!(profile.verification.state, VerificationState::Pending);
    let requested = service(vec![pending(), changed], store(), accepting(None));
    let refused = requested.verify(&tenant(), PROFILE, None).await;
    assert!(matches!(refused, Err(ProfileError::Conflict(_))));
}

#[tokio::test]
async fn pin_registers_a_number_once() {
    let mut gateway = accepting(Some("pending"));
    gateway.expect_register().times(1).returning(|_, _| Ok(()));
    let registered = service(vec![pending()], recording(vec![UpdateOutcome::Done(())]), gateway);
    let pin = SecretString::from("123456");
    let profile = registered.verify(&tenant(), PROFILE, Some(&pin)).await.unwrap();
    assert_eq!(profile.verification.state, VerificationState::Verified);
    let unregistered = service(
        vec![pending()],
        recording(vec![UpdateOutcome::Done(())]),
        accepting(Some("pending")),
    );
    let profile = unregistered.verify(&tenant(), PROFILE, None).await.unwrap();
    assert_eq!(
        profile.verification.failed_check().unwrap().name,
        CheckName::Registration
    );
    let refused = unregistered
        .verify(&tenant(), PROFILE, Some(&SecretString::from("12345x")))
        .await;
    assert!(matches!(refused, Err(ProfileError::Invalid(_))));
}

#[tokio::test]
async fn requested_check_that_is_not_answered_changes_nothing() {
    let mut gateway = MockVerificationGateway::new();
    gateway.expect_number().returning(|_| unavailable());
    let service = service(vec![pending()], MockVerificationStore::new(), gateway);
    let Err(ProfileError::Unanswered(checks)) = service.verify(&tenant(), PROFILE, None).await else {
        panic!()
    };
    assert_eq!(checks.len(), CheckName::ALL.len());
    assert_eq!(checks[0].state, CheckState::Unknown);
}

#[tokio::test]
async fn due_profiles_are_checked_without_a_pin() {
    let mut store = recording(vec![UpdateOutcome::Done(()), UpdateOutcome::Missing]);
    let key = ProfileKey {
        account_id: ACCOUNT,
        profile_id: PROFILE,
    };
    store
        .expect_claim_due()
        .times(1)
        .returning(move |_, _| Ok(vec![key, key]));
    let service = service(vec![pending()], store, accepting(Some("connected")));
    assert!(service.check_due(20).await.unwrap());
}

fn activity(health: Option<OffsetDateTime>) -> NumberActivity {
    let report = HealthReport {
        can_send: CanSend::Limited,
        entities: vec![],
    };
    NumberActivity {
        health: health.map(|asked_at| (report, asked_at)),
        last_inbound_at: None,
        last_callback_at: None,
        last_accepted_at: None,
        service_messages: 3,
        now: NOW,
    }
}

#[tokio::test]
async fn health_is_asked_once_a_minute_and_kept_for_outages() {
    let fresh = NOW - Duration::seconds(59);
    let old = NOW - Duration::seconds(60);
    let available = || {
        Ok(HealthReport {
            can_send: CanSend::Available,
            entities: vec![],
        })
    };
    for (known, answers, expected) in [
        (Some(fresh), None, (Some(fresh), false, CanSend::Limited)),
        (Some(old), Some(true), (Some(NOW), false, CanSend::Available)),
        (Some(old), Some(false), (Some(old), true, CanSend::Limited)),
        (None, Some(false), (None, true, CanSend::Unknown)),
    ] {
        let mut store = MockVerificationStore::new();
        store.expect_activity().returning(move |_, _| Ok(Some(activity(known))));
        store
            .expect_record_health()
            .times(usize::from(answers == Some(true)))
            .returning(|_, _, _, _| Ok(()));
        let mut gateway = MockVerificationGateway::new();
        gateway
            .expect_health()
            .times(usize::from(answers.is_some()))
            .returning(move |_| {
                if answers == Some(true) {
                    available()
                } else {
                    unavailable()
                }
            });
        let service = service(vec![pending()], store, gateway);
        let health = service.health(&tenant(), PROFILE).await.unwrap();
        assert_eq!(
            (health.asked_at, health.stale, health.can_send),
            expected,
            "{known:?} {answers:?}"
        );
        assert_eq!(
            (health.service_messages.month.as_str(), health.service_messages.used),
            ("2026-11", 3)
        );
    }
}
