//! Tests of inbound calls with mocked ports.

use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::contacts::{Contacts, MockContactStore, UpsertOutcome};
use crate::ingestion::{Ingestion, IngestionOutcome, IngestionResult, MockIngestionStore};
use crate::shared::{
    AccountId, Cipher, FieldErrors, MetricEventId, MockClock, MockIds, SealContext, Sealed, StoreError, WebhookId,
    WebhookLogId,
};
use crate::webhooks::{
    Direction, InboundCall, InboundCallError, InboundLogEntry, InboundWebhooks, MockInboundStore, SealedSecrets,
    SecretBytes, StoredWebhook, Webhook, sign,
};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const ENDPOINT: WebhookId = WebhookId(Uuid::from_u128(7));
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(9));
const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OLD_SECRET: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A cipher that does not encrypt.
struct PlainCipher;

impl Cipher for PlainCipher {
    fn seal(&self, secret: &SecretString, _: &SealContext) -> Sealed {
        use secrecy::ExposeSecret as _;
        Sealed(secret.expose_secret().as_bytes().to_vec())
    }

    fn open(&self, sealed: &Sealed, _: &SealContext) -> Option<SecretString> {
        String::from_utf8(sealed.0.clone()).ok().map(SecretString::from)
    }
}

fn endpoint() -> StoredWebhook {
    let sealed = |secret: &str| Sealed(secret.as_bytes().to_vec());
    StoredWebhook {
        webhook: Webhook {
            id: ENDPOINT,
            name: "loja".into(),
            url: None,
            events: vec!["*".into()],
            direction: Direction::Inbound,
            is_active: true,
            secret_hint: "1e1f".into(),
            disabled_at: None,
            disabled_reason: None,
            created_at: NOW,
            updated_at: NOW,
        },
        secrets: SealedSecrets {
            current: sealed(SECRET),
            previous: Some((sealed(OLD_SECRET), NOW + Duration::HOUR)),
        },
        version: 3,
    }
}

#[derive(Default)]
struct Fixture {
    entries: Arc<Mutex<Vec<InboundLogEntry>>>,
    duplicate: bool,
    store_fails: bool,
    event_ids: Arc<Mutex<Vec<MetricEventId>>>,
}

impl Fixture {
    fn inbound(&self, now: OffsetDateTime) -> InboundWebhooks {
        let mut store = MockInboundStore::new();
        store
            .expect_endpoint()
            .returning(|id| Ok((id == ENDPOINT).then(|| (ACCOUNT, endpoint()))));
        let duplicate = self.duplicate;
        store.expect_is_taken().returning(move |_, _, _| Ok(duplicate));
        let entries = self.entries.clone();
        store.expect_log().returning(move |account, entry| {
            assert_eq!(account, ACCOUNT);
            entries.lock().unwrap().push(entry.clone());
            Ok(())
        });
        let mut ingested = MockIngestionStore::new();
        let (seen, store_fails) = (self.event_ids.clone(), self.store_fails);
        ingested.expect_events().returning(move |_, drafts, _| {
            if store_fails {
                return Err(StoreError::Unavailable("gone".into()));
            }
            seen.lock().unwrap().extend(drafts.iter().map(|draft| draft.id));
            Ok(IngestionOutcome::Done(IngestionResult::of(1, 1)))
        });
        let mut contacts = MockContactStore::new();
        contacts.expect_upsert_one().returning(|account, _, upsert, _| {
            assert_eq!((account, upsert.contact.name.as_str()), (ACCOUNT, "Ana"));
            match upsert.contact.wa_user_id {
                Some(_) => Err(StoreError::Duplicate { field: "wa_user_id" }),
                None => Ok(UpsertOutcome::Created),
            }
        });
        let (clock, ids) = (Arc::new(clock(now)), Arc::new(ids()));
        InboundWebhooks {
            store: Arc::new(store),
            ingestion: Ingestion::new(Arc::new(ingested), clock.clone(), ids.clone()),
            contacts: Contacts::new(Arc::new(contacts), clock.clone(), ids.clone()),
            cipher: Arc::new(PlainCipher),
            clock,
            ids,
        }
    }

    async fn receive(&self, body: &Value) -> Result<(), InboundCallError> {
        self.receive_signed(body, SECRET, NOW, NOW).await
    }

