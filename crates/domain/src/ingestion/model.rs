//! Orders, carts, ad spend and metric events: unchecked inputs and validated drafts.

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
    /// The status of an order. The shop system may report the statuses in any order.
    OrderStatus {
        /// The order is not paid yet.
        Pending = "pending",
        /// The order is paid and counts as revenue.
        Paid = "paid",
        /// The order was cancelled before payment.
        Cancelled = "cancelled",
        /// The payment was refunded.
        Refunded = "refunded",
    }
}

string_enum! {
    /// The status of a cart.
    CartStatus {
        /// The customer is still shopping.
        Open = "open",
        /// The customer left without buying.
        Abandoned = "abandoned",
        /// The customer returned to the cart and bought.
        Recovered = "recovered",
    }
}

/// The current state of an order. `platform` and `external_id` identify the order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OrderInput {
    /// The shop's own id of the order: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = "1001")]
    pub external_id: Option<String>,
    /// The shop system of the order, named by the account: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = &"loja")]
    pub platform: Option<String>,
    /// The customer's phone number; absent if it is unknown. It links the order to the contact with this number, and
    /// creates no contact.
    #[schemars(example = "+5511961234567")]
    pub contact_phone: Option<String>,
    /// The order's status. Only `paid` counts as revenue.
    #[schemars(required, with = "OrderStatus")]
    pub status: Option<String>,
    /// The amount that the customer pays, in currency units.
    #[schemars(required, range(min = 0), example = 149.9)]
    pub total: Option<Amount>,
    /// The items of the order.
    #[schemars(required)]
    pub items: Option<Vec<OrderItemInput>>,
    /// The payment gateway's fee, in currency units.
    #[schemars(range(min = 0), example = 4.9)]
    pub gateway_fee: Option<Amount>,
    /// The campaign that the order is attributed to. If absent, the link or a recent message decides.
    pub campaign_id: Option<CampaignId>,
    /// The automation that the order is attributed to.
    pub automation_id: Option<AutomationId>,
    /// The `short_code` of the link that led the customer to the shop: at most 255 characters.
    #[schemars(example = &"Ab3dE9x_2")]
    pub link_code: Option<String>,
    /// When the order was placed.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub placed_at: Option<OffsetDateTime>,
    /// When the order was paid.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub paid_at: Option<OffsetDateTime>,
}

/// An item of an order.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OrderItemInput {
    /// The shop's own id of the product: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = "7")]
    pub product_id: Option<String>,
    /// The product's name: 1 to 500 characters.
    #[schemars(required, length(min = 1, max = 500), example = "Bolo de cenoura")]
    pub name: Option<String>,
    /// The quantity: more than 0, at most 1000000, with up to 4 decimals.
    #[schemars(required, range(min = 0, max = 1000000), example = 1)]
    pub quantity: Option<Amount>,
    /// The unit price, in currency units.
    #[schemars(required, range(min = 0), example = 149.9)]
    pub price: Option<Amount>,
    /// The shop's cost per unit, in currency units; absent if it is unknown.
    #[schemars(range(min = 0), example = 60)]
    pub cost: Option<Amount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderItem {
    pub product_id: String,
    pub name: String,
    pub quantity: Amount,
    pub price: Amount,
    pub cost: Option<Amount>,
}

/// A validated order that is not stored yet. `None` means that the field was omitted and keeps its stored value.
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

/// The current state of a cart. `platform` and `external_id` identify the cart.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CartInput {
    /// The shop's own id of the cart: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = "c-77")]
    pub external_id: Option<String>,
    /// The shop system of the cart, named by the account: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = &"loja")]
    pub platform: Option<String>,
    /// The customer's phone number; absent if it is unknown.
    #[schemars(example = "+5511961234567")]
    pub contact_phone: Option<String>,
    /// The total value of the cart, in currency units.
    #[schemars(required, range(min = 0), example = 89.9)]
    pub total: Option<Amount>,
    /// The cart's status.
    #[schemars(required, with = "CartStatus")]
    pub status: Option<String>,
    /// When the cart was created.
    #[schemars(required, with = "Timestamp")]
    #[serde(with = "timestamp::option")]
    pub created_at: Option<OffsetDateTime>,
}

