//! Tests of the use cases of API keys.

use std::net::IpAddr;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::accounts::AccountStatus;
use crate::api_keys::{
    ApiKey, ApiKeyError, ApiKeyInput, ApiKeys, KeyGrant, KeyTerms, MockApiKeyStore, NewApiKey, StoredApiKey, networks,
};
use crate::shared::{
    AccountId, ApiKeyId, AuditAction, Event, InsertOutcome, KeyScopes, MockClock, MockIds, MockSecrets, Role,
    RowOutcome, Tenant, UpdateOutcome, UserId, secret_hash,
};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const RANDOM: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAwxyz";

fn keys(store: MockApiKeyStore) -> ApiKeys {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(NOW);
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(1));
    let mut secrets = MockSecrets::new();
    secrets
        .expect_token()
        .withf(|bytes| *bytes == 24)
        .returning(|_| RANDOM.into());
    ApiKeys::new(Arc::new(store), Arc::new(clock), Arc::new(ids), Arc::new(secrets))
}

fn grant() -> KeyGrant {
    KeyGrant {
        id: ApiKeyId(Uuid::from_u128(1)),
        account_id: AccountId(Uuid::from_u128(2)),
        created_by: UserId(Uuid::from_u128(3)),
        status: AccountStatus::Active,
        last_used_at: None,
        expires_at: None,
        secret_valid_until: None,
        terms: Arc::new(KeyTerms {
            name: "Shop".into(),
            key_hint: "good".into(),
            scopes: Arc::default(),
            allowed_cidrs: vec![],
        }),
    }
}

fn keys_with_one(grant: KeyGrant, touches: usize) -> ApiKeys {
    let mut store = MockApiKeyStore::new();
    store.expect_find().returning(move |hash| {
        let exists = hash == secret_hash(&SecretString::from("svc_live_sk_good"));
        Ok(exists.then(|| grant.clone()))
    });
    store
        .expect_touch()
        .withf(|_, _, key_use| key_use.at == NOW && key_use.ip_address.as_deref() == Some("203.0.113.7"))
        .times(touches)
        .returning(|_, _, _| Ok(()));
    keys(store)
}

async fn present(keys: &ApiKeys, key: &str) -> Result<Tenant, ApiKeyError> {
    let address: IpAddr = [203, 0, 113, 7].into();
    keys.authenticate(&SecretString::from(key), Some(address)).await
}

fn owner() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(2)), UserId(Uuid::from_u128(3)), Role::Owner)
}

fn named(name: &str) -> ApiKeyInput {
    ApiKeyInput {
        name: Some(name.to_owned()),
        ..ApiKeyInput::default()
    }
}

fn stored(expires_at: Option<OffsetDateTime>) -> StoredApiKey {
    StoredApiKey {
        key: ApiKey {
            id: ApiKeyId(Uuid::from_u128(5)),
            name: "Shop".into(),
            key_prefix: "svc_live_sk_".into(),
            key_hint: "aaaa".into(),
            scopes: KeyScopes::default(),
            expires_at,
            allowed_cidrs: vec![],
            created_by: owner().actor.user_id,
            last_used_at: None,
            last_used_ip: Some("203.0.113.7".into()),
            rotated_at: None,
            previous_valid_until: None,
            created_at: NOW - Duration::DAY,
        },
        version: 4,
        rotation_request: None,
    }
}

fn audit_changes(events: &[Event], action: AuditAction) -> serde_json::Value {
    let Some(Event::Audit(audit)) = events.first() else {
        panic!("{events:?}")
    };
    assert_eq!((audit.action, audit.entity_type.as_str()), (action, "api_key"));
    audit.changes.clone().unwrap_or_default()
}

#[tokio::test]
async fn api_key_acts_as_member_in_its_creators_name() {
    let tenant = present(&keys_with_one(grant(), 1), "svc_live_sk_good").await.unwrap();
    assert_eq!(tenant.role, Role::Member);
    assert_eq!(tenant.actor.user_id, UserId(Uuid::from_u128(3)));
    assert_eq!(tenant.actor.ip_address.as_deref(), Some("203.0.113.7"));
    assert_eq!(&*tenant.caller_name, "API key Shop (...good)");
    assert_eq!(tenant.api_key.unwrap().id, ApiKeyId(Uuid::from_u128(1)));
}

