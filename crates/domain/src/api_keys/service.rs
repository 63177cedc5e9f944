//! Use cases of API keys: authenticate, list, create, delete.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use time::Duration;

use super::{ApiKey, ApiKeyError, ApiKeyStore, KEY_PREFIX, KeyRecord, NewApiKey};
use crate::accounts::AccountStatus;
use crate::shared::{
    Actor, ApiKeyId, AuditAction, Clock, Event, FieldErrors, Ids, InsertOutcome, Role, Secrets, Tenant, secret_hash,
    text,
};

/// Minimum interval between two writes of `last_used_at`.
const TOUCH_EVERY: Duration = Duration::minutes(1);

/// Random bytes of a key. With 192 bits of entropy an unsalted SHA-256 is a sufficient hash.
const KEY_BYTES: usize = 24;

/// Number of final characters of a key that are shown.
const HINT_CHARS: usize = 4;

/// Maximum length of a name, in characters.
const NAME_CHARS: usize = 100;

/// Maximum number of keys of an account. The list has no pages.
const MAX_KEYS: i64 = 100;

/// Entity type of audit entries about keys.
const ENTITY: &str = "api_key";

/// Use cases of API keys.
pub struct ApiKeys {
    store: Arc<dyn ApiKeyStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    secrets: Arc<dyn Secrets>,
}

impl ApiKeys {
    pub fn new(
        store: Arc<dyn ApiKeyStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        secrets: Arc<dyn Secrets>,
    ) -> Self {
        Self {
            store,
            clock,
            ids,
            secrets,
        }
    }

    /// Whether a credential has the prefix of an API key.
    pub fn looks_like_key(credential: &str) -> bool {
        credential.starts_with(KEY_PREFIX)
    }

    /// Returns the tenant context of a key: role `member`, with the key's creator as actor.
    pub async fn authenticate(&self, key: &SecretString, ip_address: Option<String>) -> Result<Tenant, ApiKeyError> {
        if !Self::looks_like_key(key.expose_secret()) {
            return Err(ApiKeyError::Unknown);
        }
        let grant = self.store.find(&secret_hash(key)).await?.ok_or(ApiKeyError::Unknown)?;
        if grant.status == AccountStatus::Suspended {
            return Err(ApiKeyError::Suspended);
        }
        let now = self.clock.now();
        if grant.last_used_at.is_none_or(|last| now - last >= TOUCH_EVERY) {
            self.store.touch(grant.account_id, grant.id, now).await?;
        }
        let actor = Actor {
            user_id: grant.created_by,
            ip_address,
            support_admin: None,
        };
        Ok(Tenant::new(grant.account_id, actor, Role::Member))
    }

    /// Returns every key of the account, newest first.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<ApiKey>, ApiKeyError> {
        Ok(self.store.list(tenant.account_id).await?)
    }

    /// Creates a key. Only the returned value contains the full key.
    pub async fn create(&self, tenant: &Tenant, name: &str) -> Result<NewApiKey, ApiKeyError> {
        let name = text::sanitize(name);
        if name.is_empty() || name.chars().count() > NAME_CHARS {
            return Err(FieldErrors::one("name", "must have 1 to 100 characters").into());
        }
        let random = self.secrets.token(KEY_BYTES);
        let full_key = SecretString::from(format!("{KEY_PREFIX}{}", random.expose_secret()));
        let key = ApiKey {
            id: self.ids.next().into(),
            name,
            key_prefix: KEY_PREFIX.to_owned(),
            key_hint: hint(&full_key),
            last_used_at: None,
            created_at: self.clock.now(),
        };
        let changes = json!({ "name": key.name });
        let audit = tenant.audit(AuditAction::Create, ENTITY, key.id).with_changes(changes);
        let record = KeyRecord {
            account_id: tenant.account_id,
            created_by: tenant.actor.user_id,
            key,
            hash: secret_hash(&full_key),
        };
        match self.store.insert(&record, MAX_KEYS, &[Event::Audit(audit)]).await? {
            InsertOutcome::Done => Ok(NewApiKey {
                key: record.key,
                full_key,
            }),
            InsertOutcome::Full => Err(FieldErrors::one("api_keys", limit_reached()).into()),
        }
    }

    /// Deletes a key permanently. It is refused from the time this returns.
    pub async fn delete(&self, tenant: &Tenant, id: ApiKeyId) -> Result<(), ApiKeyError> {
        let audit = Event::Audit(tenant.audit(AuditAction::Delete, ENTITY, id));
        match self.store.delete(tenant.account_id, id, &[audit]).await? {
            true => Ok(()),
            false => Err(ApiKeyError::NotFound),
        }
    }
}

/// Returns the last characters of a key.
fn hint(key: &SecretString) -> String {
    let key = key.expose_secret();
    key.chars()
        .skip(key.chars().count().saturating_sub(HINT_CHARS))
        .collect()
}

