//! What the store knows of what the reports show.

use serde::Deserialize;
use uuid::Uuid;

use super::{PlatformSales, ProductSales};
use crate::shared::{Amount, AutomationId, LinkId};

/// What the store knows of a period's revenue; the days are those of the period, in order.
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

/// Paid orders that are owed to something.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AttributedRevenue {
    pub id: Uuid,
    pub name: String,
    pub orders: i64,
    pub revenue: Amount,
}

/// A link's clicks, and the paid orders owed to it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LinkTotals {
    pub id: LinkId,
    pub short_code: String,
    pub original_url: String,
    pub clicks: i64,
    pub orders: i64,
    pub revenue: Amount,
}

/// What the store knows of a period's orders and carts.
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

/// Paid orders of a day, without what they cost.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SalesTotals {
    pub orders: i64,
    pub revenue: Amount,
}

/// What the store knows of a period's executions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AutomationsTotals {
    /// Those that ran most.
    pub automations: Vec<AutomationTotals>,
    pub completed: i64,
    pub failed: i64,
    /// Microseconds, of all of them together.
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

/// What the store knows of a metric over a period.
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
