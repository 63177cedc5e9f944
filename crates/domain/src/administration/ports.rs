//! What the platform needs from the store. All of it crosses tenants: administrators belong to none.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    AccountChange, AccountDetail, AccountFilter, AccountRow, Admin, DayChurn, DayRevenue, Days, GatewayCancellation,
    SubscriptionTotals, Totals,
};
use crate::accounts::{Account, AccountStatus};
use crate::shared::{AccountId, Event, Page, PageQuery, StoreError, SubscriptionId, UserId};
use crate::team::InviteInsert;

/// What came of changing an account.
#[derive(Clone, Debug, PartialEq)]
pub enum AccountUpdate {
    /// As it is now.
    Done(Account),
    /// There is none.
    Missing,
    /// It has an owner, and no other one can be invited from above.
    Owned,
    /// Whoever was to be invited is a member already.
    Member,
}

/// Accounts from above. An account that is being removed is none.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AdministrationStore: Send + Sync {
    /// One page of the accounts that a filter lets through, the newest first, and their exact number. The answer MUST be
    /// that of filtering the list of all of them. Messages are counted from `since` on.
    async fn list(
        &self,
        filter: &AccountFilter,
        page: PageQuery,
        since: OffsetDateTime,
    ) -> Result<Page<AccountRow>, StoreError>;

    /// One account.
    async fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError>;

    /// One account in full.
    async fn detail(&self, id: AccountId) -> Result<Option<AccountDetail>, StoreError>;

    /// Makes an account that nobody is in. A slug that `is_given` and taken is [`StoreError::Duplicate`]; any other is
    /// numbered until it is free.
    /// With an invite for whoever is to own it, both or neither.
    async fn create(
        &self,
        account: &Account,
        is_given: bool,
        owner: Option<InviteInsert>,
    ) -> Result<Account, StoreError>;

    /// Changes an account. A slug that is taken is [`StoreError::Duplicate`]. With an invite for whoever is to own it,
    /// which takes back every other one for an owner; MUST be refused, and nothing changed, where the account has an
    /// owner.
    async fn update(
        &self,
        id: AccountId,
        change: &AccountChange,
        owner: Option<InviteInsert>,
    ) -> Result<AccountUpdate, StoreError>;

    /// Opens or closes an account; false when there is none.
    async fn set_status(&self, id: AccountId, status: AccountStatus, events: &[Event]) -> Result<bool, StoreError>;

    /// Grants a plan to an account without a subscription to change; the free plan withdraws the grant. The account's
    /// plan becomes the better of it and what is paid for. False when there is no such account.
    async fn set_plan(&self, id: AccountId, plan: &str, events: &[Event]) -> Result<bool, StoreError>;

    /// How many there are of what.
    async fn totals(&self) -> Result<Totals, StoreError>;

    /// What subscriptions amount to; churn since `since`.
    async fn subscriptions(&self, since: OffsetDateTime, now: OffsetDateTime)
    -> Result<SubscriptionTotals, StoreError>;

    /// What was paid on each of these days; those without a payment may be missing.
    async fn revenue(&self, days: Days) -> Result<Vec<DayRevenue>, StoreError>;

    /// What became of subscriptions on each of these days, the oldest first, every day.
    async fn churn(&self, days: Days) -> Result<Vec<DayChurn>, StoreError>;
}

/// Memberships of support mode. What is somebody's own is never touched.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SupportStore: Send + Sync {
    /// Lends the administrator a membership until `expires_at`, longer where one is lent already, none where they have
    /// one of their own; takes back the one in `leaving`. The account's name; none when there is no such account.
    async fn start(
        &self,
        admin: &Admin,
        account: AccountId,
        leaving: Option<AccountId>,
        expires_at: OffsetDateTime,
        events: &[Event],
    ) -> Result<Option<String>, StoreError>;

    /// Takes back what was lent. False: nothing was.
    async fn stop(&self, user: UserId, account: AccountId) -> Result<bool, StoreError>;

    /// Takes back up to `limit` of those that are over. How many.
    async fn sweep(&self, limit: i64) -> Result<usize, StoreError>;
}

/// Accounts on their way out.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeletionStore: Send + Sync {
    /// From now on the account is nobody's: no session, no key, no callback finds it. In the same transaction it is
    /// written down that its rows are to be removed, by the caller for the time of the lease, and what may have to be
    /// cancelled at the payment gateway. False when there is no such account, or it is being removed already.
    async fn begin(
        &self,
        account: AccountId,
        lease: Duration,
        watched_until: OffsetDateTime,
    ) -> Result<bool, StoreError>;

    /// Takes an account whose removal nobody is at. Nobody else gets it before the lease is over.
    async fn claim(&self, lease: Duration) -> Result<Option<AccountId>, StoreError>;

    /// Removes some rows of the account, from every table, and renews the lease. False: no more were found.
    async fn purge(&self, account: AccountId, lease: Duration) -> Result<bool, StoreError>;

    /// Removes the account itself, and the note that it is to be removed.
    async fn end(&self, account: AccountId) -> Result<(), StoreError>;

    /// What the account may still have at the gateway.
    async fn cancellations(&self, account: AccountId) -> Result<Vec<GatewayCancellation>, StoreError>;

    /// Takes one that is due, of any account; it comes up again after the pause.
    async fn claim_cancellation(&self, pause: Duration) -> Result<Option<GatewayCancellation>, StoreError>;

    /// Deletes a cancellation that is completed or no longer needed.
    async fn delete_cancellation(&self, id: SubscriptionId) -> Result<(), StoreError>;
}