#[tokio::test]
async fn api_key_last_used_at_is_written_once_a_minute() {
    for (seconds, touches) in [(59, 0), (60, 1)] {
        let last_used_at = Some(NOW - Duration::seconds(seconds));
        let used = KeyGrant {
            last_used_at,
            ..grant()
        };
        present(&keys_with_one(used, touches), "svc_live_sk_good")
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn api_key_unknown_or_of_suspended_account_is_refused() {
    let active = keys_with_one(grant(), 0);
    for unknown in ["svc_live_sk_bad", "good"] {
        assert!(matches!(present(&active, unknown).await, Err(ApiKeyError::Unknown)));
    }
    let suspended = KeyGrant {
        status: AccountStatus::Suspended,
        ..grant()
    };
    let presented = present(&keys_with_one(suspended, 0), "svc_live_sk_good").await;
    assert!(matches!(presented, Err(ApiKeyError::Suspended)));
}

#[tokio::test]
async fn ended_or_foreign_use_of_api_key_is_unknown() {
    let terms = |network: &str| {
        Arc::new(KeyTerms {
            allowed_cidrs: networks::parse_network(network).into_iter().collect(),
            ..(*grant().terms).clone()
        })
    };
    let (past, soon) = (Some(NOW), Some(NOW + Duration::MILLISECOND));
    let expiring = |expires_at| KeyGrant { expires_at, ..grant() };
    let rotated = |secret_valid_until| KeyGrant {
        secret_valid_until,
        ..grant()
    };
    let restricted = |network| KeyGrant {
        terms: terms(network),
        ..grant()
    };
    // A suspended account is not revealed by an expired key.
    let suspended = KeyGrant {
        status: AccountStatus::Suspended,
        ..expiring(past)
    };
    for (refused, is_valid) in [
        (expiring(past), false),
        (expiring(soon), true),
        (rotated(past), false),
        (rotated(soon), true),
        (restricted("203.0.113.0/24"), true),
        (restricted("198.51.100.0/24"), false),
        (suspended, false),
    ] {
        let presented = present(
            &keys_with_one(refused.clone(), usize::from(is_valid)),
            "svc_live_sk_good",
        )
        .await;
        match presented {
            Ok(_) => assert!(is_valid, "{refused:?}"),
            Err(error) => assert!(
                !is_valid && matches!(error, ApiKeyError::Unknown),
                "{refused:?}: {error}"
            ),
        }
    }
    let somewhere = keys_with_one(restricted("203.0.113.0/24"), 0);
    let without_address = somewhere
        .authenticate(&SecretString::from("svc_live_sk_good"), None)
        .await;
    assert!(matches!(without_address, Err(ApiKeyError::Unknown)));
}

#[tokio::test]
async fn new_api_key_is_stored_as_hash_and_hint_and_announced() {
    let mut store = MockApiKeyStore::new();
    store
        .expect_insert()
        .withf(|record, at_most, events| {
            let full_key = SecretString::from(format!("svc_live_sk_{RANDOM}"));
            let changes = audit_changes(events, AuditAction::Create);
            assert_eq!(changes, json!({ "name": "Loja CI" }));
            let [Event::Audit(audit), Event::Notification(notice)] = events else {
                panic!("{events:?}")
            };
            assert_eq!(audit.entity_id, Some(Uuid::from_u128(1)));
            assert_eq!(audit.user_id, Some(owner().actor.user_id));
            assert_eq!(notice.message, "ana@example.com created the API key Loja CI.");
            assert_eq!(record.hash, secret_hash(&full_key));
            assert!(!format!("{record:?}{events:?}").contains("AAAAAAAA"), "{record:?}");
            *at_most == 100 && record.account_id == owner().account_id && record.key.created_by.0.as_u128() == 3
        })
        .times(1)
        .returning(|_, _, _| Ok(InsertOutcome::Done));
    let created = keys(store).create(&owner(), named(" Loja <b>CI</b> ")).await.unwrap();
    assert_eq!(created.full_key.expose_secret(), format!("svc_live_sk_{RANDOM}"));
    assert!(
        !format!("{created:?}").contains(RANDOM),
        "Debug must not contain the full key"
    );
    let key = created.key;
    let parts = (key.name.as_str(), key.key_prefix.as_str(), key.key_hint.as_str());
    assert_eq!(parts, ("Loja CI", "svc_live_sk_", "wxyz"));
    assert_eq!((key.last_used_at, key.created_at, key.expires_at), (None, NOW, None));
    assert_eq!((key.scopes, key.allowed_cidrs), (KeyScopes::default(), vec![]));
}

#[tokio::test]
async fn new_api_key_gets_the_longest_lifetime() {
    let mut store = MockApiKeyStore::new();
    store.expect_insert().returning(|_, _, _| Ok(InsertOutcome::Done));
    let limited = keys(store).longest(Some(Duration::days(30)));
    let created = limited.create(&owner(), named("CI")).await.unwrap();
    assert_eq!(created.key.expires_at, Some(NOW + Duration::days(30)));
}

#[tokio::test]
async fn api_key_name_empty_or_too_long_is_refused() {
    for name in ["", " \t ", "<b></b>", "\u{7}", &"é".repeat(101)] {
        let refused = keys(MockApiKeyStore::new()).create(&owner(), named(name)).await;
        let Err(ApiKeyError::Invalid(errors)) = refused else {
            panic!("{name}")
        };
        assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["name"]);
    }
    let mut store = MockApiKeyStore::new();
    store.expect_insert().returning(|_, _, _| Ok(InsertOutcome::Done));
    let longest = "é".repeat(100);
    let created = keys(store).create(&owner(), named(&longest)).await.unwrap();
    assert_eq!(created.key.name, longest);
}

#[tokio::test]
async fn api_key_beyond_the_limit_is_refused() {
    let mut store = MockApiKeyStore::new();
    store.expect_insert().returning(|_, _, _| Ok(InsertOutcome::Full));
    let Err(ApiKeyError::Invalid(errors)) = keys(store).create(&owner(), named("CI")).await else {
        panic!()
    };
    assert!(errors.0["api_keys"][0].contains("limit of 100"), "{errors:?}");
}

#[tokio::test]
async fn trigger_scope_requires_a_template_of_the_account() {
    let (own, foreign) = (Uuid::from_u128(10), Uuid::from_u128(11));
    let mut store = MockApiKeyStore::new();
    store
        .expect_missing_templates()
        .withf(|account, _| *account == owner().account_id)
        .returning(move |_, asked| Ok(asked.iter().copied().filter(|id| id.0 == foreign).collect()));
    store
        .expect_insert()
        .times(1)
        .returning(|_, _, _| Ok(InsertOutcome::Done));
    let keys = keys(store);
    let with = |ids: &[Uuid]| ApiKeyInput {
        scopes: Some(ids.iter().map(|id| format!("trigger:{id}")).collect()),
        ..named("CI")
    };
    let Err(ApiKeyError::Invalid(errors)) = keys.create(&owner(), with(&[own, foreign])).await else {
        panic!()
    };
    assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["scopes[1]"]);
    let created = keys.create(&owner(), with(&[own])).await.unwrap();
    assert_eq!(created.key.scopes.texts(), [format!("trigger:{own}")]);
}

