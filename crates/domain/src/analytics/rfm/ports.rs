//! The port of RFM scores.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{RfmClaim, RfmSegment, RfmTotals};
use crate::shared::{AccountId, LeaseOutcome, StoreError};

/// RFM scores and their calculations. Each account has one calculation row, so that it never has two calculations.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RfmStore: Send + Sync {
    /// Returns the account's number of paid orders and the sizes of its RFM segments.
    async fn totals(&self, account: AccountId) -> Result<RfmTotals, StoreError>;

    /// Makes the account's calculation due now. Has no effect if it is already due or running.
    async fn request(&self, account: AccountId) -> Result<(), StoreError>;

    /// Returns up to `limit` accounts without a planned calculation.
    async fn unplanned(&self, limit: i64) -> Result<Vec<AccountId>, StoreError>;

    /// Plans the first calculation of accounts. Existing plans do not change.
    async fn plan(&self, due: &[(AccountId, OffsetDateTime)]) -> Result<(), StoreError>;

    /// Claims the longest due calculation that no worker holds, for the lease.
    async fn claim(&self, worker: uuid::Uuid, lease: Duration) -> Result<Option<AccountId>, StoreError>;

    /// Renews a claim.
    async fn renew(&self, claim: &RfmClaim, lease: Duration) -> Result<LeaseOutcome, StoreError>;

    /// Calculates the account's scores, writes those that differ in batches, and then their time and the next due time.
    /// Until then a reader may see scores of both calculations. `grid` gives the segment of each pair of recency and
    /// frequency scores. An account with fewer than `min_orders` paid orders gets no scores.
    ///
    /// Every contact that is not deleted and has a paid order gets a score. Each dimension is scored by the number of
    /// contacts with a lower value, as [`scores`](super::scores) defines.
    async fn calculate(
        &self,
        claim: &RfmClaim,
        grid: &[(i32, i32, RfmSegment)],
        min_orders: i64,
        next: OffsetDateTime,
    ) -> Result<LeaseOutcome, StoreError>;

    /// Releases a claim and makes the calculation due at `until`. The scores do not change.
    async fn postpone(&self, claim: &RfmClaim, until: OffsetDateTime) -> Result<(), StoreError>;
}
