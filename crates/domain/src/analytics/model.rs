//! What the reports show, field by field as published.

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

/// `YYYY-MM-DD`.
pub(crate) fn day<S: serde::Serializer>(date: &Date, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(date)
}

/// The revenue of a period, and what it is owed to.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevenueReport {
    /// The sums of the whole period.
    pub overview: RevenueOverview,
    /// Every day of the period, the oldest first.
    pub daily: Vec<RevenueDay>,
    /// What is owed to each automation, the largest revenue first.
    pub by_automation: Vec<AutomationRevenue>,
    /// What is owed to each campaign, the largest revenue first.
    pub by_campaign: Vec<CampaignRevenue>,
    /// What came by each link, the largest revenue first; at most 20.
    pub by_link: Vec<LinkRevenue>,
}

/// The sums of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevenueOverview {
    /// All paid orders, in currency units.
    #[schemars(example = 18250.4)]
    pub total_revenue: Amount,
    /// Those of them that are owed to a campaign, an automation or a link.
    #[schemars(example = 7410)]
    pub attributed_revenue: Amount,
    /// What the goods of the paid orders cost the shop.
    #[schemars(example = 6900.25)]
    pub product_costs: Amount,
    /// What payment gateways kept.
    #[schemars(example = 530.1)]
    pub gateway_fees: Amount,
    /// What was spent on ads.
    #[schemars(example = 1200)]
    pub ad_spend: Amount,
    /// Revenue less costs, fees and ads.
    #[schemars(example = 9620.05)]
    pub profit: Amount,
    /// The attributed revenue of every unit spent on ads; 0 where nothing was spent.
    #[schemars(example = 6.18)]
    pub roas: Amount,
    /// How many orders were paid.
    #[schemars(example = 121)]
    pub total_orders: i64,
    /// How many of them are owed to something.
    #[schemars(example = 48)]
    pub attributed_orders: i64,
    /// What a paid order is worth on average.
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
    /// All paid orders, in currency units.
    #[schemars(example = 980.5)]
    pub total_revenue: Amount,
    /// Those of them that are owed to something.
    #[schemars(example = 310)]
    pub attributed_revenue: Amount,
    /// How many orders were paid.
    #[schemars(example = 7)]
    pub order_count: i64,
}

/// The revenue that is owed to an automation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutomationRevenue {
    /// The automation's id.
    pub automation_id: AutomationId,
    /// The automation's name.
    #[schemars(example = "Carrinho abandonado")]
    pub automation_name: String,
    /// Its paid orders, in currency units.
    #[schemars(example = 2310.5)]
    pub revenue: Amount,
    /// How many they are.
    #[schemars(example = 15)]
    pub order_count: i64,
    /// What one of them is worth on average.
    #[schemars(example = 154.03)]
    pub avg_order_value: Amount,
}

/// The revenue that is owed to a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CampaignRevenue {
    /// The campaign's id.
    pub campaign_id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    pub campaign_name: String,
    /// Its paid orders, in currency units.
    #[schemars(example = 4120)]
    pub revenue: Amount,
    /// How many they are.
    #[schemars(example = 26)]
    pub order_count: i64,
}

/// The revenue that came by a link.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkRevenue {
    /// The link's id.
    pub link_id: LinkId,
    /// The link's code.
    #[schemars(example = &"Ab3dE9x_2")]
    pub short_code: String,
    /// Where it leads.
    #[schemars(example = "https://loja.example/bolos")]
    pub original_url: String,
    /// How often it was followed in the period.
    #[schemars(example = 212)]
    pub clicks: i64,
    /// How many paid orders came by it.
    #[schemars(example = 7)]
    pub orders: i64,
    /// What these are worth, in currency units.
    #[schemars(example = 979.5)]
    pub revenue: Amount,
    /// Orders of a hundred clicks; 0 without clicks.
    #[schemars(example = 3.3)]
    pub conversion_rate: Amount,
}

/// The orders and carts of a period, and its products.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EcommerceReport {
    /// The sums of the whole period.
    pub overview: EcommerceOverview,
    /// What each shop system sold, the largest revenue first.
    pub by_platform: Vec<PlatformSales>,
    /// The products with the largest revenue, at most 10.
    pub top_products: Vec<ProductSales>,
    /// Every day of the period, the oldest first.
    pub daily: Vec<SalesDay>,
}

/// The sums of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EcommerceOverview {
    /// How many orders were placed, in whatever status they are.
    #[schemars(example = 140)]
    pub total_orders: i64,
    /// The paid ones, in currency units.
    #[schemars(example = 18250.4)]
    pub total_revenue: Amount,
    /// What a paid order is worth on average, in currency units.
    #[schemars(example = 150.83)]
    pub avg_ticket: Amount,
    /// How many are not paid yet.
    #[schemars(example = 9)]
    pub pending_orders: i64,
    /// How many were given up.
    #[schemars(example = 7)]
    pub cancelled_orders: i64,
    /// How many were paid back.
    #[schemars(example = 3)]
    pub refunded_orders: i64,
    /// How many carts were begun.
    #[schemars(example = 310)]
    pub total_carts: i64,
    /// How many somebody came back to, and bought.
    #[schemars(example = 31)]
    pub recovered_carts: i64,
    /// Recovered carts, of a hundred that were begun.
    #[schemars(example = 10.0)]
    pub recovery_rate: Amount,
}

/// What one shop system sold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformSales {
    /// The shop system, in the account's own word.
    #[schemars(example = &"loja")]
    pub platform: String,
    /// How many orders were paid.
    #[schemars(example = 121)]
    pub orders: i64,
    /// What they are worth, in currency units.
    #[schemars(example = 18250.4)]
    pub revenue: Amount,
}