fn limit_reached() -> String {
    format!("limit of {MAX_KEYS} reached; delete an API key first")
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{KeyGrant, MockApiKeyStore};
    use super::*;
    use crate::shared::{AccountId, MockClock, MockIds, MockSecrets, UserId};

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

    fn keys_with_one(status: AccountStatus, last_used_at: Option<OffsetDateTime>, touches: usize) -> ApiKeys {
        let mut store = MockApiKeyStore::new();
        store.expect_find().returning(move |hash| {
            let exists = hash == secret_hash(&SecretString::from("svc_live_sk_good"));
            Ok(exists.then(|| KeyGrant {
                id: ApiKeyId(Uuid::from_u128(1)),
                account_id: AccountId(Uuid::from_u128(2)),
                created_by: UserId(Uuid::from_u128(3)),
                status,
                last_used_at,
            }))
        });
        store.expect_touch().times(touches).returning(|_, _, _| Ok(()));
        keys(store)
    }

    async fn present(keys: &ApiKeys, key: &str) -> Result<Tenant, ApiKeyError> {
        keys.authenticate(&SecretString::from(key), None).await
    }

    fn owner() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(2)), UserId(Uuid::from_u128(3)), Role::Owner)
    }

    #[tokio::test]
    async fn api_key_acts_as_member_in_its_creators_name() {
        let tenant = present(&keys_with_one(AccountStatus::Active, None, 1), "svc_live_sk_good")
            .await
            .unwrap();
        assert_eq!(tenant.role, Role::Member);
        assert_eq!(tenant.actor.user_id, UserId(Uuid::from_u128(3)));
    }

    #[tokio::test]
    async fn api_key_last_used_at_is_written_once_a_minute() {
        let recently = Some(NOW - Duration::seconds(59));
        present(&keys_with_one(AccountStatus::Active, recently, 0), "svc_live_sk_good")
            .await
            .unwrap();
        let earlier = Some(NOW - Duration::seconds(60));
        present(&keys_with_one(AccountStatus::Active, earlier, 1), "svc_live_sk_good")
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn api_key_unknown_or_of_suspended_account_is_refused() {
        let active = keys_with_one(AccountStatus::Active, None, 0);
        assert!(matches!(
            present(&active, "svc_live_sk_bad").await,
            Err(ApiKeyError::Unknown)
        ));
        assert!(matches!(present(&active, "good").await, Err(ApiKeyError::Unknown)));
        let suspended = keys_with_one(AccountStatus::Suspended, None, 0);
        assert!(matches!(
            present(&suspended, "svc_live_sk_good").await,
            Err(ApiKeyError::Suspended)
        ));
    }

    #[tokio::test]
    async fn new_api_key_is_stored_as_hash_and_hint_and_audited() {
        let mut store = MockApiKeyStore::new();
        store
            .expect_insert()
            .withf(|record, at_most, events| {
                let full_key = SecretString::from(format!("svc_live_sk_{RANDOM}"));
                let [Event::Audit(audit)] = events else {
                    return false;
                };
                assert_eq!(
                    (audit.action, audit.entity_type.as_str()),
                    (AuditAction::Create, "api_key")
                );
                assert_eq!(audit.entity_id, Some(Uuid::from_u128(1)));
                assert_eq!(audit.changes, Some(json!({ "name": "Loja CI" })));
                assert_eq!(audit.user_id, Some(owner().actor.user_id));
                assert_eq!(record.hash, secret_hash(&full_key));
                assert!(!format!("{record:?}{events:?}").contains("AAAAAAAA"), "{record:?}");
                *at_most == 100 && record.account_id == owner().account_id && record.created_by.0.as_u128() == 3
            })
            .times(1)
            .returning(|_, _, _| Ok(InsertOutcome::Done));
        let created = keys(store).create(&owner(), " Loja <b>CI</b> ").await.unwrap();
        assert_eq!(created.full_key.expose_secret(), format!("svc_live_sk_{RANDOM}"));
        assert!(
            !format!("{created:?}").contains(RANDOM),
            "Debug must not contain the full key"
        );
        let key = created.key;
        let parts = (key.name.as_str(), key.key_prefix.as_str(), key.key_hint.as_str());
        assert_eq!(parts, ("Loja CI", "svc_live_sk_", "wxyz"));
        assert_eq!((key.last_used_at, key.created_at), (None, NOW));
    }

    #[tokio::test]
    async fn api_key_name_empty_or_too_long_is_refused() {
        for name in ["", " \t ", "<b></b>", "\u{7}", &"é".repeat(101)] {
            let refused = keys(MockApiKeyStore::new()).create(&owner(), name).await;
            let Err(ApiKeyError::Invalid(errors)) = refused else {
                panic!("{name}")
            };
            assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["name"]);
        }
        let mut store = MockApiKeyStore::new();
        store.expect_insert().returning(|_, _, _| Ok(InsertOutcome::Done));
        let longest = "é".repeat(100);
        let created = keys(store).create(&owner(), &longest).await.unwrap();
        assert_eq!(created.key.name, longest);
    }

    #[tokio::test]
    async fn api_key_beyond_the_limit_is_refused() {
        let mut store = MockApiKeyStore::new();
        store.expect_insert().returning(|_, _, _| Ok(InsertOutcome::Full));
        let Err(ApiKeyError::Invalid(errors)) = keys(store).create(&owner(), "CI").await else {
            panic!()
        };
        assert!(errors.0["api_keys"][0].contains("limit of 100"), "{errors:?}");
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
                .returning(move |_, _, _| Ok(exists));
            let deleted = keys(store).delete(&owner(), ApiKeyId(Uuid::from_u128(id))).await;
            assert_eq!(deleted.is_ok(), exists);
            assert!(exists || matches!(deleted, Err(ApiKeyError::NotFound)));
        }
    }
}
