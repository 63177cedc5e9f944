//! API keys: how a program acts in an account without a session.
//!
//! Owns the key's form and what it may do. Does not own the routes' rate limits or the session of people.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

use crate::accounts::AccountStatus;
use crate::shared::{AccountId, Actor, ApiKeyId, Clock, Role, StoreError, Tenant, UserId, secret_hash};

/// How every key begins; tells a key from a session token before either is parsed.
pub const KEY_PREFIX: &str = "svc_live_sk_";

/// `last_used_at` is written at most this often.
const TOUCH_EVERY: Duration = Duration::minutes(1);

/// What authentication needs to know of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGrant {
    /// The key.
    pub id: ApiKeyId,
    /// The account it acts in.
    pub account_id: AccountId,
    /// The user who made it: it acts in their name, also after they left.
    pub created_by: UserId,
    /// Whether the account may work.
    pub status: AccountStatus,
    /// When it was last presented, to the minute.
    pub last_used_at: Option<OffsetDateTime>,
}

/// Why a key opens nothing.
#[derive(Debug, Error)]
pub enum ApiKeyError {
    /// No such key.
    #[error("the API key is not valid")]
    Unknown,
    /// Its account is suspended.
    #[error("this account is suspended")]
    Suspended,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keys by the SHA-256 of the whole key: a look-up that crosses tenants, through a directory table.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ApiKeyStore: Send + Sync {
    /// The key with this hash.
    async fn find(&self, hash: &[u8]) -> Result<Option<KeyGrant>, StoreError>;
    /// Writes `last_used_at`.
    async fn touch(&self, account: AccountId, key: ApiKeyId, now: OffsetDateTime) -> Result<(), StoreError>;
}

/// The use cases of API keys.
pub struct ApiKeys {
    store: Arc<dyn ApiKeyStore>,
    clock: Arc<dyn Clock>,
}

impl ApiKeys {
    pub fn new(store: Arc<dyn ApiKeyStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Whether a presented credential is meant as an API key.
    pub fn looks_like_key(credential: &str) -> bool {
        credential.starts_with(KEY_PREFIX)
    }

    /// The account context of a key: role `member`, in the name of its creator.
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
        };
        Ok(Tenant::new(grant.account_id, actor, Role::Member))
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::shared::MockClock;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn keys(status: AccountStatus, last_used_at: Option<OffsetDateTime>, touches: usize) -> ApiKeys {
        let mut store = MockApiKeyStore::new();
        store.expect_find().returning(move |hash| {
            let known = hash == secret_hash(&SecretString::from("svc_live_sk_good"));
            Ok(known.then(|| KeyGrant {
                id: ApiKeyId(Uuid::from_u128(1)),
                account_id: AccountId(Uuid::from_u128(2)),
                created_by: UserId(Uuid::from_u128(3)),
                status,
                last_used_at,
            }))
        });
        store.expect_touch().times(touches).returning(|_, _, _| Ok(()));
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        ApiKeys::new(Arc::new(store), Arc::new(clock))
    }

    async fn present(keys: &ApiKeys, key: &str) -> Result<Tenant, ApiKeyError> {
        keys.authenticate(&SecretString::from(key), None).await
    }

    #[tokio::test]
    async fn a_known_key_is_a_member_in_its_makers_name() {
        let tenant = present(&keys(AccountStatus::Active, None, 1), "svc_live_sk_good")
            .await
            .unwrap();
        assert_eq!(tenant.role, Role::Member);
        assert_eq!(tenant.actor.user_id, UserId(Uuid::from_u128(3)));
    }

    #[tokio::test]
    async fn use_is_noted_once_a_minute() {
        let recently = Some(NOW - Duration::seconds(59));
        present(&keys(AccountStatus::Active, recently, 0), "svc_live_sk_good")
            .await
            .unwrap();
        let earlier = Some(NOW - Duration::seconds(60));
        present(&keys(AccountStatus::Active, earlier, 1), "svc_live_sk_good")
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn unknown_foreign_and_suspended_open_nothing() {
        let active = keys(AccountStatus::Active, None, 0);
        assert!(matches!(
            present(&active, "svc_live_sk_bad").await,
            Err(ApiKeyError::Unknown)
        ));
        assert!(matches!(present(&active, "good").await, Err(ApiKeyError::Unknown)));
        let suspended = keys(AccountStatus::Suspended, None, 0);
        assert!(matches!(
            present(&suspended, "svc_live_sk_good").await,
            Err(ApiKeyError::Suspended)
        ));
    }
}
