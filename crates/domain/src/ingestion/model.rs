//! What is told, unchecked and checked.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use time::{Date, OffsetDateTime};

use crate::contacts::Phone;
use crate::shared::words;
use crate::shared::{
    Amount, AutomationId, CampaignId, CartId, ContactId, FieldErrors, MetricEventId, StoreError, timestamp,
};

words! {
    /// What became of an order; the platform may tell any of them after any other.
    OrderStatus {
        /// Not paid yet.
        Pending = "pending",
        /// Paid: it counts as revenue.
        Paid = "paid",
        /// Given up before it was paid.
        Cancelled = "cancelled",
        /// Paid back.
        Refunded = "refunded",
    }
}

words! {
    /// What became of a cart.
    CartStatus {
        /// Somebody is at it.
        Open = "open",
        /// Nobody is.
        Abandoned = "abandoned",
        /// Somebody came back to it, and bought.
        Recovered = "recovered",
    }
}

/// What a caller wrote of an order, unchecked but for types.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OrderInput {
    pub external_id: Option<String>,
    pub platform: Option<String>,
    pub contact_phone: Option<String>,
    pub status: Option<String>,
    pub total: Option<Amount>,
    pub items: Option<Vec<OrderItemInput>>,
    pub gateway_fee: Option<Amount>,
    pub campaign_id: Option<CampaignId>,
    pub automation_id: Option<AutomationId>,
    pub link_code: Option<String>,
    #[serde(with = "timestamp::option")]
    pub placed_at: Option<OffsetDateTime>,
    #[serde(with = "timestamp::option")]
    pub paid_at: Option<OffsetDateTime>,
}

/// A line of an order, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OrderItemInput {
    pub product_id: Option<String>,
    pub name: Option<String>,
    pub quantity: Option<Amount>,
    pub price: Option<Amount>,
    pub cost: Option<Amount>,
}

/// A line of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderItem {
    pub product_id: String,
    pub name: String,
    pub quantity: Amount,
    pub price: Amount,
    pub cost: Option<Amount>,
}

/// An order as it was told. What is none was left out, and keeps what is known.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderDraft {
    pub platform: String,
    pub external_id: String,
    pub phone: Option<Phone>,
    pub status: OrderStatus,
    pub total: Amount,
    pub items: Vec<OrderItem>,
    pub gateway_fee: Option<Amount>,
    pub campaign_id: Option<CampaignId>,
    pub automation_id: Option<AutomationId>,
    pub link_code: Option<String>,
    pub placed_at: OffsetDateTime,
    pub paid_at: Option<OffsetDateTime>,
}

/// What a caller wrote of a cart, unchecked but for types.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CartInput {
    pub external_id: Option<String>,
    pub platform: Option<String>,
    pub contact_phone: Option<String>,
    pub total: Option<Amount>,
    pub status: Option<String>,
    #[serde(with = "timestamp::option")]
    pub created_at: Option<OffsetDateTime>,
}

/// A cart as it was told.
#[derive(Clone, Debug, PartialEq)]
pub struct CartDraft {
    pub platform: String,
    pub external_id: String,
    pub phone: Option<Phone>,
    pub total: Amount,
    pub status: CartStatus,
    pub created_at: OffsetDateTime,
}

/// A cart as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Cart {
    pub id: CartId,
    pub contact_id: Option<ContactId>,
    pub total: Amount,
    pub status: CartStatus,
    pub created_at: OffsetDateTime,
}

impl Cart {
    /// The cart after it was told; a contact that is not told again stays.
    pub fn told(id: CartId, draft: &CartDraft, contact: Option<ContactId>, known: Option<&Self>) -> Self {
        Self {
            id: known.map_or(id, |known| known.id),
            contact_id: contact.or_else(|| known.and_then(|known| known.contact_id)),
            total: draft.total,
            status: draft.status,
            created_at: draft.created_at,
        }
    }
}

/// What a caller wrote of a day's spend, unchecked but for types.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdSpendInput {
    pub date: Option<String>,
    pub source: Option<String>,
    pub amount: Option<Amount>,
}

/// What was spent on a source's ads in a day.
#[derive(Clone, Debug, PartialEq)]
pub struct AdSpend {
    pub date: Date,
    pub source: String,
    pub amount: Amount,
}

/// What a caller wrote of an event, unchecked but for types.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EventInput {
    pub id: Option<MetricEventId>,
    pub metric_name: Option<String>,
    pub display_name: Option<String>,
    pub category: Option<String>,
    pub contact_id: Option<ContactId>,
    pub contact_phone: Option<String>,
    pub value: Option<Amount>,
    pub currency: Option<String>,
    pub source: Option<String>,
    pub properties: Option<Map<String, Value>>,
    #[serde(with = "timestamp::option")]
    pub occurred_at: Option<OffsetDateTime>,
}

/// Who an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// A contact of the account.
    Contact(ContactId),
    /// Whoever has this number; nobody, when no contact has.
    Phone(Phone),
}

/// An event of a metric: a fact, told once.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDraft {
    pub id: MetricEventId,
    pub metric_name: String,
    pub display_name: Option<String>,
    pub category: Option<String>,
    pub who: Who,
    pub value: Option<Amount>,
    pub currency: Option<String>,
    pub source: String,
    pub properties: Map<String, Value>,
    pub occurred_at: OffsetDateTime,
}

/// How many items of a batch were new or changed something, and how many were known already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    pub accepted: usize,
    pub duplicates: usize,
}

impl Recorded {
    /// Of so many items, so many had an effect.
    pub fn of(items: usize, accepted: usize) -> Self {
        Self {
            accepted,
            duplicates: items.saturating_sub(accepted),
        }
    }
}

/// Why nothing of a batch was recorded.
#[derive(Debug, Error)]
pub enum IngestionError {
    /// An item is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
