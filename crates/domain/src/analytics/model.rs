//! What the reports show, field by field as published.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::Period;
use crate::shared::{
    Amount, AutomationId, CampaignId, ContactId, FieldErrors, LinkId, MetricEventId, StoreError, timestamp,
};

/// `YYYY-MM-DD`.
pub(crate) fn day<S: serde::Serializer>(date: &Date, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(date)
}

/// Revenue, and what it is owed to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevenueReport {
    pub overview: RevenueOverview,
    pub daily: Vec<RevenueDay>,
    pub by_automation: Vec<AutomationRevenue>,
    pub by_campaign: Vec<CampaignRevenue>,
    pub by_link: Vec<LinkRevenue>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevenueOverview {
    pub total_revenue: Amount,
    pub attributed_revenue: Amount,
    pub product_costs: Amount,
    pub gateway_fees: Amount,
    pub ad_spend: Amount,
    pub profit: Amount,
    pub roas: Amount,
    pub total_orders: i64,
    pub attributed_orders: i64,
    pub avg_order_value: Amount,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevenueDay {
    #[serde(serialize_with = "day")]
    pub date: Date,
    pub total_revenue: Amount,
    pub attributed_revenue: Amount,
    pub order_count: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutomationRevenue {
    pub automation_id: AutomationId,
    pub automation_name: String,
    pub revenue: Amount,
    pub order_count: i64,
    pub avg_order_value: Amount,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRevenue {
    pub campaign_id: CampaignId,
    pub campaign_name: String,
    pub revenue: Amount,
    pub order_count: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkRevenue {
    pub link_id: LinkId,
    pub short_code: String,
    pub original_url: String,
    pub clicks: i64,
    pub orders: i64,
    pub revenue: Amount,
    pub conversion_rate: Amount,
}

/// Orders, carts and products.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EcommerceReport {
    pub overview: EcommerceOverview,
    pub by_platform: Vec<PlatformSales>,
    pub top_products: Vec<ProductSales>,
    pub daily: Vec<SalesDay>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EcommerceOverview {
    pub total_orders: i64,
    pub total_revenue: Amount,
    pub avg_ticket: Amount,
    pub pending_orders: i64,
    pub cancelled_orders: i64,
    pub refunded_orders: i64,
    pub total_carts: i64,
    pub recovered_carts: i64,
    pub recovery_rate: Amount,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlatformSales {
    pub platform: String,
    pub orders: i64,
    pub revenue: Amount,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductSales {
    pub product_id: String,
    pub name: String,
    pub quantity: Amount,
    pub revenue: Amount,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SalesDay {
    #[serde(serialize_with = "day")]
    pub date: Date,
    pub orders: i64,
    pub revenue: Amount,
}

/// What automations did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AutomationsReport {
    pub data: Vec<AutomationExecutions>,
    pub summary: ExecutionsSummary,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AutomationExecutions {
    pub automation_id: AutomationId,
    pub automation_name: String,
    pub total_executions: i64,
    pub completed: i64,
    pub failed: i64,
    pub avg_latency_seconds: Amount,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionsSummary {
    pub total_executions: i64,
    pub success_rate: Amount,
    pub avg_latency: Amount,
}

/// Every metric of the account.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricsReport {
    pub metrics: Vec<Metric>,
    pub available_sources: Vec<String>,
}

/// A metric and its totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    pub metric_name: String,
    pub display_name: String,
    pub sources: Vec<String>,
    pub total_events: i64,
    pub total_value: Amount,
    #[serde(with = "timestamp::option")]
    pub last_event_at: Option<OffsetDateTime>,
    pub category: Option<String>,
}

/// One metric over a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricReport {
    pub metric_name: String,
    pub display_name: String,
    pub period: Period,
    pub summary: MetricSummary,
    pub daily: Vec<MetricDay>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MetricSummary {
    pub total_events: i64,
    pub total_value: Amount,
    pub avg_value: Amount,
    pub unique_contacts: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricDay {
    #[serde(serialize_with = "day")]
    pub date: Date,
    pub count: i64,
    pub value: Amount,
}

/// Whom a metric counts most of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopContacts {
    pub contacts: Vec<TopContact>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopContact {
    pub contact_id: ContactId,
    pub contact_name: String,
    pub event_count: i64,
    pub total_value: Amount,
    #[serde(with = "timestamp")]
    pub last_event_at: OffsetDateTime,
}

/// A part of a metric's events, newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub items: Vec<MetricEvent>,
    pub next_cursor: Option<MetricEventId>,
}

/// An event of a metric. Its contact is empty when nobody is known by the phone that was told; the name alone, when the
/// contact was deleted since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricEvent {
    pub id: MetricEventId,
    pub contact_name: Option<String>,
    pub contact_id: Option<ContactId>,
    pub value: Option<Amount>,
    pub currency: Option<String>,
    pub source: String,
    pub properties: Map<String, Value>,
    #[serde(with = "timestamp")]
    pub occurred_at: OffsetDateTime,
}

/// What the store knows of a period's revenue; the days are those of the period, in order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RevenueFigures {
    pub days: Vec<DayFigures>,
    pub ad_spend: Amount,
    pub automations: Vec<Credit>,
    pub campaigns: Vec<Credit>,
    pub links: Vec<LinkFigures>,
}

/// Paid orders of a day.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct DayFigures {
    pub orders: i64,
    pub revenue: Amount,
    pub attributed_orders: i64,
    pub attributed_revenue: Amount,
    pub product_costs: Amount,
    pub gateway_fees: Amount,
}

/// Paid orders that are owed to something.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Credit {
    pub id: Uuid,
    pub name: String,
    pub orders: i64,
    pub revenue: Amount,
}

/// A link's clicks, and the paid orders owed to it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LinkFigures {
    pub id: LinkId,
    pub short_code: String,
    pub original_url: String,
    pub clicks: i64,
    pub orders: i64,
    pub revenue: Amount,
}

/// What the store knows of a period's orders and carts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct EcommerceFigures {
    pub days: Vec<SalesFigures>,
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
pub struct SalesFigures {
    pub orders: i64,
    pub revenue: Amount,
}

/// What the store knows of a period's executions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AutomationsFigures {
    /// Those that ran most.
    pub automations: Vec<AutomationFigures>,
    pub completed: i64,
    pub failed: i64,
    /// Microseconds, of all of them together.
    pub latency: Amount,
}

/// One automation's executions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AutomationFigures {
    pub id: AutomationId,
    pub name: String,
    pub completed: i64,
    pub failed: i64,
    pub latency: Amount,
}

/// What the store knows of a metric over a period.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MetricFigures {
    pub metric_name: String,
    pub display_name: String,
    pub unique_contacts: i64,
    pub days: Vec<MetricDayFigures>,
}

/// A metric's events of a day.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct MetricDayFigures {
    pub events: i64,
    pub value: Amount,
}

/// What the store answers a feed with.
#[derive(Clone, Debug, PartialEq)]
pub enum ActivityRead {
    /// No event was ever recorded under this name.
    NoMetric,
    /// No event of this metric has the cursor's id.
    NoCursor,
    /// The events after the cursor, newest first; one more than asked for when there is one.
    Events(Vec<MetricEvent>),
}

/// Why a report cannot be shown.
#[derive(Debug, Error)]
pub enum AnalyticsError {
    /// No such metric in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
