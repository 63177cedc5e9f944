//! What insights need from the store. Every method sees the one account alone, and one moment of it.

use async_trait::async_trait;

use super::super::{OffsetInterval, Window};
use super::{CampaignTotals, DashboardTotals, HeatCell, MessageCounts, NewSince};
use crate::shared::{AccountId, StoreError};

/// Totals, summed from what is kept counted.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InsightStore: Send + Sync {
    /// How the account stands. Contacts and conversations are those that its lists show; messages all that ever left
    /// or came, also those of campaigns that were deleted.
    async fn dashboard(&self, account: AccountId, new_since: &NewSince) -> Result<DashboardTotals, StoreError>;

    /// The messages of each day of the window, in the order of its days: those of campaigns, replies, and those from
    /// outside, by the moment at which they were made. Tests are left out.
    async fn messages(&self, account: AccountId, window: &Window) -> Result<Vec<MessageCounts>, StoreError>;

    /// The campaigns executed last in the window, latest first, up to `limit`; deleted ones are left out.
    async fn campaigns(
        &self,
        account: AccountId,
        window: &Window,
        limit: i64,
    ) -> Result<Vec<CampaignTotals>, StoreError>;

    /// Messages from outside by day of the week and hour, as the clocks of the offset intervals show them; only
    /// hours that have any, by day and then by hour.
    async fn heat_map(
        &self,
        account: AccountId,
        offset_intervals: &[OffsetInterval],
    ) -> Result<Vec<HeatCell>, StoreError>;
}
