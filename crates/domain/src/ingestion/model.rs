//! What is told, unchecked and checked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use time::{Date, OffsetDateTime};

use crate::contacts::Phone;
use crate::shared::schema::{Day, Timestamp};
use crate::shared::string_enum;
use crate::shared::{
    Amount, AutomationId, CampaignId, CartId, ContactId, FieldErrors, MetricEventId, StoreError, timestamp,
};

string_enum! {
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

string_enum! {
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

/// An order, as a shop knows it now. Told again with the same `platform` and `external_id`, it is the same order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OrderInput {
    /// The shop's own id of the order: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = "1001")]
    pub external_id: Option<String>,
    /// The shop system that it comes from, in the account's own word: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = &"loja")]
    pub platform: Option<String>,
    /// The phone number of the customer; absent when it is not known. A contact with this number is looked up, and
    /// none is created.
    #[schemars(example = "+5511961234567")]
    pub contact_phone: Option<String>,
    /// Where the order stands; only `paid` counts as revenue.
    #[schemars(required, with = "OrderStatus")]
    pub status: Option<String>,
    /// What the customer pays, in currency units.
    #[schemars(required, range(min = 0), example = 149.9)]
    pub total: Option<Amount>,
    /// What was ordered.
    #[schemars(required)]
    pub items: Option<Vec<OrderItemInput>>,
    /// What the payment gateway keeps, in currency units.
    #[schemars(range(min = 0), example = 4.9)]
    pub gateway_fee: Option<Amount>,
    /// The campaign that it is owed to; absent where the link or a recent message decides.
    pub campaign_id: Option<CampaignId>,
    /// The automation that it is owed to.
    pub automation_id: Option<AutomationId>,
    /// The `short_code` of the link that the customer came by: at most 255 characters.
    #[schemars(example = &"Ab3dE9x_2")]
    pub link_code: Option<String>,
    /// When it was placed.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub placed_at: Option<OffsetDateTime>,
    /// When it was paid.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub paid_at: Option<OffsetDateTime>,
}

/// A line of an order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OrderItemInput {
    /// The shop's own id of the product: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = "7")]
    pub product_id: Option<String>,
    /// The product's name: 1 to 500 characters.
    #[schemars(required, length(min = 1, max = 500), example = "Bolo de cenoura")]
    pub name: Option<String>,
    /// How many, or how much: more than 0, at most 1000000, with up to 4 decimals.
    #[schemars(required, range(min = 0, max = 1000000), example = 1)]
    pub quantity: Option<Amount>,
    /// What one costs the customer, in currency units.
    #[schemars(required, range(min = 0), example = 149.9)]
    pub price: Option<Amount>,
    /// What one costs the shop, in currency units; absent when it is not known.
    #[schemars(range(min = 0), example = 60)]
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

/// A cart, as a shop knows it now. Told again with the same `platform` and `external_id`, it is the same cart.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CartInput {
    /// The shop's own id of the cart: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = "c-77")]
    pub external_id: Option<String>,
    /// The shop system that it comes from: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = &"loja")]
    pub platform: Option<String>,
    /// The phone number of the customer; absent when it is not known.
    #[schemars(example = "+5511961234567")]
    pub contact_phone: Option<String>,
    /// What lies in it, in currency units.
    #[schemars(required, range(min = 0), example = 89.9)]
    pub total: Option<Amount>,
    /// What became of it.
    #[schemars(required, with = "CartStatus")]
    pub status: Option<String>,
    /// When it was begun.
    #[schemars(required, with = "Timestamp")]
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
    /// Merges a draft into the stored cart. A draft without a contact keeps the stored contact.
    pub fn merged(id: CartId, draft: &CartDraft, contact: Option<ContactId>, stored: Option<&Self>) -> Self {
        Self {
            id: stored.map_or(id, |stored| stored.id),
            contact_id: contact.or_else(|| stored.and_then(|stored| stored.contact_id)),
            total: draft.total,
            status: draft.status,
            created_at: draft.created_at,
        }
    }
}

/// What was spent on the ads of one source in one day; told again, it replaces what was told.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdSpendInput {
    /// The day, `YYYY-MM-DD`.
    #[schemars(required, with = "Day", example = "2026-02-01")]
    pub date: Option<String>,
    /// Where the ads run: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = &"instagram")]
    pub source: Option<String>,
    /// What was spent, in currency units.
    #[schemars(required, range(min = 0), example = 120.5)]
    pub amount: Option<Amount>,
}

/// What was spent on a source's ads in a day.
#[derive(Clone, Debug, PartialEq)]
pub struct AdSpend {
    pub date: Date,
    pub source: String,
    pub amount: Amount,
}

/// An event of a metric: a fact, told once. `contact_id` or `contact_phone` says whom it is about.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EventInput {
    /// The id that it is told apart by: one that is known already changes nothing. Absent, the event is new.
    pub id: Option<MetricEventId>,
    /// The metric that it counts for: 1 to 200 characters.
    #[schemars(required, length(min = 1, max = 200), example = &"page_view")]
    pub metric_name: Option<String>,
    /// The metric's name for people: 1 to 200 characters; absent, it stays as it is.
    #[schemars(example = "Páginas vistas")]
    pub display_name: Option<String>,
    /// The metric's category: 1 to 200 characters; absent, it stays as it is.
    #[schemars(example = &"site")]
    pub category: Option<String>,
    /// The contact that it is about.
    pub contact_id: Option<ContactId>,
    /// The phone number of whom it is about; an event of an unknown number is kept without a contact.
    #[schemars(example = "+5511961234567")]
    pub contact_phone: Option<String>,
    /// What it is worth, with up to 4 decimals, less than 100 billion; it may be negative.
    #[schemars(example = 1.5)]
    pub value: Option<Amount>,
    /// The currency of `value`: three capital letters (ISO 4217).
    #[schemars(regex(pattern = r"^[A-Z]{3}$"), example = &"BRL")]
    pub currency: Option<String>,
    /// The system that tells it: 1 to 200 characters.
    #[schemars(required, length(min = 1, max = 200), example = &"site")]
    pub source: Option<String>,
    /// Whatever else is to be kept with it: at most 65,536 bytes.
    #[schemars(example = serde_json::json!({"path": "/bolos"}))]
    pub properties: Option<Map<String, Value>>,
    /// When it happened: now where it is absent, and at most 10 minutes from now.
    #[schemars(with = "Option<Timestamp>")]
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

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IngestionResult {
    /// How many items were new or changed something.
    #[schemars(example = 2)]
    pub accepted: usize,
    /// How many items were known already and changed nothing.
    #[schemars(example = 0)]
    pub duplicates: usize,
}

impl IngestionResult {
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
