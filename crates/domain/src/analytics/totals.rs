//! Totals that the store returns and the reports show.

use serde::Deserialize;
use uuid::Uuid;

use super::{PlatformSales, ProductSales};
use crate::shared::{Amount, AutomationId, LinkId};

/// Revenue totals of a period. `days` has every day of the period, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RevenueTotals {
    pub days: Vec<DayTotals>,
    pub ad_spend: Amount,
    pub automations: Vec<AttributedRevenue>,
    pub campaigns: Vec<AttributedRevenue>,
    pub links: Vec<LinkTotals>,
}

/// Paid orders of a day.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct DayTotals {
    pub orders: i64,
    pub revenue: Amount,
    pub attributed_orders: i64,
    pub attributed_revenue: Amount,
    pub product_costs: Amount,
    pub gateway_fees: Amount,
}

/// Paid orders that are attributed to one campaign or automation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AttributedRevenue {
    pub id: Uuid,
    pub name: String,
    pub orders: i64,
    pub revenue: Amount,
}

/// A link's clicks, and the paid orders that are attributed to it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LinkTotals {
    pub id: LinkId,
    pub short_code: String,
    pub original_url: String,
    pub clicks: i64,
    pub orders: i64,
    pub revenue: Amount,
}

/// Totals of a period's orders and carts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct EcommerceTotals {
    pub days: Vec<SalesTotals>,
    pub placed: i64,
    pub pending: i64,
    pub cancelled: i64,
    pub refunded: i64,
    pub carts: i64,
    pub recovered: i64,
    pub platforms: Vec<PlatformSales>,
    pub products: Vec<ProductSales>,
}

/// Paid orders of a day, without costs and attribution.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SalesTotals {
    pub orders: i64,
    pub revenue: Amount,
}

/// Totals of a period's executions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AutomationsTotals {
    /// The automations with the most executions.
    pub automations: Vec<AutomationTotals>,
    pub completed: i64,
    pub failed: i64,
    /// The total duration of all executions, in microseconds.
    pub latency: Amount,
}

/// One automation's executions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AutomationTotals {
    pub id: AutomationId,
    pub name: String,
    pub completed: i64,
    pub failed: i64,
    pub latency: Amount,
}

/// Totals of a metric in a period.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetricPeriodTotals {
    pub metric_name: String,
    pub display_name: String,
    pub unique_contacts: i64,
    pub days: Vec<MetricDayTotals>,
}

/// A metric's events of a day.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct MetricDayTotals {
    pub events: i64,
    pub value: Amount,
}
