//! The published reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use time::{Date, OffsetDateTime};

use super::Period;
use crate::shared::schema::{Day, Timestamp};
use crate::shared::{
    Amount, AutomationId, CampaignId, ContactId, FieldErrors, LinkId, MetricEventId, StoreError, timestamp,
};

/// Serializes a date as `YYYY-MM-DD`.
pub(crate) fn day<S: serde::Serializer>(date: &Date, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(date)
}

/// The revenue of a period and its attribution.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevenueReport {
    /// The totals of the whole period.
    pub overview: RevenueOverview,
    /// Every day of the period, the oldest first.
    pub daily: Vec<RevenueDay>,
    /// The revenue attributed to each automation, the largest first.
    pub by_automation: Vec<AutomationRevenue>,
    /// The revenue attributed to each campaign, the largest first.
    pub by_campaign: Vec<CampaignRevenue>,
    /// The revenue attributed to each link, the largest first; at most 20 links.
    pub by_link: Vec<LinkRevenue>,
}

/// The revenue totals of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevenueOverview {
    /// The revenue of all paid orders, in currency units.
    #[schemars(example = 18250.4)]
    pub total_revenue: Amount,
    /// The revenue attributed to a campaign, automation or link, in currency units.
    #[schemars(example = 7410)]
    pub attributed_revenue: Amount,
    /// The shop's costs of the items of paid orders, in currency units.
    #[schemars(example = 6900.25)]
    pub product_costs: Amount,
    /// The fees of payment gateways, in currency units.
    #[schemars(example = 530.1)]
    pub gateway_fees: Amount,
    /// The ad spend, in currency units.
    #[schemars(example = 1200)]
    pub ad_spend: Amount,
    /// Revenue minus product costs, gateway fees and ad spend, in currency units.
    #[schemars(example = 9620.05)]
    pub profit: Amount,
    /// Return on ad spend: attributed revenue divided by ad spend; 0 without ad spend.
    #[schemars(example = 6.18)]
    pub roas: Amount,
    /// The number of paid orders.
    #[schemars(example = 121)]
    pub total_orders: i64,
    /// The number of paid orders with an attribution.
    #[schemars(example = 48)]
    pub attributed_orders: i64,
    /// The average value of a paid order, in currency units.
    #[schemars(example = 150.83)]
    pub avg_order_value: Amount,
}

/// The revenue of one day.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevenueDay {
    /// The day, in the time zone of the report.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "day")]
    pub date: Date,
    /// The revenue of all paid orders, in currency units.
    #[schemars(example = 980.5)]
    pub total_revenue: Amount,
    /// The revenue of the paid orders with an attribution, in currency units.
    #[schemars(example = 310)]
    pub attributed_revenue: Amount,
    /// The number of paid orders.
    #[schemars(example = 7)]
    pub order_count: i64,
}

/// The revenue attributed to an automation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutomationRevenue {
    /// The automation's id.
    pub automation_id: AutomationId,
    /// The automation's name.
    #[schemars(example = "Carrinho abandonado")]
    pub automation_name: String,
    /// The revenue of the attributed paid orders, in currency units.
    #[schemars(example = 2310.5)]
    pub revenue: Amount,
    /// The number of attributed paid orders.
    #[schemars(example = 15)]
    pub order_count: i64,
    /// The average value of an attributed order, in currency units.
    #[schemars(example = 154.03)]
    pub avg_order_value: Amount,
}

/// The revenue attributed to a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRevenue {
    /// The campaign's id.
    pub campaign_id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    pub campaign_name: String,
    /// The revenue of the attributed paid orders, in currency units.
    #[schemars(example = 4120)]
    pub revenue: Amount,
    /// The number of attributed paid orders.
    #[schemars(example = 26)]
    pub order_count: i64,
}

/// The revenue attributed to a link.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkRevenue {
    /// The link's id.
    pub link_id: LinkId,
    /// The link's short code.
    #[schemars(example = &"Ab3dE9x_2")]
    pub short_code: String,
    /// The URL that the link redirects to.
    #[schemars(example = "https://loja.example/bolos")]
    pub original_url: String,
    /// The number of clicks in the period.
    #[schemars(example = 212)]
    pub clicks: i64,
    /// The number of attributed paid orders.
    #[schemars(example = 7)]
    pub orders: i64,
    /// The revenue of the attributed orders, in currency units.
    #[schemars(example = 979.5)]
    pub revenue: Amount,
    /// Orders per hundred clicks; 0 without clicks.
    #[schemars(example = 3.3)]
    pub conversion_rate: Amount,
}

