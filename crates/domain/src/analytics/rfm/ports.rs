//! What RFM needs from the store.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{RfmClaim, RfmSegment, RfmTotals};
use crate::shared::{AccountId, StoreError};

/// Scores, and when they are calculated. A calculation is one row an account, so that no account has two.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RfmStore: Send + Sync {
    /// What is known of the account's customers.
    async fn totals(&self, account: AccountId) -> Result<RfmTotals, StoreError>;

    /// The account's calculation is due now; nothing changes when it already is, or is under way.
    async fn request(&self, account: AccountId) -> Result<(), StoreError>;

    /// Up to `limit` accounts whose calculation was never due.
    async fn unplanned(&self, limit: i64) -> Result<Vec<AccountId>, StoreError>;

    /// When calculations are due for the first time; those that are planned already stay as they are.
    async fn plan(&self, due: &[(AccountId, OffsetDateTime)]) -> Result<(), StoreError>;

    /// Takes up the calculation that is due longest and that nobody is at, for as long as the lease.
    async fn claim(&self, worker: uuid::Uuid, lease: Duration) -> Result<Option<AccountId>, StoreError>;

    /// Keeps a calculation; false when somebody else has it.
    async fn renew(&self, claim: &RfmClaim, lease: Duration) -> Result<bool, StoreError>;

    /// Replaces all scores of the account, each with the segment of its cell in `grid`, in one transaction with their
    /// moment and the next time that they are due; none are left where the account has fewer than `enough` paid
    /// orders. False, and nothing is written, when somebody else has the calculation.
    ///
    /// Scored are contacts who are there and have a paid order, each dimension by how many of them are below.
    async fn calculate(
        &self,
        claim: &RfmClaim,
        grid: &[(i32, i32, RfmSegment)],
        min_orders: i64,
        next: OffsetDateTime,
    ) -> Result<bool, StoreError>;

    /// Gives a calculation up until later; the scores stay as they were.
    async fn postpone(&self, claim: &RfmClaim, until: OffsetDateTime) -> Result<(), StoreError>;
}
