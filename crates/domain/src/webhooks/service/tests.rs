//! Tests of the webhook use cases with mocked ports.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::ExposeSecret as _;
use serde_json::json;
use time::Duration;
use uuid::Uuid;

use crate::egress::AllowList;
use crate::shared::{
    AccountId, Event, InsertOutcome, MockCipher, MockClock, MockIds, MockSecrets, Role, RowOutcome, Sealed, Tenant,
    UpdateOutcome, UserId, WebhookEventId, WebhookId, WebhookLogId,
};
use crate::webhooks::tests::NOW;
use crate::webhooks::*;

fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(2)), UserId(Uuid::from_u128(3)), Role::Member)
}

fn webhooks(store: MockWebhookStore) -> Webhooks {
    webhooks_with_logs(store, MockWebhookLogStore::new())
}

fn webhooks_with_logs(store: MockWebhookStore, logs: MockWebhookLogStore) -> Webhooks {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(NOW);
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(1));
    let mut secrets = MockSecrets::new();
    secrets
        .expect_token()
        .withf(|bytes| *bytes == 32)
        .returning(|bytes| URL_SAFE_NO_PAD.encode(vec![0xab; bytes]).into());
    let mut cipher = MockCipher::new();
    cipher
        .expect_seal()
        .returning(|secret, _| Sealed(format!("sealed {}", secret.expose_secret()).into_bytes()));
    Webhooks {
        store: Arc::new(store),
        logs: Arc::new(logs),
        clock: Arc::new(clock),
        ids: Arc::new(ids),
        secrets: Arc::new(secrets),
        cipher: Arc::new(cipher),
        allow: AllowList::default(),
        plain_http: false,
    }
}

fn stored() -> StoredWebhook {
    StoredWebhook {
        webhook: Webhook {
            id: WebhookId(Uuid::from_u128(1)),
            name: "n".into(),
            url: Some("https://e.example".into()),
            events: vec!["*".into()],
            direction: Direction::Outbound,
            is_active: true,
            secret_hint: "beef".into(),
            disabled_at: None,
            disabled_reason: None,
            created_at: NOW - Duration::DAY,
            updated_at: NOW - Duration::DAY,
        },
        secrets: SealedSecrets {
            current: Sealed(b"old".to_vec()),
            previous: None,
        },
        version: 3,
    }
}

fn input() -> WebhookInput {
    WebhookInput {
        name: Some("CI".into()),
        url: Some(Some("https://e.example".into())),
        events: Some(vec!["*".into()]),
        ..WebhookInput::default()
    }
}

fn store_with(found: StoredWebhook) -> MockWebhookStore {
    let mut store = MockWebhookStore::new();
    store
        .expect_find()
        .returning(move |_, id| Ok((id == found.webhook.id).then(|| found.clone())));
    store
}

#[tokio::test]
async fn webhook_secret_is_shown_once_and_stored_sealed() {
    let mut store = MockWebhookStore::new();
    store.expect_insert().times(1).returning(|_, stored, at_most, events| {
        let [Event::Audit(audit), Event::Notification(notice)] = events else {
            panic!("{events:?}")
        };
        assert_eq!(notice.title, format!("Webhook created: {}", stored.webhook.name));
        assert!(notice.message.starts_with("ana@example.com created the webhook"));
        assert_eq!(
            (audit.action.as_str(), audit.entity_type.as_str(), at_most),
            ("create", "webhook", 200)
        );
        assert!(!format!("{events:?}").contains("abab"));
        assert!(stored.secrets.current.0.starts_with(b"sealed abab") && stored.secrets.previous.is_none());
        Ok(InsertOutcome::Done)
    });
    let created = webhooks(store).create(&tenant(), input()).await.unwrap();
    assert_eq!(created.secret.expose_secret(), "ab".repeat(32));
    assert_eq!(created.signing_secret.expose_secret().len(), "whsec_".len() + 44);
    assert_eq!(created.webhook.secret_hint, "abab");
    assert!(!format!("{created:?}").contains(&"ab".repeat(32)));
    let mut full = MockWebhookStore::new();
    full.expect_insert().returning(|_, _, _, _| Ok(InsertOutcome::Full));
    let refused = webhooks(full).create(&tenant(), input()).await;
    assert!(matches!(refused, Err(WebhookError::Invalid(errors)) if errors.0.contains_key("webhooks")));
}

#[tokio::test]
async fn rotated_secret_signs_for_another_day() {
    let mut store = store_with(stored());
    store.expect_update().times(1).returning(|_, changed, events| {
        assert_eq!(
            changed.secrets.previous,
            Some((Sealed(b"old".to_vec()), NOW + Duration::DAY))
        );
        assert_eq!(
            (changed.version, changed.webhook.updated_at, events.len()),
            (stored().version, NOW, 1)
        );
        Ok(UpdateOutcome::Done(()))
    });
    let created = webhooks(store)
        .rotate_secret(&tenant(), WebhookId(Uuid::from_u128(1)))
        .await
        .unwrap();
    assert_eq!(created.webhook.secret_hint, "abab");
    let missing = webhooks(store_with(stored()))
        .rotate_secret(&tenant(), WebhookId(Uuid::nil()))
        .await;
    assert!(matches!(missing, Err(WebhookError::NotFound)));
}