/// The orders, carts and products of a period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EcommerceReport {
    /// The totals of the whole period.
    pub overview: EcommerceOverview,
    /// The sales of each shop system, the largest revenue first.
    pub by_platform: Vec<PlatformSales>,
    /// The products with the largest revenue, at most 10.
    pub top_products: Vec<ProductSales>,
    /// Every day of the period, the oldest first.
    pub daily: Vec<SalesDay>,
}

/// The totals of orders and carts of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EcommerceOverview {
    /// The number of placed orders in any status.
    #[schemars(example = 140)]
    pub total_orders: i64,
    /// The revenue of paid orders, in currency units.
    #[schemars(example = 18250.4)]
    pub total_revenue: Amount,
    /// The average value of a paid order, in currency units.
    #[schemars(example = 150.83)]
    pub avg_ticket: Amount,
    /// The number of orders that are not paid yet.
    #[schemars(example = 9)]
    pub pending_orders: i64,
    /// The number of cancelled orders.
    #[schemars(example = 7)]
    pub cancelled_orders: i64,
    /// The number of refunded orders.
    #[schemars(example = 3)]
    pub refunded_orders: i64,
    /// The number of created carts.
    #[schemars(example = 310)]
    pub total_carts: i64,
    /// The number of recovered carts: the customer returned and bought.
    #[schemars(example = 31)]
    pub recovered_carts: i64,
    /// Recovered carts as a percentage of created carts.
    #[schemars(example = 10.0)]
    pub recovery_rate: Amount,
}

/// The sales of one shop system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformSales {
    /// The shop system, named by the account.
    #[schemars(example = &"loja")]
    pub platform: String,
    /// The number of paid orders.
    #[schemars(example = 121)]
    pub orders: i64,
    /// The revenue of paid orders, in currency units.
    #[schemars(example = 18250.4)]
    pub revenue: Amount,
}

/// The sales of one product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProductSales {
    /// The shop's own id of the product.
    #[schemars(example = "7")]
    pub product_id: String,
    /// The product's name.
    #[schemars(example = "Bolo de cenoura")]
    pub name: String,
    /// The quantity sold.
    #[schemars(example = 31)]
    pub quantity: Amount,
    /// The revenue of the product, in currency units.
    #[schemars(example = 4646.9)]
    pub revenue: Amount,
}

/// The sales of one day.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SalesDay {
    /// The day, in the time zone of the report.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "day")]
    pub date: Date,
    /// The number of paid orders.
    #[schemars(example = 7)]
    pub orders: i64,
    /// The revenue of paid orders, in currency units.
    #[schemars(example = 980.5)]
    pub revenue: Amount,
}

/// The executions of automations in a period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AutomationsReport {
    /// The automations with the most executions, at most 20.
    pub data: Vec<AutomationExecutions>,
    /// The totals of all automations.
    pub summary: ExecutionsSummary,
}

/// The executions of one automation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AutomationExecutions {
    /// The automation's id.
    pub automation_id: AutomationId,
    /// The automation's name.
    #[schemars(example = "Carrinho abandonado")]
    pub automation_name: String,
    /// The number of executions.
    #[schemars(example = 410)]
    pub total_executions: i64,
    /// The number of completed executions.
    #[schemars(example = 402)]
    pub completed: i64,
    /// The number of failed executions.
    #[schemars(example = 8)]
    pub failed: i64,
    /// The average duration of an execution, in seconds.
    #[schemars(example = 1.42)]
    pub avg_latency_seconds: Amount,
}

/// The executions of all automations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionsSummary {
    /// The number of executions.
    #[schemars(example = 410)]
    pub total_executions: i64,
    /// Completed executions as a percentage of all executions.
    #[schemars(example = 98.05)]
    pub success_rate: Amount,
    /// The average duration of an execution, in seconds.
    #[schemars(example = 1.42)]
    pub avg_latency: Amount,
}

