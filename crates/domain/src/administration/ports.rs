//! Database ports of administration. All methods see every account, because administrators belong to no tenant.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    AccountChange, AccountDetail, AccountFilter, AccountRow, Admin, DayChurn, DayRevenue, Days, GatewayCancellation,
    PlatformAuditFilter, PlatformAuditLog, PlatformEntry, SubscriptionTotals, Totals,
};
use crate::accounts::{Account, AccountStatus};
use crate::billing::{Change, ChangeOutcome};
use crate::shared::{AccountId, Event, Page, PageQuery, RowOutcome, StoreError, SubscriptionId, UserId, WorkOutcome};
use crate::team::InviteInsert;

/// Outcome of updating an account.
#[derive(Clone, Debug, PartialEq)]
pub enum AccountUpdate {
    /// The updated account, and whether a mail to its invited owner was queued.
    Done(Account, bool),
    /// The account does not exist.
    Missing,
    /// Not updated: the account already has an owner, so an administrator cannot invite one.
    Owned,
    /// Not updated: the invited user is already a member.
    Member,
}

/// Accounts of all tenants. An account whose deletion has begun does not exist for these methods. A method that takes
/// a [`PlatformEntry`] MUST insert it in the transaction of its change, and only if it changes something.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AdministrationStore: Send + Sync {
    async fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError>;

    /// Inserts an account without members, and the owner's invite in the same transaction. If `is_given`, a taken slug
    /// is [`StoreError::Duplicate`]. Otherwise a number is appended until the slug is free. Also returns whether a mail
    /// to the owner was queued.
    async fn create(
        &self,
        account: &Account,
        is_given: bool,
        owner: Option<InviteInsert>,
        entry: PlatformEntry,
    ) -> Result<(Account, bool), StoreError>;

    /// Updates an account. A taken slug is [`StoreError::Duplicate`]. An invite for an owner revokes all other owner
    /// invites of the account. MUST change nothing and return `Owned` if the account has an owner. MUST add
    /// [`AccountChange::differences`] to the entry.
    async fn update(
        &self,
        id: AccountId,
        change: &AccountChange,
        owner: Option<InviteInsert>,
        entry: PlatformEntry,
    ) -> Result<AccountUpdate, StoreError>;

    /// Sets the status and appends the outbox events.
    async fn set_status(
        &self,
        id: AccountId,
        status: AccountStatus,
        events: &[Event],
        entry: PlatformEntry,
    ) -> Result<RowOutcome, StoreError>;

    /// Grants a plan; the free plan withdraws the grant. MUST set the account's plan to the better of the granted and
    /// the paid plan, and append the outbox events.
    async fn set_plan(
        &self,
        id: AccountId,
        plan: &str,
        events: &[Event],
        entry: PlatformEntry,
    ) -> Result<RowOutcome, StoreError>;

    /// Writes a change of a paid subscription, with the same outcomes as
    /// [`SubscriptionStore::write`](crate::billing::SubscriptionStore::write).
    async fn change_subscription(&self, change: &Change, entry: PlatformEntry) -> Result<ChangeOutcome, StoreError>;

    /// Ends all sessions and the support mode of a user, as
    /// [`SessionStore::end_all`](crate::accounts::SessionStore::end_all) does.
    async fn end_sessions(
        &self,
        user: UserId,
        at: OffsetDateTime,
        entry: PlatformEntry,
    ) -> Result<Option<OffsetDateTime>, StoreError>;
}

/// Reports over the accounts of all tenants. An account whose deletion has begun is not in them.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AdministrationReportStore: Send + Sync {
    /// Returns one page of the accounts that match a filter, newest first, with the exact total. The result MUST equal
    /// filtering the complete list. Messages are counted from `since` on.
    async fn list(
        &self,
        filter: &AccountFilter,
        page: PageQuery,
        since: OffsetDateTime,
    ) -> Result<Page<AccountRow>, StoreError>;

    async fn detail(&self, id: AccountId) -> Result<Option<AccountDetail>, StoreError>;

    async fn totals(&self) -> Result<Totals, StoreError>;

    /// Sums all subscriptions. Churn is counted from `since` to `now`.
    async fn subscriptions(&self, since: OffsetDateTime, now: OffsetDateTime)
    -> Result<SubscriptionTotals, StoreError>;

    /// Returns the revenue of each day. Days without a payment may be missing.
    async fn revenue(&self, days: Days) -> Result<Vec<DayRevenue>, StoreError>;

    /// Returns the churn of every day, oldest first.
    async fn churn(&self, days: Days) -> Result<Vec<DayChurn>, StoreError>;
}

/// The platform audit log. Nothing changes or deletes its entries.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait PlatformAuditStore: Send + Sync {
    /// Returns one page of the matching entries, newest first (by time, then by id), with the exact total.
    async fn page(&self, filter: &PlatformAuditFilter, page: PageQuery) -> Result<Page<PlatformAuditLog>, StoreError>;
}

/// Memberships of support mode. MUST NOT change regular memberships. MUST insert the entry of the platform audit log in
/// the transaction of the change.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SupportStore: Send + Sync {
    /// Gives the administrator a temporary membership until `expires_at`, and removes the one in `leaving`. An existing
    /// temporary membership is extended; a regular one is left unchanged. MUST append the outbox events. Returns the
    /// account's name, or `None` if the account does not exist.
    async fn start(
        &self,
        admin: &Admin,
        account: AccountId,
        leaving: Option<AccountId>,
        expires_at: OffsetDateTime,
        events: &[Event],
        entry: PlatformEntry,
    ) -> Result<Option<String>, StoreError>;

    /// Removes a temporary membership and inserts the entry, also if there was no membership
    /// (`Missing`).
    async fn stop(&self, user: UserId, account: AccountId, entry: PlatformEntry) -> Result<RowOutcome, StoreError>;

    /// Removes up to `limit` expired temporary memberships. Returns how many.
    async fn sweep(&self, limit: i64) -> Result<usize, StoreError>;
}

/// Queue of account deletions, and of their cancellations at the payment gateway.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeletionStore: Send + Sync {
    /// Begins a deletion: from now on no session, API key or callback finds the account. In the same transaction MUST
    /// insert the deletion, leased to the caller, the cancellations that the payment gateway may need, and the entry of
    /// the platform audit log with the account's name, slug and plan. `Missing`: the account does not exist, or
    /// its deletion has already begun.
    async fn begin(
        &self,
        account: AccountId,
        lease: Duration,
        watched_until: OffsetDateTime,
        entry: PlatformEntry,
    ) -> Result<RowOutcome, StoreError>;

    /// Claims a deletion whose lease has expired. No other caller receives it before the new lease expires.
    async fn claim(&self, lease: Duration) -> Result<Option<AccountId>, StoreError>;

    /// Deletes a batch of the account's rows from every table and renews the lease.
    async fn purge(&self, account: AccountId, lease: Duration) -> Result<WorkOutcome, StoreError>;

    /// Deletes the account's row and its deletion.
    async fn end(&self, account: AccountId) -> Result<(), StoreError>;

    /// Returns the pending gateway cancellations of the account.
    async fn cancellations(&self, account: AccountId) -> Result<Vec<GatewayCancellation>, StoreError>;

    /// Claims a due gateway cancellation of any account. It is due again after `pause`.
    async fn claim_cancellation(&self, pause: Duration) -> Result<Option<GatewayCancellation>, StoreError>;

    /// Deletes a cancellation that is completed or no longer needed.
    async fn delete_cancellation(&self, id: SubscriptionId) -> Result<(), StoreError>;
}
