//! The port of analytics. Every method MUST see only the given account, in one snapshot.

use async_trait::async_trait;

use super::{
    ActivityRead, AutomationsTotals, EcommerceTotals, Metric, MetricPeriodTotals, RevenueTotals, TopContact, Window,
};
use crate::shared::{AccountId, MetricEventId, StoreError};

/// Exact totals, without rounding.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AnalyticsStore: Send + Sync {
    /// Revenue totals. Attributed revenue is sorted by revenue, largest first, then by id, and has at most `links`
    /// links.
    async fn revenue(&self, account: AccountId, window: &Window, links: i64) -> Result<RevenueTotals, StoreError>;

    /// Totals of orders and carts. Platforms and products are sorted by revenue, largest first, then by name or id.
    /// There are at most `products` products.
    async fn ecommerce(
        &self,
        account: AccountId,
        window: &Window,
        products: i64,
    ) -> Result<EcommerceTotals, StoreError>;

    /// Totals of the executions that started in the window, by automation, most executions first, at most
    /// `automations`.
    async fn automations(
        &self,
        account: AccountId,
        window: &Window,
        automations: i64,
    ) -> Result<AutomationsTotals, StoreError>;

    /// All metrics, or those with `source`, sorted by number of events, most first; and all sources of the account,
    /// sorted.
    async fn metrics<'a>(
        &self,
        account: AccountId,
        source: Option<&'a str>,
    ) -> Result<(Vec<Metric>, Vec<String>), StoreError>;

    /// Totals of one metric, or `None` if it has no events. The window ends today, so a contact counts if its last
    /// event is in the window or after it.
    async fn metric(
        &self,
        account: AccountId,
        name: &str,
        window: &Window,
    ) -> Result<Option<MetricPeriodTotals>, StoreError>;

    /// The contacts with the largest total value, largest first, then by id, without deleted contacts. Returns `None`
    /// if the metric has no events.
    async fn top_contacts(
        &self,
        account: AccountId,
        name: &str,
        limit: i64,
    ) -> Result<Option<Vec<TopContact>>, StoreError>;

    /// Keyset pagination: up to `limit + 1` events that are older than the cursor's event, by time and id, newest
    /// first.
    async fn activity(
        &self,
        account: AccountId,
        name: &str,
        cursor: Option<MetricEventId>,
        limit: i64,
    ) -> Result<ActivityRead, StoreError>;
}