    async fn receive_signed(
        &self,
        body: &Value,
        secret: &str,
        at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<(), InboundCallError> {
        let body = body.to_string();
        let secret = SecretBytes::from_hex(&SecretString::from(secret)).unwrap();
        let signatures = sign(&[secret], "msg_1", at.unix_timestamp(), body.as_bytes());
        let call = InboundCall {
            headers: [
                Some("msg_1"),
                Some(&at.unix_timestamp().to_string()),
                Some(&format!("v1a,AAAA v1,AAAA {signatures}")),
            ],
            body: body.as_bytes(),
        };
        let inbound = self.inbound(now);
        let endpoint = inbound.open(ENDPOINT, call.headers).await?;
        inbound.receive(endpoint, call).await
    }

    fn logged(&self) -> Vec<(String, i32)> {
        let entries = self.entries.lock().unwrap();
        entries
            .iter()
            .map(|entry| (entry.event_type.clone(), entry.response_status))
            .collect()
    }
}

fn clock(now: OffsetDateTime) -> MockClock {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(now);
    clock
}

fn ids() -> MockIds {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(1));
    ids
}

fn metric() -> Value {
    json!({ "type": "metric.recorded",
        "data": { "metric_name": "visit", "contact_phone": "+5511961234567", "source": "site" } })
}

fn invalid_fields(error: InboundCallError) -> Vec<String> {
    match error {
        InboundCallError::Invalid(FieldErrors(invalid_fields)) => invalid_fields.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn verified_inbound_call_is_applied_and_logged() {
    let fixture = Fixture::default();
    fixture.receive(&metric()).await.unwrap();
    let contact = json!({ "type": "contact.upserted", "data": { "name": "Ana", "phone": "+5511961234567" } });
    fixture.receive(&contact).await.unwrap();
    fixture
        .receive(&json!({ "type": "something.else", "data": {} }))
        .await
        .unwrap();
    let expected = ["metric.recorded", "contact.upserted", "something.else"].map(|kind| (kind.to_owned(), 200));
    assert_eq!(fixture.logged(), expected);
    let entry = fixture.entries.lock().unwrap()[0].clone();
    assert_eq!(
        (entry.id, entry.message_id.as_str()),
        (WebhookLogId(Uuid::from_u128(1)), "msg_1")
    );
    assert_eq!(entry.payload, metric());
}

#[tokio::test]
async fn inbound_call_of_unknown_type_is_logged_completely() {
    let calls = [
        json!({ "type": "shop.ping" }),
        json!({ "type": "shop.list", "data": [1, 2] }),
        json!({ "type": "shop.text", "data": "x", "more": true }),
        json!({ "type": "shop.nothing", "data": null }),
    ];
    let fixture = Fixture::default();
    for call in &calls {
        fixture.receive(call).await.unwrap();
    }
    // A body without a type is rejected, but its log has the payload.
    let untyped = json!({ "data": { "left": 3 } });
    assert_eq!(invalid_fields(fixture.receive(&untyped).await.unwrap_err()), ["type"]);
    let entries = fixture.entries.lock().unwrap();
    let payloads: Vec<&Value> = entries.iter().map(|entry| &entry.payload).collect();
    assert_eq!(payloads, calls.iter().chain([&untyped]).collect::<Vec<_>>());
    let statuses: Vec<i32> = entries.iter().map(|entry| entry.response_status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 422]);
}

#[tokio::test]
async fn oversized_inbound_call_is_logged_by_its_size() {
    let fixture = Fixture::default();
    let large = |bytes: usize| {
        let frame = json!({ "type": "shop.list", "data": "" }).to_string().len();
        json!({ "type": "shop.list", "data": "x".repeat(bytes - frame) })
    };
    let (whole, larger) = (large(64 * 1024), large(64 * 1024 + 1));
    for call in [&whole, &larger] {
        fixture.receive(call).await.unwrap();
    }
    let entries = fixture.entries.lock().unwrap();
    assert_eq!(entries[0].payload, whole);
    assert_eq!(entries[1].payload, json!({ "omitted_bytes": 64 * 1024 + 1 }));
    assert_eq!(entries[1].event_type, "shop.list");
}

#[tokio::test]
async fn inbound_event_without_id_gets_a_deterministic_id() {
    let fixture = Fixture::default();
    fixture.receive(&metric()).await.unwrap();
    fixture.receive(&metric()).await.unwrap();
    let ids = fixture.event_ids.lock().unwrap().clone();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0].0, Uuid::from_u128(1));
}

