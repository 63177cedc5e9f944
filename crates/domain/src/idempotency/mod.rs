//! Idempotency keys: a request that is sent again with its key is not carried out again; it gets the first answer.
//!
//! Owns what a key is and what becomes of a request that presents one. Does not own how a request is read or an answer
//! is kept in bytes (the server).

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;
use time::Duration;
use uuid::Uuid;

use crate::shared::{AccountId, FieldErrors, Ids, Sealed, StoreError, UserId};

/// The longest key, in characters.
const KEY_CHARS: usize = 255;

/// How long a response is stored.
pub const RESPONSE_RETENTION: Duration = Duration::hours(24);

/// How long a request is left alone that nobody hears of: its server is dead then, and the key free again.
pub const LEASE: Duration = Duration::seconds(15);

/// Within whom a key means one request: an account, or where a route has none, a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(pub Uuid);

impl From<AccountId> for Scope {
    fn from(account: AccountId) -> Self {
        Self(account.0)
    }
}

impl From<UserId> for Scope {
    fn from(user: UserId) -> Self {
        Self(user.0)
    }
}

/// A key as the client chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// 1 to 255 visible characters.
    pub fn parse(text: &str) -> Result<Self, FieldErrors> {
        let fits = (1..=KEY_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        match fits && !text.trim().is_empty() {
            true => Ok(Self(text.to_owned())),
            false => Err(FieldErrors::one("Idempotency-Key", "must have 1 to 255 characters")),
        }
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A keyed hash of what makes two requests the same: method, path and body. Without the server's key nothing of a body can
/// be guessed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHash(pub Vec<u8>);

/// The right to carry a request out, until it is finished or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// Within whom.
    pub scope: Scope,
    /// Under which key.
    pub key: IdempotencyKey,
    /// Tells this claim from an earlier one whose server was thought dead.
    pub holder: Uuid,
}

/// An answer as it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// What was asked.
    pub request: RequestHash,
    /// What was answered: it may hold a secret that is shown once.
    pub response: Sealed,
}

/// What a key stands for when a request presents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing: the claim stands.
    Free,
    /// A request that is being carried out.
    Running,
    /// A request that was answered.
    Answered(StoredResponse),
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is carried out.
    First(KeyClaim),
    /// It may be a repetition: if it asks the same it gets this answer.
    Again(StoredResponse),
}

/// Why a request is neither carried out nor answered again.
#[derive(Debug, Error)]
pub enum IdempotencyError {
    #[error("A request with this idempotency key is still in progress; try again later")]
    Running,
    #[error("This idempotency key was used for a different request; use a new key")]
    Mismatch,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where keys are kept, for all servers together. Times are the store's own.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Takes the key if it is free: never used, used longer ago than [`KEPT_FOR`], or claimed by somebody whose lease
    /// is over. Of concurrent callers one gets it.
    async fn claim(&self, claim: &KeyClaim, lease: Duration) -> Result<KeyState, StoreError>;

    /// Prolongs the lease of a claim that still stands.
    async fn renew(&self, claim: &KeyClaim, lease: Duration) -> Result<(), StoreError>;

    /// Keeps the answer, if the claim still stands.
    async fn finish(&self, claim: &KeyClaim, stored: &StoredResponse) -> Result<(), StoreError>;

    /// Frees the key, if the claim still stands.
    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError>;

    /// Forgets up to `limit` answers that are older than [`KEPT_FOR`]. How many.
    async fn sweep(&self, limit: i64) -> Result<usize, StoreError>;
}

/// The use cases of idempotency keys.
pub struct Idempotency {
    store: Arc<dyn IdempotencyStore>,
    ids: Arc<dyn Ids>,
}

impl Idempotency {
    pub fn new(store: Arc<dyn IdempotencyStore>, ids: Arc<dyn Ids>) -> Self {
        Self { store, ids }
    }

    /// Asks to carry a request out.
    pub async fn admit(&self, scope: Scope, key: IdempotencyKey) -> Result<Admission, IdempotencyError> {
        let holder = self.ids.next();
        let claim = KeyClaim { scope, key, holder };
        match self.store.claim(&claim, LEASE).await? {
            KeyState::Free => Ok(Admission::First(claim)),
            KeyState::Running => Err(IdempotencyError::Running),
            KeyState::Answered(stored) => Ok(Admission::Again(stored)),
        }
    }

