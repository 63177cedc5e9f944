//! What analytics needs from the store. Every method sees the one account alone, and one moment of it.

use async_trait::async_trait;

use super::{
    ActivityRead, AutomationsTotals, EcommerceTotals, Metric, MetricPeriodTotals, RevenueTotals, TopContact, Window,
};
use crate::shared::{AccountId, MetricEventId, StoreError};

/// Totals, summed from what was recorded; none is rounded.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AnalyticsStore: Send + Sync {
    /// Revenue. What it is owed to is sorted by revenue, largest first, then by id; of the links the first `links`.
    async fn revenue(&self, account: AccountId, window: &Window, links: i64) -> Result<RevenueTotals, StoreError>;

    /// Orders and carts. Platforms and products are sorted by revenue, largest first, then by themselves; of the
    /// products the first `products`.
    async fn ecommerce(
        &self,
        account: AccountId,
        window: &Window,
        products: i64,
    ) -> Result<EcommerceTotals, StoreError>;

    /// Executions that started in the window, by automation, most first; of the automations the first `automations`.
    async fn automations(
        &self,
        account: AccountId,
        window: &Window,
        automations: i64,
    ) -> Result<AutomationsTotals, StoreError>;

    /// Every metric that has the source (or any), by its number of events, most first; and every source of the
    /// account, sorted.
    async fn metrics<'a>(
        &self,
        account: AccountId,
        source: Option<&'a str>,
    ) -> Result<(Vec<Metric>, Vec<String>), StoreError>;

    /// One metric; none when it has no event at all. The window ends today: a contact counts when its last event lies
    /// in it or after it.
    async fn metric(
        &self,
        account: AccountId,
        name: &str,
        window: &Window,
    ) -> Result<Option<MetricPeriodTotals>, StoreError>;

    /// The contacts with the largest total value, largest first, then by id; deleted ones are left out. None when the
    /// metric has no event at all.
    async fn top_contacts(
        &self,
        account: AccountId,
        name: &str,
        limit: i64,
    ) -> Result<Option<Vec<TopContact>>, StoreError>;

    /// Up to `limit + 1` events older than the cursor's, by time and then by id, newest first.
    async fn activity(
        &self,
        account: AccountId,
        name: &str,
        cursor: Option<MetricEventId>,
        limit: i64,
    ) -> Result<ActivityRead, StoreError>;
}