/// The metrics of the account.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MetricsReport {
    /// The metrics, the one with the most events first.
    pub metrics: Vec<Metric>,
    /// Every system that ever reported a metric event, in alphabetical order.
    #[schemars(example = ["loja", "site"])]
    pub available_sources: Vec<String>,
}

/// A metric with its all-time totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The metric's name for programs.
    #[schemars(example = &"page_view")]
    pub metric_name: String,
    /// The metric's display name.
    #[schemars(example = "Páginas vistas")]
    pub display_name: String,
    /// The systems that reported events of the metric.
    #[schemars(example = ["site"])]
    pub sources: Vec<String>,
    /// The number of events.
    #[schemars(example = 5120)]
    pub total_events: i64,
    /// The total value of the events.
    #[schemars(example = 0)]
    pub total_value: Amount,
    /// When the latest event happened; null without events.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_event_at: Option<OffsetDateTime>,
    /// The metric's category; null if it has none.
    #[schemars(example = &"site")]
    pub category: Option<String>,
}

/// One metric in a period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MetricReport {
    /// The metric's name for programs.
    #[schemars(example = &"page_view")]
    pub metric_name: String,
    /// The metric's display name.
    #[schemars(example = "Páginas vistas")]
    pub display_name: String,
    /// The period of the report.
    pub period: Period,
    /// The totals of the whole period.
    pub summary: MetricSummary,
    /// Every day of the period, also those without events, the oldest first.
    pub daily: Vec<MetricDay>,
}

/// The totals of a metric in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct MetricSummary {
    /// The number of events.
    #[schemars(example = 812)]
    pub total_events: i64,
    /// The total value of the events.
    #[schemars(example = 1218)]
    pub total_value: Amount,
    /// The average value of an event.
    #[schemars(example = 1.5)]
    pub avg_value: Amount,
    /// The number of contacts with an event.
    #[schemars(example = 230)]
    pub unique_contacts: i64,
}

/// One day of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MetricDay {
    /// The day, in the time zone of the report.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "day")]
    pub date: Date,
    /// The number of events.
    #[schemars(example = 31)]
    pub count: i64,
    /// The total value of the events.
    #[schemars(example = 46.5)]
    pub value: Amount,
}

/// The contacts with the largest totals of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TopContacts {
    /// The contacts, the largest total value first.
    pub contacts: Vec<TopContact>,
}

/// A contact with its totals of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopContact {
    /// The contact's id.
    pub contact_id: ContactId,
    /// The contact's name.
    #[schemars(example = "Ana Lima")]
    pub contact_name: String,
    /// The number of the contact's events.
    #[schemars(example = 12)]
    pub event_count: i64,
    /// The total value of the events.
    #[schemars(example = 18)]
    pub total_value: Amount,
    /// When the contact's latest event happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub last_event_at: OffsetDateTime,
}

/// Events of a metric, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// The events.
    pub items: Vec<MetricEvent>,
    /// The `cursor` of the next page; null on the last page.
    pub next_cursor: Option<MetricEventId>,
}

/// An event of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricEvent {
    /// The event's id.
    pub id: MetricEventId,
    /// The contact's name; null if the event has no contact or the contact was deleted.
    #[schemars(example = "Ana Lima")]
    pub contact_name: Option<String>,
    /// The contact of the event; null if no contact has the reported phone number.
    pub contact_id: Option<ContactId>,
    /// The value of the event; null if it was not reported.
    #[schemars(example = 1.5)]
    pub value: Option<Amount>,
    /// The currency of `value`; null if it was not reported.
    #[schemars(example = &"BRL")]
    pub currency: Option<String>,
    /// The system that reported the event.
    #[schemars(example = &"site")]
    pub source: String,
    /// Additional data of the event.
    #[schemars(example = serde_json::json!({"path": "/bolos"}))]
    pub properties: Map<String, Value>,
    /// When the event happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub occurred_at: OffsetDateTime,
}

/// The result of reading a metric's events.
#[derive(Clone, Debug, PartialEq)]
pub enum ActivityRead {
    /// The metric has no events.
    NoMetric,
    /// The metric has no event with the cursor's id.
    NoCursor,
    /// The events after the cursor, newest first: one more than requested if more follow.
    Events(Vec<MetricEvent>),
}

/// Why a report failed.
#[derive(Debug, Error)]
pub enum AnalyticsError {
    /// The account has no such metric or other resource.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}