    /// The kept answer, for a request that asks the same.
    pub fn repeat(stored: StoredResponse, request: &RequestHash) -> Result<Sealed, IdempotencyError> {
        match stored.request == *request {
            true => Ok(stored.response),
            false => Err(IdempotencyError::Mismatch),
        }
    }

    /// Says that the request is still being carried out: to be called well within [`LEASE`].
    pub async fn renew(&self, claim: &KeyClaim) -> Result<(), IdempotencyError> {
        Ok(self.store.renew(claim, LEASE).await?)
    }

    /// Keeps the answer for whoever asks again. None: what happened is no answer, and the key is free again.
    pub async fn conclude(&self, claim: &KeyClaim, stored: Option<&StoredResponse>) -> Result<(), IdempotencyError> {
        match stored {
            Some(stored) => self.store.finish(claim, stored).await?,
            None => self.store.release(claim).await?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::MockIds;

    fn stored_response() -> StoredResponse {
        StoredResponse {
            request: RequestHash(vec![1]),
            response: Sealed(vec![2]),
        }
    }

    fn idempotency(store: MockIdempotencyStore) -> Idempotency {
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(9));
        Idempotency::new(Arc::new(store), Arc::new(ids))
    }

    fn key(text: &str) -> IdempotencyKey {
        IdempotencyKey::parse(text).unwrap()
    }

    #[test]
    fn idempotency_key_has_1_to_255_characters() {
        for text in ["a", "3f2e-…", &"é".repeat(255)] {
            assert_eq!(key(text).as_str(), text);
        }
        for text in ["", " ", "\u{1}", &"a".repeat(256)] {
            let errors = IdempotencyKey::parse(text).unwrap_err();
            assert!(errors.0.contains_key("Idempotency-Key"), "{text}");
        }
    }

    #[tokio::test]
    async fn admission_depends_on_the_key_state() {
        let mut store = MockIdempotencyStore::new();
        store.expect_claim().returning(|claim, lease| {
            assert_eq!((claim.holder, lease), (Uuid::from_u128(9), LEASE));
            Ok(match claim.key.as_str() {
                "new" => KeyState::Free,
                "running" => KeyState::Running,
                _ => KeyState::Answered(stored_response()),
            })
        });
        let idempotency = idempotency(store);
        let scope = Scope::from(AccountId(Uuid::from_u128(7)));
        let first = idempotency.admit(scope, key("new")).await.unwrap();
        assert!(matches!(first, Admission::First(claim) if claim.scope.0 == Uuid::from_u128(7)));
        let running = idempotency.admit(scope, key("running")).await;
        assert!(matches!(running, Err(IdempotencyError::Running)));
        let again = idempotency.admit(scope, key("old")).await.unwrap();
        assert_eq!(again, Admission::Again(stored_response()));
    }

    #[test]
    fn stored_response_is_repeated_only_for_the_same_request() {
        let same = Idempotency::repeat(stored_response(), &RequestHash(vec![1]));
        assert_eq!(same.unwrap(), Sealed(vec![2]));
        let other = Idempotency::repeat(stored_response(), &RequestHash(vec![3]));
        assert!(matches!(other, Err(IdempotencyError::Mismatch)));
    }

    #[tokio::test]
    async fn idempotency_key_is_free_after_a_request_without_response() {
        let claim = KeyClaim {
            scope: UserId(Uuid::from_u128(7)).into(),
            key: key("k"),
            holder: Uuid::from_u128(9),
        };
        let mut store = MockIdempotencyStore::new();
        store.expect_release().times(1).returning(|_| Ok(()));
        idempotency(store).conclude(&claim, None).await.unwrap();
        let mut store = MockIdempotencyStore::new();
        store
            .expect_finish()
            .withf(|_, stored| *stored == stored_response())
            .times(1)
            .returning(|_, _| Ok(()));
        idempotency(store)
            .conclude(&claim, Some(&stored_response()))
            .await
            .unwrap();
    }
}
