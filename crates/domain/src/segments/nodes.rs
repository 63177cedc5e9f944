//! The nodes of a filter tree.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::ingestion::OrderStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{Amount, CampaignId, TagId, ZoneName, string_enum, timestamp};

/// How long after a message an answer counts as a reply to it.
pub const REPLY_WINDOW: time::Duration = time::Duration::days(7);

/// A node of a filter tree: an object with exactly one key, which combines other nodes or is a condition on a contact.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilterNode {
    /// Every one of these 1 to 20 nodes matches.
    All(Vec<FilterNode>),
    /// At least one of these 1 to 20 nodes matches.
    Any(Vec<FilterNode>),
    /// The node does not match.
    Not(Box<FilterNode>),
    /// The contact has the tag.
    Tag(TagCondition),
    /// A comparison with an attribute of the contact.
    Attribute(AttributeCondition),
    /// When the contact was created.
    Created(TimeCondition),
    /// When the contact last wrote.
    LastInbound(LastInboundCondition),
    /// What became of a campaign's message to the contact.
    Campaign(CampaignCondition),
    /// The number or the total of the contact's orders.
    Orders(OrdersCondition),
    /// The number or the sum of the contact's metric events.
    Metric(MetricCondition),
    /// The contact is in one of these RFM segments.
    Rfm(RfmCondition),
    /// Whether the contact, or another contact of the same person, opted out.
    OptedOut(bool),
    /// Whether the contact has a phone number.
    HasPhone(bool),
    /// Whether the contact has an e-mail address.
    HasEmail(bool),
    /// The contact's time zone is one of these: its own, else that of its phone number, else the account's.
    TimeZone(TimeZoneCondition),
}

/// A tag of the account.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TagCondition {
    /// The id of the tag.
    pub id: TagId,
}

/// A comparison with an attribute of the contact.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AttributeCondition {
    /// The name of the attribute.
    #[schemars(length(min = 1, max = 200), example = &"city")]
    pub key: String,
    /// The comparison. A contact without the attribute matches `ne` and `absent` alone.
    pub op: AttributeOp,
    /// A string, number or boolean; not for `exists` and `absent`. Two numbers are compared as numbers, anything else as
    /// text.
    #[schemars(example = &"Campinas")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

string_enum! {
    /// A comparison with an attribute.
    AttributeOp {
        /// Equal to the value.
        Eq = "eq",
        /// Not equal to the value, or absent.
        Ne = "ne",
        /// Less than the value.
        Lt = "lt",
        /// At most the value.
        Lte = "lte",
        /// Greater than the value.
        Gt = "gt",
        /// At least the value.
        Gte = "gte",
        /// The text contains the value.
        Contains = "contains",
        /// The contact has the attribute.
        Exists = "exists",
        /// The contact does not have the attribute.
        Absent = "absent",
    }
}

/// A time: exactly one of `within_days`, `before_days`, or one or both of `after` and `before`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TimeCondition {
    /// At most so many days (of 24 hours) ago.
    #[schemars(range(min = 1, max = 730), example = 30)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_days: Option<u16>,
    /// More than so many days (of 24 hours) ago.
    #[schemars(range(min = 1, max = 730), example = 90)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_days: Option<u16>,
    /// At this time or later.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub after: Option<OffsetDateTime>,
    /// Before this time.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub before: Option<OffsetDateTime>,
}

/// The time of the contact's latest message, or that there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LastInboundCondition {
    #[serde(flatten)]
    pub time: TimeCondition,
    /// True, alone: the contact never wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never: Option<bool>,
}

/// What became of a campaign's message to the contact.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CampaignCondition {
    /// The id of the campaign. Absent: any campaign.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<CampaignId>,
    /// What became of the message.
    pub was: CampaignOutcome,
    /// Only if it happened at most so many days (of 24 hours) ago.
    #[schemars(range(min = 1, max = 730), example = 30)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_days: Option<u16>,
}

string_enum! {
    /// What became of a campaign's message to a contact.
    CampaignOutcome {
        /// WhatsApp accepted it; also if it was delivered or read since.
        Sent = "sent",
        /// It was delivered; also if it was read since.
        Delivered = "delivered",
        /// It was read.
        Read = "read",
        /// It failed.
        Failed = "failed",
        /// The contact followed a link that belongs to the campaign and to the contact.
        Clicked = "clicked",
        /// It was sent, and the contact wrote within seven days after it.
        Replied = "replied",
        /// The contact was not sent any such message.
        NotSent = "not_sent",
        /// It was sent, and not read.
        NotRead = "not_read",
    }
}