#[tokio::test]
async fn last_address_is_listed_for_owners_and_admins_only() {
    for &role in Role::ALL {
        let mut store = MockApiKeyStore::new();
        store.expect_list().returning(|_| Ok(vec![stored(None).key]));
        let listed = keys(store).list(&Tenant { role, ..owner() }).await.unwrap();
        let address = listed[0].last_used_ip.as_deref();
        assert_eq!(address, role.manages().then_some("203.0.113.7"), "{role}");
    }
}

#[tokio::test]
async fn api_key_update_changes_given_fields_only_and_is_audited() {
    let mut store = MockApiKeyStore::new();
    store
        .expect_get()
        .returning(|_, _| Ok(Some(stored(Some(NOW + Duration::DAY)))));
    store
        .expect_update()
        .withf(|account, changed, events| {
            let expected = json!({ "scopes": ["links:read"], "expires_at": null });
            assert_eq!(audit_changes(events, AuditAction::Update), expected);
            *account == owner().account_id && changed.version == 4
        })
        .times(1)
        .returning(|_, _, _| Ok(UpdateOutcome::Done(())));
    let input = ApiKeyInput {
        scopes: Some(vec!["links:read".into()]),
        expires_at: Some(None),
        ..ApiKeyInput::default()
    };
    let changed = keys(store)
        .update(&owner(), ApiKeyId(Uuid::from_u128(5)), input)
        .await
        .unwrap();
    assert_eq!((changed.name.as_str(), changed.expires_at), ("Shop", None));
    assert_eq!(changed.scopes.texts(), ["links:read"]);
}

#[tokio::test]
async fn api_key_update_retries_after_a_concurrent_change() {
    let mut store = MockApiKeyStore::new();
    store.expect_get().times(2).returning(|_, _| Ok(Some(stored(None))));
    let mut outcomes = vec![UpdateOutcome::Done(()), UpdateOutcome::Stale];
    store
        .expect_update()
        .times(2)
        .returning(move |_, _, _| Ok(outcomes.pop().unwrap()));
    let changed = keys(store)
        .update(&owner(), ApiKeyId(Uuid::from_u128(5)), named("New"))
        .await;
    assert_eq!(changed.unwrap().name, "New");
    let mut store = MockApiKeyStore::new();
    store.expect_get().returning(|_, _| Ok(None));
    let missing = keys(store)
        .update(&owner(), ApiKeyId(Uuid::from_u128(6)), named("New"))
        .await;
    assert!(matches!(missing, Err(ApiKeyError::NotFound)));
}

