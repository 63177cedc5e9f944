//! Idempotency keys: a request that is repeated with its key is not executed again but returns the stored response.
//!
//! Owns the key and the decision about a request that presents one. The server reads the request and encodes the stored
//! response.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;
use time::Duration;
use uuid::Uuid;

use crate::shared::{AccountId, FieldErrors, Ids, Sealed, StoreError, UserId};

/// Maximum length of a key, in characters.
const KEY_CHARS: usize = 255;

/// How long a response is stored.
pub const RESPONSE_RETENTION: Duration = Duration::hours(24);

/// Lease of a running request. If it is not renewed in time, its server has crashed and the key is free again.
pub const LEASE: Duration = Duration::seconds(15);

/// Maximum number of keys of a scope on one UTC day.
pub const MAX_KEYS_PER_DAY: i64 = 50_000;

/// The account within which a key is unique; the user on routes without an account.
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

/// A key that the client chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Accepts 1 to 255 characters, of which at least one is visible and none is a control character.
    pub fn parse(text: &str) -> Result<Self, FieldErrors> {
        let fits = (1..=KEY_CHARS).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        match fits && !text.trim().is_empty() {
            true => Ok(Self(text.to_owned())),
            false => Err(FieldErrors::one("Idempotency-Key", "must have 1 to 255 characters")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Keyed hash of method, path and body: equal hashes under one key mean equal requests. The key is random and sealed
/// with the response, so no body can be guessed from the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHash(pub Vec<u8>);

/// The claim of a key: the right to execute its request until it is finished or released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    pub scope: Scope,
    pub key: IdempotencyKey,
    /// Fencing token: distinguishes this claim from an earlier one whose lease expired.
    pub holder: Uuid,
}

/// A stored response with the request that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub request: RequestHash,
    /// Sealed, because a response may contain a one-time secret.
    pub response: Sealed,
}

/// State of a key that a request presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key was free and is now claimed.
    Free,
    /// A request with the key is running.
    Running,
    /// A request with the key has a stored response.
    Answered(StoredResponse),
    /// The key is free, but the scope has claimed [`MAX_KEYS_PER_DAY`] keys today.
    Exhausted,
}

/// Decision about a request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Execute the request.
    First(KeyClaim),
    /// Return this response if the request equals the stored one.
    Again(StoredResponse),
}

/// Why a request with a key is refused.
#[derive(Debug, Error)]
pub enum IdempotencyError {
    #[error("A request with this idempotency key is still in progress; try again later")]
    Running,
    #[error("This idempotency key was used for a different request; use a new key")]
    Mismatch,
    #[error("This account has used {MAX_KEYS_PER_DAY} idempotency keys today, which is the limit")]
    Exhausted,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keys and stored responses, shared by all servers. Leases and retention use the store's clock.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Claims the key if it is free: never used, last used before [`RESPONSE_RETENTION`], or claimed with an expired
    /// lease. Of concurrent callers exactly one succeeds.
    ///
    /// Returns `Exhausted` instead of claiming it if the scope has claimed [`MAX_KEYS_PER_DAY`] keys on this UTC day.
    /// Concurrent callers may exceed the limit by their number. A released key does not count.
    async fn claim(&self, claim: &KeyClaim, lease: Duration) -> Result<KeyState, StoreError>;

    /// Renews the lease if the claim is still current.
    async fn renew(&self, claim: &KeyClaim, lease: Duration) -> Result<(), StoreError>;

    /// Stores the response if the claim is still current.
    async fn finish(&self, claim: &KeyClaim, stored: &StoredResponse) -> Result<(), StoreError>;

    /// Frees the key if the claim is still current.
    async fn release(&self, claim: &KeyClaim) -> Result<(), StoreError>;

    /// Deletes up to `limit` responses older than [`RESPONSE_RETENTION`], and the counts of earlier days. Returns how
    /// many responses.
    async fn sweep(&self, limit: i64) -> Result<usize, StoreError>;
}

/// Use cases of idempotency keys.
pub struct Idempotency {
    store: Arc<dyn IdempotencyStore>,
    ids: Arc<dyn Ids>,
}

impl Idempotency {
    pub fn new(store: Arc<dyn IdempotencyStore>, ids: Arc<dyn Ids>) -> Self {
        Self { store, ids }
    }

    /// Claims the key for a request, or returns the stored response.
    pub async fn admit(&self, scope: Scope, key: IdempotencyKey) -> Result<Admission, IdempotencyError> {
        let holder = self.ids.next();
        let claim = KeyClaim { scope, key, holder };
        match self.store.claim(&claim, LEASE).await? {
            KeyState::Free => Ok(Admission::First(claim)),
            KeyState::Running => Err(IdempotencyError::Running),
            KeyState::Exhausted => Err(IdempotencyError::Exhausted),
            KeyState::Answered(stored) => Ok(Admission::Again(stored)),
        }
    }

    /// Allows the replay if the repeated request equals the stored one. `repeated` are its hashes under every key that
    /// may have hashed the stored request.
    pub fn repeat(stored: &RequestHash, repeated: &[RequestHash]) -> Result<(), IdempotencyError> {
        match repeated.contains(stored) {
            true => Ok(()),
            false => Err(IdempotencyError::Mismatch),
        }
    }

    /// Renews the lease of a running request. MUST be called well within [`LEASE`].
    pub async fn renew(&self, claim: &KeyClaim) -> Result<(), IdempotencyError> {
        Ok(self.store.renew(claim, LEASE).await?)
    }

    /// Stores the response of a finished request. `None` frees the key, because the request has no response to repeat.
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
                "full" => KeyState::Exhausted,
                _ => KeyState::Answered(stored_response()),
            })
        });
        let idempotency = idempotency(store);
        let scope = Scope::from(AccountId(Uuid::from_u128(7)));
        let first = idempotency.admit(scope, key("new")).await.unwrap();
        assert!(matches!(first, Admission::First(claim) if claim.scope.0 == Uuid::from_u128(7)));
        let running = idempotency.admit(scope, key("running")).await;
        assert!(matches!(running, Err(IdempotencyError::Running)));
        let full = idempotency.admit(scope, key("full")).await;
        assert!(matches!(full, Err(IdempotencyError::Exhausted)));
        let again = idempotency.admit(scope, key("old")).await.unwrap();
        assert_eq!(again, Admission::Again(stored_response()));
    }

    #[test]
    fn stored_response_is_repeated_only_for_the_same_request() {
        let stored = stored_response().request;
        let hashes = |bytes: &[u8]| bytes.iter().map(|&byte| RequestHash(vec![byte])).collect::<Vec<_>>();
        assert!(Idempotency::repeat(&stored, &hashes(&[1])).is_ok());
        assert!(Idempotency::repeat(&stored, &hashes(&[3, 1])).is_ok());
        for other in [&[][..], &[3], &[3, 4]] {
            let refused = Idempotency::repeat(&stored, &hashes(other));
            assert!(matches!(refused, Err(IdempotencyError::Mismatch)), "{other:?}");
        }
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