#[tokio::test]
async fn unverified_inbound_call_is_rejected_and_not_logged() {
    let fixture = Fixture::default();
    let unknown_secret = "aa0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let (minutes, second) = (Duration::minutes(5), Duration::SECOND);
    for (secret, at, now) in [
        (unknown_secret, NOW, NOW),
        (SECRET, NOW - minutes - second, NOW),
        (SECRET, NOW + minutes + second, NOW),
        // The previous secret has expired.
        (OLD_SECRET, NOW + Duration::HOUR, NOW + Duration::HOUR),
    ] {
        let refused = fixture.receive_signed(&metric(), secret, at, now).await;
        assert!(matches!(refused, Err(InboundCallError::Unverified(_))), "{refused:?}");
    }
    assert_eq!(fixture.logged(), []);
    for (secret, at) in [(OLD_SECRET, NOW), (SECRET, NOW - minutes), (SECRET, NOW + minutes)] {
        fixture.receive_signed(&metric(), secret, at, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn unknown_inbound_endpoint_is_not_found() {
    let call = InboundCall {
        headers: [None; 3],
        body: b"",
    };
    let fixture = Fixture::default();
    let unknown = fixture.inbound(NOW).open(WebhookId(Uuid::nil()), call.headers).await;
    assert!(matches!(unknown, Err(InboundCallError::NotFound)));
}

#[tokio::test]
async fn repeated_inbound_call_has_no_effect() {
    let fixture = Fixture {
        duplicate: true,
        ..Fixture::default()
    };
    fixture.receive(&metric()).await.unwrap();
    assert_eq!(fixture.logged(), []);
    assert_eq!(fixture.event_ids.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn invalid_inbound_call_is_reported_and_logged() {
    let fixture = Fixture::default();
    let invalid = async |body: Value| invalid_fields(fixture.receive(&body).await.unwrap_err());
    assert_eq!(invalid(json!([])).await, ["type"]);
    assert_eq!(invalid(json!({ "type": "metric.recorded" })).await, ["data"]);
    assert_eq!(invalid(json!({ "type": "a\u{0}", "data": {} })).await, ["body"]);
    let missing = invalid(json!({ "type": "metric.recorded", "data": {} })).await;
    assert!(missing.contains(&"data.metric_name".to_owned()), "{missing:?}");
    assert_eq!(
        invalid(json!({ "type": "order.recorded", "data": { "items": 1 } })).await,
        ["data"]
    );
    // An array instead of an object is invalid.
    let mut order = json!({ "type": "order.recorded", "data": { "external_id": "1", "platform": "loja",
        "status": "paid", "total": 10, "items": [["7", "Bolo", 1, 10]], "placed_at": "2026-03-01T12:00:00Z" } });
    assert_eq!(invalid(order.clone()).await, ["data"]);
    order["data"] = json!(["1"]);
    assert_eq!(invalid(order).await, ["data"]);
    assert_eq!(
        invalid(json!({ "type": "contact.upserted", "data": { "name": "Ana" } })).await,
        ["data.phone"]
    );
    // A `wa_user_id` of another contact is an error of the caller.
    let duplicate = json!({ "type": "contact.upserted", "data": { "name": "Ana", "wa_user_id": "BR.1a" } });
    assert_eq!(invalid(duplicate.clone()).await, ["data.wa_user_id"]);
    let logged = fixture.logged();
    assert!(logged.iter().all(|(_, status)| *status == 422), "{logged:?}");
    assert_eq!(logged.len(), 9);
    assert_eq!(
        (logged[0].0.as_str(), logged[1].0.as_str()),
        ("unreadable", "metric.recorded")
    );
    let entries = fixture.entries.lock().unwrap();
    assert_eq!(
        (&entries[1].payload, &entries[8].payload),
        (&json!({ "type": "metric.recorded" }), &duplicate)
    );
    // Bodies that are not objects or cannot be stored are logged as an empty object.
    assert_eq!((&entries[0].payload, &entries[2].payload), (&json!({}), &json!({})));
    let error = entries[0].error.as_ref().unwrap();
    assert!(error.starts_with("type must be"), "{error}");
}

#[tokio::test]
async fn inbound_store_error_is_not_logged() {
    let fixture = Fixture {
        store_fails: true,
        ..Fixture::default()
    };
    let failed = fixture.receive(&metric()).await;
    assert!(matches!(failed, Err(InboundCallError::Webhook(_))), "{failed:?}");
    assert_eq!(fixture.logged(), []);
}