/// What was sold of one product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProductSales {
    /// The shop's own id of it.
    #[schemars(example = "7")]
    pub product_id: String,
    /// The product's name.
    #[schemars(example = "Bolo de cenoura")]
    pub name: String,
    /// How many, or how much, was sold.
    #[schemars(example = 31)]
    pub quantity: Amount,
    /// What that is worth, in currency units.
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
    /// How many orders were paid.
    #[schemars(example = 7)]
    pub orders: i64,
    /// What they are worth, in currency units.
    #[schemars(example = 980.5)]
    pub revenue: Amount,
}

/// What automations did in a period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AutomationsReport {
    /// The automations with the most executions, at most 20.
    pub data: Vec<AutomationExecutions>,
    /// All automations together.
    pub summary: ExecutionsSummary,
}

/// What one automation did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AutomationExecutions {
    /// The automation's id.
    pub automation_id: AutomationId,
    /// The automation's name.
    #[schemars(example = "Carrinho abandonado")]
    pub automation_name: String,
    /// How often it ran.
    #[schemars(example = 410)]
    pub total_executions: i64,
    /// How often it came to its end.
    #[schemars(example = 402)]
    pub completed: i64,
    /// How often it did not.
    #[schemars(example = 8)]
    pub failed: i64,
    /// How long it ran on average, in seconds.
    #[schemars(example = 1.42)]
    pub avg_latency_seconds: Amount,
}

/// What all automations did together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionsSummary {
    /// How often they ran.
    #[schemars(example = 410)]
    pub total_executions: i64,
    /// Executions that came to their end, of a hundred.
    #[schemars(example = 98.05)]
    pub success_rate: Amount,
    /// How long one ran on average, in seconds.
    #[schemars(example = 1.42)]
    pub avg_latency: Amount,
}

/// Every metric of the account.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MetricsReport {
    /// The metrics, the one with the most events first.
    pub metrics: Vec<Metric>,
    /// Every system that ever told an event, in alphabetical order.
    #[schemars(example = ["loja", "site"])]
    pub available_sources: Vec<String>,
}

/// A metric and its totals, of all time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Its name, for programs.
    #[schemars(example = &"page_view")]
    pub metric_name: String,
    /// Its name, for people.
    #[schemars(example = "Páginas vistas")]
    pub display_name: String,
    /// The systems that told its events.
    #[schemars(example = ["site"])]
    pub sources: Vec<String>,
    /// How many events there are.
    #[schemars(example = 5120)]
    pub total_events: i64,
    /// What they are worth together.
    #[schemars(example = 0)]
    pub total_value: Amount,
    /// When the latest happened; null without events.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_event_at: Option<OffsetDateTime>,
    /// Its category; null for none.
    #[schemars(example = &"site")]
    pub category: Option<String>,
}

/// One metric over a period.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MetricReport {
    /// Its name, for programs.
    #[schemars(example = &"page_view")]
    pub metric_name: String,
    /// Its name, for people.
    #[schemars(example = "Páginas vistas")]
    pub display_name: String,
    /// The period.
    pub period: Period,
    /// The sums of the whole period.
    pub summary: MetricSummary,
    /// Every day of the period, the oldest first; those without events, too.
    pub daily: Vec<MetricDay>,
}

/// The sums of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct MetricSummary {
    /// How many events there are.
    #[schemars(example = 812)]
    pub total_events: i64,
    /// What they are worth together.
    #[schemars(example = 1218)]
    pub total_value: Amount,
    /// What one of them is worth on average.
    #[schemars(example = 1.5)]
    pub avg_value: Amount,
    /// How many contacts they are about.
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
    /// How many events there are.
    #[schemars(example = 31)]
    pub count: i64,
    /// What they are worth together.
    #[schemars(example = 46.5)]
    pub value: Amount,
}

/// Whom a metric counts most of.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TopContacts {
    /// The contacts, the one with the largest value first.
    pub contacts: Vec<TopContact>,
}

/// A contact and its events of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopContact {
    /// The contact's id.
    pub contact_id: ContactId,
    /// The contact's name.
    #[schemars(example = "Ana Lima")]
    pub contact_name: String,
    /// How many events are about it.
    #[schemars(example = 12)]
    pub event_count: i64,
    /// What they are worth together.
    #[schemars(example = 18)]
    pub total_value: Amount,
    /// When the latest happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub last_event_at: OffsetDateTime,
}

/// Events of a metric, the latest first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// The events.
    pub items: Vec<MetricEvent>,
    /// The `cursor` of the next part; null at the end.
    pub next_cursor: Option<MetricEventId>,
}

/// An event of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricEvent {
    /// The event's id.
    pub id: MetricEventId,
    /// The contact's name; null when nobody is known by what was told, or the contact is deleted.
    #[schemars(example = "Ana Lima")]
    pub contact_name: Option<String>,
    /// The contact that it is about; null when nobody is known by the phone number that was told.
    pub contact_id: Option<ContactId>,
    /// What it is worth; null when that was not told.
    #[schemars(example = 1.5)]
    pub value: Option<Amount>,
    /// The currency of `value`; null when that was not told.
    #[schemars(example = &"BRL")]
    pub currency: Option<String>,
    /// The system that told it.
    #[schemars(example = &"site")]
    pub source: String,
    /// Whatever else was told.
    #[schemars(example = serde_json::json!({"path": "/bolos"}))]
    pub properties: Map<String, Value>,
    /// When it happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub occurred_at: OffsetDateTime,
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