/// A comparison with the contact's orders. Without `count` and `total`: at least one order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct OrdersCondition {
    /// A comparison with the number of orders; not together with `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<NumberTest>,
    /// A comparison with the sum of the totals; 0 without orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<NumberTest>,
    /// Only orders with this status; `paid` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<OrderStatus>,
    /// Only orders of the last days (of 24 hours): paid orders by their payment, others by when they were placed.
    #[schemars(range(min = 1, max = 730), example = 90)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_days: Option<u16>,
    /// Only orders with this product.
    #[schemars(length(min = 1, max = 200), example = &"bolo-01")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_id: Option<String>,
}

/// A comparison with a number.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NumberTest {
    /// The comparison.
    pub op: NumberOp,
    /// The number to compare with.
    #[schemars(example = 2)]
    pub value: Amount,
}

string_enum! {
    /// A comparison of numbers.
    NumberOp {
        /// Equal to the value.
        Eq = "eq",
        /// Not equal to the value.
        Ne = "ne",
        /// Less than the value.
        Lt = "lt",
        /// At most the value.
        Lte = "lte",
        /// Greater than the value.
        Gt = "gt",
        /// At least the value.
        Gte = "gte",
    }
}

impl NumberTest {
    pub fn matches(&self, number: Amount) -> bool {
        match self.op {
            NumberOp::Eq => number == self.value,
            NumberOp::Ne => number != self.value,
            NumberOp::Lt => number < self.value,
            NumberOp::Lte => number <= self.value,
            NumberOp::Gt => number > self.value,
            NumberOp::Gte => number >= self.value,
        }
    }
}

/// A comparison with the contact's events of a metric. Without `count` and `sum`: at least one event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MetricCondition {
    /// The name of the metric.
    #[schemars(length(min = 1, max = 200), example = &"purchase")]
    pub name: String,
    /// A comparison with the number of events; not together with `sum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<NumberTest>,
    /// A comparison with the sum of the values; 0 without events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<NumberTest>,
    /// Only events of the last days (of 24 hours).
    #[schemars(range(min = 1, max = 730), example = 30)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_days: Option<u16>,
}

/// RFM segments.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RfmCondition {
    /// The published names of 1 to 20 RFM segments.
    #[schemars(length(min = 1, max = 20), example = serde_json::json!(["champions"]))]
    pub segments: Vec<String>,
}

/// Time zones.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TimeZoneCondition {
    /// The IANA names of 1 to 50 time zones.
    #[schemars(with = "Vec<String>", length(min = 1, max = 50), example = serde_json::json!(["America/Manaus"]))]
    #[serde(rename = "in")]
    pub zones: Vec<ZoneName>,
}

/// A row of the account that a filter names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterReference {
    Tag(TagId),
    Campaign(CampaignId),
    Product(String),
}

impl FilterNode {
    /// The rows that the tree names, with the path of each. `path` is the node's own.
    pub fn references(&self, path: &str) -> Vec<(String, FilterReference)> {
        let of_list = |key: &str, nodes: &[Self]| {
            let nodes = nodes.iter().enumerate();
            nodes
                .flat_map(|(index, node)| node.references(&format!("{path}.{key}[{index}]")))
                .collect()
        };
        match self {
            Self::All(nodes) => of_list("all", nodes),
            Self::Any(nodes) => of_list("any", nodes),
            Self::Not(node) => node.references(&format!("{path}.not")),
            Self::Tag(tag) => vec![(format!("{path}.tag.id"), FilterReference::Tag(tag.id))],
            Self::Campaign(CampaignCondition { id: Some(id), .. }) => {
                vec![(format!("{path}.campaign.id"), FilterReference::Campaign(*id))]
            }
            Self::Orders(OrdersCondition {
                product_id: Some(product),
                ..
            }) => {
                let product = FilterReference::Product(product.clone());
                vec![(format!("{path}.orders.product_id"), product)]
            }
            _ => vec![],
        }
    }
}