/// A validated cart that is not stored yet.
#[derive(Clone, Debug, PartialEq)]
pub struct CartDraft {
    pub platform: String,
    pub external_id: String,
    pub phone: Option<Phone>,
    pub total: Amount,
    pub status: CartStatus,
    pub created_at: OffsetDateTime,
}

/// A stored cart.
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

/// The ad spend of one source on one day. A repeated report replaces the earlier one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdSpendInput {
    /// The day, `YYYY-MM-DD`.
    #[schemars(required, with = "Day", example = "2026-02-01")]
    pub date: Option<String>,
    /// The source of the ads, for example a social network: 1 to 255 characters.
    #[schemars(required, length(min = 1, max = 255), example = &"instagram")]
    pub source: Option<String>,
    /// The amount spent, in currency units.
    #[schemars(required, range(min = 0), example = 120.5)]
    pub amount: Option<Amount>,
}

/// The validated ad spend of one source on one day.
#[derive(Clone, Debug, PartialEq)]
pub struct AdSpend {
    pub date: Date,
    pub source: String,
    pub amount: Amount,
}

/// A metric event. `contact_id` or `contact_phone` identifies the contact. A recorded event never changes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EventInput {
    /// The event's id, which makes the request idempotent: a repeated id has no effect. Without an id, the event is
    /// new.
    pub id: Option<MetricEventId>,
    /// The metric of the event: 1 to 200 characters.
    #[schemars(required, length(min = 1, max = 200), example = &"page_view")]
    pub metric_name: Option<String>,
    /// The metric's display name: 1 to 200 characters. If absent, it does not change.
    #[schemars(example = "Páginas vistas")]
    pub display_name: Option<String>,
    /// The metric's category: 1 to 200 characters. If absent, it does not change.
    #[schemars(example = &"site")]
    pub category: Option<String>,
    /// The contact of the event.
    pub contact_id: Option<ContactId>,
    /// The contact's phone number. An event with an unknown number is recorded without a contact.
    #[schemars(example = "+5511961234567")]
    pub contact_phone: Option<String>,
    /// The event's value, less than 100 billion, with up to 4 decimals. It may be negative.
    #[schemars(example = 1.5)]
    pub value: Option<Amount>,
    /// The currency of `value`: three capital letters (ISO 4217).
    #[schemars(regex(pattern = r"^[A-Z]{3}$"), example = &"BRL")]
    pub currency: Option<String>,
    /// The system that reports the event: 1 to 200 characters.
    #[schemars(required, length(min = 1, max = 200), example = &"site")]
    pub source: Option<String>,
    /// Additional data of the event: at most 65,536 bytes.
    #[schemars(example = serde_json::json!({"path": "/bolos"}))]
    pub properties: Option<Map<String, Value>>,
    /// When the event happened: at most 10 minutes from now. If absent, the current time.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub occurred_at: Option<OffsetDateTime>,
}

/// The contact of a metric event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    Contact(ContactId),
    /// The contact with this number, if the account has one.
    Phone(Phone),
}

/// A validated metric event that is not stored yet.
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

/// The result of a recorded batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IngestionResult {
    /// The number of items that were new or changed a stored row.
    #[schemars(example = 2)]
    pub accepted: usize,
    /// The number of items that changed nothing.
    #[schemars(example = 0)]
    pub duplicates: usize,
}

impl IngestionResult {
    /// The result of a batch of `items`, of which `accepted` had an effect.
    pub fn of(items: usize, accepted: usize) -> Self {
        Self {
            accepted,
            duplicates: items.saturating_sub(accepted),
        }
    }
}

/// Why a batch was rejected.
#[derive(Debug, Error)]
pub enum IngestionError {
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}
