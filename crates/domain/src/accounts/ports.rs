//! What accounts need from the outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Account, Membership, MembershipAccess, Session, SessionError};
use crate::shared::{AccountId, StoreError, UserId};

/// Proves sessions. Implemented per configuration: one shared secret, or the provider's published keys.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SessionVerifier: Send + Sync {
    /// Checks a token's signature, times, issuer and audience. MUST NOT take the algorithm from the token.
    async fn verify(&self, token: &str) -> Result<Session, SessionError>;
}

/// Accounts, users and memberships. These reads cross tenants by nature: they are how a tenant is found.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AccountStore: Send + Sync {
    /// Records the user, or their changed e-mail or name. A missing name keeps the stored one.
    async fn record_user(&self, session: &Session) -> Result<(), StoreError>;

    /// Every membership of the user, oldest first; one of support mode while it lasts.
    async fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError>;

    /// The user's access to one account; none when they are no member, or were one in support mode and no longer are.
    async fn membership_access(&self, user: UserId, account: AccountId)
    -> Result<Option<MembershipAccess>, StoreError>;

    /// The user's access to the account they used last (`last_active_at`, then the oldest membership); one of support
    /// mode after all others.
    async fn latest_membership_access(&self, user: UserId) -> Result<Option<MembershipAccess>, StoreError>;

    /// Creates the account with its owner, in one transaction. `account.slug` is the wished one: the store MUST
    /// number it (`text::slugs`) until it is unique, also against a concurrent create, and returns what it stored.
    async fn create(&self, account: &Account, owner: UserId) -> Result<Account, StoreError>;

    /// Sets `last_active_at` and returns the membership; none when the user is no member, or the account suspended and
    /// the membership not one of support mode.
    async fn switch(
        &self,
        user: UserId,
        account: AccountId,
        now: OffsetDateTime,
    ) -> Result<Option<Membership>, StoreError>;
}
