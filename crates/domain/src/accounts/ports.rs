//! Ports of accounts: session verification and the database.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Account, Membership, MembershipAccess, Session, SessionError};
use crate::shared::{AccountId, StoreError, UserId};

/// Verifies session tokens, with a shared secret or with the identity provider's published keys.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SessionVerifier: Send + Sync {
    /// Verifies a token's signature, times, issuer and audience. MUST NOT take the algorithm from the token.
    async fn verify(&self, token: &str) -> Result<Session, SessionError>;
}

/// Accounts, users and memberships. These methods see all tenants, because they determine the tenant.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AccountStore: Send + Sync {
    /// Inserts the user or updates their e-mail address and name, and whether the token proved the address. A missing
    /// name leaves the stored one unchanged.
    async fn record_user(&self, session: &Session) -> Result<(), StoreError>;

    /// Returns every membership of the user, oldest first. Expired memberships of support mode are excluded.
    async fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError>;

    /// Returns the user's access to an account; `None` if they are no member or their support mode has expired.
    async fn membership_access(&self, user: UserId, account: AccountId)
    -> Result<Option<MembershipAccess>, StoreError>;

    /// Returns the user's access to the account they used last: by `last_active_at`, then the oldest membership.
    /// Regular memberships come before those of support mode.
    async fn latest_membership_access(&self, user: UserId) -> Result<Option<MembershipAccess>, StoreError>;

    /// Inserts the account with its owner in one transaction and returns the stored account. `account.slug` is the
    /// preferred slug: the store MUST number it (`text::slugs`) until it is unique, also against concurrent inserts.
    ///
    /// Returns `None`, and inserts nothing, if the user owns `at_most` accounts that this method inserted for them. MUST
    /// be exact for concurrent calls.
    async fn create(&self, account: &Account, owner: UserId, at_most: i64) -> Result<Option<Account>, StoreError>;

    /// Sets `last_active_at` and returns the membership. Returns `None` if the user is no member. Also `None` if the
    /// account is suspended and the membership is not one of support mode.
    async fn switch(
        &self,
        user: UserId,
        account: AccountId,
        now: OffsetDateTime,
    ) -> Result<Option<Membership>, StoreError>;
}

/// When users ended their sessions. These methods see all users.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Returns when all sessions of the user were last ended; `None` if never. A cache MUST return an end at most a
    /// second late.
    async fn signed_out_at(&self, user: UserId) -> Result<Option<OffsetDateTime>, StoreError>;

    /// Ends all sessions that began at this time or before, and removes the user's temporary memberships of support
    /// mode in the same transaction. MUST keep a later time that is already stored. Returns the stored time, or `None`
    /// if the user does not exist.
    async fn end_all(&self, user: UserId, at: OffsetDateTime) -> Result<Option<OffsetDateTime>, StoreError>;
}
