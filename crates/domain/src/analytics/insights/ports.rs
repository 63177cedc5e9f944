//! The port of insights. Every method MUST see only the given account, in one snapshot.

use async_trait::async_trait;

use super::super::{OffsetInterval, Window};
use super::{CampaignTotals, DashboardTotals, HeatCell, MessageCounts, NewSince};
use crate::shared::{AccountId, StoreError};

/// Totals from the rollups.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InsightStore: Send + Sync {
    /// Totals of the dashboard. Contacts and conversations are those that the lists show. Messages are all that were
    /// ever sent or received, including those of deleted campaigns.
    async fn dashboard(&self, account: AccountId, new_since: &NewSince) -> Result<DashboardTotals, StoreError>;

    /// Counts the messages of each day of the window, in the order of the days: campaign messages, replies and received
    /// messages, by their creation time. Excludes test sends.
    async fn messages(&self, account: AccountId, window: &Window) -> Result<Vec<MessageCounts>, StoreError>;

    /// The campaigns that were executed in the window, latest first, up to `limit`, without deleted ones.
    async fn campaigns(
        &self,
        account: AccountId,
        window: &Window,
        limit: i64,
    ) -> Result<Vec<CampaignTotals>, StoreError>;

    /// Counts received messages by day of the week and hour in local time, which the offset intervals define. Returns
    /// only hours with messages, sorted by day and hour.
    async fn heat_map(
        &self,
        account: AccountId,
        offset_intervals: &[OffsetInterval],
    ) -> Result<Vec<HeatCell>, StoreError>;
}