#[tokio::test]
async fn webhook_reactivation_clears_disabled_reason_and_retries() {
    let mut off = stored();
    off.webhook.is_active = false;
    off.webhook.disabled_at = Some(NOW);
    off.webhook.disabled_reason = Some(DisabledReason::Failing);
    let mut store = store_with(off.clone());
    let mut stale_updates = 2;
    store.expect_update().times(3).returning(move |_, changed, events| {
        assert!(changed.webhook.is_active && changed.webhook.disabled_at.is_none());
        let [Event::Audit(audit)] = events else {
            panic!("{events:?}")
        };
        assert_eq!(audit.changes, Some(json!({ "is_active": true })));
        stale_updates -= 1;
        Ok(if stale_updates >= 0 {
            UpdateOutcome::Stale
        } else {
            UpdateOutcome::Done(())
        })
    });
    let on = WebhookInput {
        is_active: Some(true),
        ..WebhookInput::default()
    };
    let id = off.webhook.id;
    let changed = webhooks(store).update(&tenant(), id, on).await.unwrap();
    assert_eq!(changed.disabled_reason, None);
    // A change without `is_active` leaves `disabled_reason` unchanged.
    let mut store = store_with(off);
    store.expect_update().returning(|_, changed, _| {
        assert!(!changed.webhook.is_active && changed.webhook.disabled_reason.is_some());
        Ok(UpdateOutcome::Done(()))
    });
    let renamed = WebhookInput {
        name: Some("m".into()),
        ..WebhookInput::default()
    };
    webhooks(store).update(&tenant(), id, renamed).await.unwrap();
    let mut busy = store_with(stored());
    busy.expect_update().returning(|_, _, _| Ok(UpdateOutcome::Stale));
    let contended = webhooks(busy).update(&tenant(), id, WebhookInput::default()).await;
    assert!(matches!(contended, Err(WebhookError::Conflict(_))));
}

#[tokio::test]
async fn invalid_input_takes_precedence_over_missing_webhook() {
    let wrong = WebhookInput {
        events: Some(vec![]),
        ..WebhookInput::default()
    };
    let missing = WebhookId(Uuid::nil());
    let refused = webhooks(store_with(stored())).update(&tenant(), missing, wrong).await;
    assert!(matches!(refused, Err(WebhookError::Invalid(_))));
    let refused = webhooks(store_with(stored()))
        .update(&tenant(), missing, WebhookInput::default())
        .await;
    assert!(matches!(refused, Err(WebhookError::NotFound)));
    for since in [None, Some(NOW + Duration::SECOND)] {
        let refused = webhooks(store_with(stored())).recover(&tenant(), missing, since).await;
        assert!(matches!(refused, Err(WebhookError::Invalid(_))));
    }
}

#[tokio::test]
async fn delivery_requires_an_active_outbound_endpoint() {
    let id = WebhookId(Uuid::from_u128(1));
    let mut inbound = stored();
    inbound.webhook.direction = Direction::Inbound;
    let mut off = stored();
    off.webhook.is_active = false;
    for (webhook, refusal) in [
        (inbound, RedeliveryRefusal::Inbound),
        (off, RedeliveryRefusal::Inactive),
    ] {
        let tested = webhooks(store_with(webhook.clone())).test(&tenant(), id).await;
        assert!(matches!(tested, Err(WebhookError::Refused(reason)) if reason == refusal));
        let recovered = webhooks(store_with(webhook)).recover(&tenant(), id, Some(NOW)).await;
        assert!(matches!(recovered, Err(WebhookError::Refused(reason)) if reason == refusal));
    }
    let mut logs = MockWebhookLogStore::new();
    logs.expect_ping().times(1).returning(|_, _, body| {
        assert_eq!(body.kind, "test.ping");
        Ok(RowOutcome::Done)
    });
    assert!(
        webhooks_with_logs(store_with(stored()), logs)
            .test(&tenant(), id)
            .await
            .is_ok()
    );
    let mut logs = MockWebhookLogStore::new();
    logs.expect_recover()
        .withf(|_, _, since, slice| (*since, *slice) == (NOW, 5000))
        .times(1)
        .returning(|_, _, _, _| Ok(10_017));
    let service = webhooks_with_logs(store_with(stored()), logs);
    assert_eq!(service.recover(&tenant(), id, Some(NOW)).await.unwrap(), 10_017);
}

#[tokio::test]
async fn redelivery_requires_a_stored_event_and_endpoint() {
    let log = WebhookLogId(Uuid::from_u128(9));
    let event = WebhookEventId(Uuid::from_u128(8));
    for (endpoint, event_id, event_stored, expected) in [
        (1, Some(event), true, None),
        (1, Some(event), false, Some(RedeliveryRefusal::EventPurged)),
        (1, None, true, Some(RedeliveryRefusal::Inbound)),
        (7, Some(event), true, Some(RedeliveryRefusal::Deleted)),
    ] {
        let mut logs = MockWebhookLogStore::new();
        logs.expect_logged().returning(move |_, _| {
            Ok(Some(LoggedDelivery {
                endpoint_id: WebhookId(Uuid::from_u128(endpoint)),
                event_id,
            }))
        });
        logs.expect_redeliver()
            .returning(move |_, _, _| Ok(RowOutcome::of(event_stored)));
        match (
            webhooks_with_logs(store_with(stored()), logs)
                .redeliver(&tenant(), log)
                .await,
            expected,
        ) {
            (Ok(redelivered), None) => assert_eq!(redelivered, event),
            (Err(WebhookError::Refused(reason)), Some(refusal)) => assert_eq!(reason, refusal),
            (outcome, expected) => panic!("{outcome:?} {expected:?}"),
        }
    }
    let mut logs = MockWebhookLogStore::new();
    logs.expect_logged().returning(|_, _| Ok(None));
    let missing = webhooks_with_logs(MockWebhookStore::new(), logs)
        .redeliver(&tenant(), log)
        .await;
    assert!(matches!(missing, Err(WebhookError::NotFound)));
}