async fn rotate(key: StoredApiKey, grace_hours: Option<i64>) -> Result<NewApiKey, ApiKeyError> {
    let mut store = MockApiKeyStore::new();
    store.expect_get().returning(move |_, _| Ok(Some(key.clone())));
    store.expect_rotate().returning(|_, rotated, rotation, events| {
        let full_key = SecretString::from(format!("svc_live_sk_{RANDOM}"));
        assert_eq!(rotation.hash, secret_hash(&full_key));
        assert_eq!(rotated.rotation_request.as_deref(), Some(&b"request"[..]));
        assert_eq!(audit_changes(events, AuditAction::Update)["rotated"], true);
        assert!(!format!("{rotated:?}{events:?}").contains("AAAAAAAA"));
        Ok(UpdateOutcome::Done(()))
    });
    keys(store)
        .rotate(
            &owner(),
            ApiKeyId(Uuid::from_u128(5)),
            grace_hours,
            Some(b"request".to_vec()),
        )
        .await
}

#[tokio::test]
async fn rotation_gives_a_new_secret_and_a_grace() {
    for (grace_hours, expires_at, previous_valid_until) in [
        (None, None, NOW + Duration::hours(24)),
        (Some(0), None, NOW),
        (Some(168), None, NOW + Duration::WEEK),
        (Some(168), Some(NOW + Duration::HOUR), NOW + Duration::HOUR),
    ] {
        let rotated = rotate(stored(expires_at), grace_hours).await.unwrap();
        assert_eq!(rotated.full_key.expose_secret(), format!("svc_live_sk_{RANDOM}"));
        let key = rotated.key;
        assert_eq!((key.key_hint.as_str(), key.name.as_str()), ("wxyz", "Shop"));
        assert_eq!(
            (key.rotated_at, key.previous_valid_until),
            (Some(NOW), Some(previous_valid_until))
        );
    }
}

#[tokio::test]
async fn rotation_of_expired_key_or_with_wrong_grace_is_refused() {
    let expired = rotate(stored(Some(NOW)), None).await;
    assert!(matches!(expired, Err(ApiKeyError::Expired)));
    for wrong in [-1, 169, i64::MAX] {
        let Err(ApiKeyError::Invalid(errors)) = rotate(stored(None), Some(wrong)).await else {
            panic!("{wrong}")
        };
        assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["grace_hours"]);
    }
}

#[tokio::test]
async fn api_key_deletion_is_audited_and_unknown_key_is_not_found() {
    for (exists, id) in [(true, 5), (false, 6)] {
        let mut store = MockApiKeyStore::new();
        store
            .expect_delete()
            .withf(move |account, key, events| {
                let audited = matches!(events, [Event::Audit(audit)] if audit.action == AuditAction::Delete
                    && audit.entity_type == "api_key" && audit.entity_id == Some(Uuid::from_u128(id)));
                audited && *account == owner().account_id && key.0.as_u128() == id
            })
            .times(1)
            .returning(move |_, _, _| Ok(RowOutcome::of(exists)));
        let deleted = keys(store).delete(&owner(), ApiKeyId(Uuid::from_u128(id))).await;
        assert_eq!(deleted.is_ok(), exists);
        assert!(exists || matches!(deleted, Err(ApiKeyError::NotFound)));
    }
}

#[tokio::test]
async fn repeated_rotation_replaces_the_unanswered_secret_only() {
    let end = NOW + Duration::hours(5);
    for (request, age, is_repeated) in [
        (Some(b"request".to_vec()), Duration::hours(23), true),
        (Some(b"request".to_vec()), Duration::hours(24), false),
        (Some(b"another".to_vec()), Duration::HOUR, false),
        (None, Duration::HOUR, false),
    ] {
        let mut rotated_before = stored(None);
        rotated_before.rotation_request = Some(b"request".to_vec());
        rotated_before.key.rotated_at = Some(NOW - age);
        rotated_before.key.previous_valid_until = Some(end);
        let mut store = MockApiKeyStore::new();
        store
            .expect_get()
            .returning(move |_, _| Ok(Some(rotated_before.clone())));
        store
            .expect_rotate()
            .withf(move |_, _, rotation, _| rotation.is_repeated == is_repeated)
            .times(1)
            .returning(|_, _, _, _| Ok(UpdateOutcome::Done(())));
        let id = ApiKeyId(Uuid::from_u128(5));
        let rotated = keys(store).rotate(&owner(), id, None, request).await.unwrap();
        let expected = if is_repeated { end } else { NOW + Duration::hours(24) };
        assert_eq!(rotated.key.previous_valid_until, Some(expected), "{age}");
    }
}
