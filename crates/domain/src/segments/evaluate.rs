//! A plain evaluation of filters over a contact's rows in memory: the reference that the SQL is compared with. For
//! tests alone.

use std::cmp::Ordering;

use serde_json::{Map, Value};
use time::{Duration, OffsetDateTime};

use super::AudienceFilters;
use super::nodes::{
    AttributeCondition, AttributeOp, CampaignCondition, CampaignOutcome, FilterNode, LastInboundCondition,
    MetricCondition, NumberTest, OrdersCondition, REPLY_WINDOW, TimeCondition,
};
use crate::ingestion::OrderStatus;
use crate::messaging::SendStatus;
use crate::shared::{Amount, CampaignId, TagId, ZoneName};

/// A live contact and its rows.
#[derive(Clone, Debug)]
pub struct ContactHistory {
    pub created_at: OffsetDateTime,
    pub has_phone: bool,
    pub email: Option<String>,
    pub opted_out: bool,
    /// The contact's own time zone, else that of its phone number, else the account's.
    pub time_zone: ZoneName,
    pub attributes: Map<String, Value>,
    pub tags: Vec<TagId>,
    pub rfm: Option<String>,
    /// The times of the contact's messages.
    pub inbound: Vec<OffsetDateTime>,
    pub sends: Vec<PastSend>,
    /// The latest clicks on the contact's own links, with the links' campaigns.
    pub clicks: Vec<(CampaignId, OffsetDateTime)>,
    pub orders: Vec<PastOrder>,
    pub metrics: Vec<PastMetric>,
}

#[derive(Clone, Debug)]
pub struct PastSend {
    pub campaign: CampaignId,
    pub status: SendStatus,
    pub sent_at: Option<OffsetDateTime>,
    pub delivered_at: Option<OffsetDateTime>,
    pub read_at: Option<OffsetDateTime>,
    pub failed_at: Option<OffsetDateTime>,
}

#[derive(Clone, Debug)]
pub struct PastOrder {
    pub status: OrderStatus,
    pub total: Amount,
    pub placed_at: OffsetDateTime,
    pub paid_at: Option<OffsetDateTime>,
    pub products: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct PastMetric {
    pub name: String,
    pub value: Option<Amount>,
    pub at: OffsetDateTime,
}

impl ContactHistory {
    /// Whether the contact matches the filters. Without a condition every contact does.
    pub fn matches(&self, filters: &AudienceFilters, now: OffsetDateTime) -> bool {
        let attributes = filters.attributes.clone().unwrap_or_default();
        filters.created_after.is_none_or(|after| self.created_at >= after)
            && filters.created_before.is_none_or(|before| self.created_at < before)
            && filters.has_email.is_none_or(|has_email| self.has_email() == has_email)
            && attributes
                .iter()
                .all(|(key, value)| self.attributes.get(key) == Some(value))
            && filters
                .nodes()
                .unwrap_or_default()
                .iter()
                .all(|node| self.matches_node(node, now))
    }

    pub fn matches_node(&self, node: &FilterNode, now: OffsetDateTime) -> bool {
        match node {
            FilterNode::All(nodes) => nodes.iter().all(|node| self.matches_node(node, now)),
            FilterNode::Any(nodes) => nodes.iter().any(|node| self.matches_node(node, now)),
            FilterNode::Not(node) => !self.matches_node(node, now),
            FilterNode::Tag(tag) => self.tags.contains(&tag.id),
            FilterNode::Attribute(attribute) => self.has_attribute(attribute),
            FilterNode::Created(time) => is_at(time, self.created_at, now),
            FilterNode::LastInbound(LastInboundCondition { time, never }) => match self.inbound.iter().max() {
                None => never.is_some(),
                Some(at) => never.is_none() && is_at(time, *at, now),
            },
            FilterNode::Campaign(campaign) => self.was(campaign, now),
            FilterNode::Orders(orders) => self.ordered(orders, now),
            FilterNode::Metric(metric) => self.recorded(metric, now),
            FilterNode::Rfm(rfm) => self.rfm.as_ref().is_some_and(|name| rfm.segments.contains(name)),
            FilterNode::OptedOut(opted_out) => self.opted_out == *opted_out,
            FilterNode::HasPhone(has_phone) => self.has_phone == *has_phone,
            FilterNode::HasEmail(has_email) => self.has_email() == *has_email,
            FilterNode::TimeZone(condition) => condition.zones.iter().any(|zone| zone.is_same_zone(&self.time_zone)),
        }
    }

    fn has_email(&self) -> bool {
        self.email.as_ref().is_some_and(|email| !email.is_empty())
    }

    fn has_attribute(&self, condition: &AttributeCondition) -> bool {
        use AttributeOp::{Absent, Contains, Eq, Exists, Gt, Gte, Lt, Lte, Ne};
        let Some(stored) = self.attributes.get(&condition.key) else {
            return matches!(condition.op, Ne | Absent);
        };
        let value = condition.value.clone().unwrap_or_default();
        let order = match (stored.as_f64(), value.as_f64()) {
            (Some(stored), Some(value)) => stored.total_cmp(&value),
            _ => text(stored).cmp(&text(&value)),
        };
        match condition.op {
            Eq => order == Ordering::Equal,
            Ne => order != Ordering::Equal,
            Lt => order == Ordering::Less,
            Lte => order != Ordering::Greater,
            Gt => order == Ordering::Greater,
            Gte => order != Ordering::Less,
            Contains => text(stored).contains(&text(&value)),
            Exists => true,
            Absent => false,
        }
    }

    fn was(&self, condition: &CampaignCondition, now: OffsetDateTime) -> bool {
        let is_recent = |at: OffsetDateTime| condition.within_days.is_none_or(|days| at >= now - days_long(days));
        let is_selected = |id: CampaignId| condition.id.is_none_or(|selected| selected == id);
        let any_send = |happened: &dyn Fn(&PastSend) -> Option<OffsetDateTime>| {
            let sends = self.sends.iter().filter(|send| is_selected(send.campaign));
            sends.filter_map(happened).any(is_recent)
        };
        match condition.was {
            CampaignOutcome::Sent => any_send(&sent),
            CampaignOutcome::Delivered => any_send(&delivered),
            CampaignOutcome::Read => any_send(&read),
            CampaignOutcome::Failed => any_send(&|send| match send.status {
                SendStatus::Failed => send.failed_at,
                _ => None,
            }),
            CampaignOutcome::Clicked => {
                let clicks = self.clicks.iter().filter(|(campaign, _)| is_selected(*campaign));
                clicks.map(|(_, at)| *at).any(is_recent)
            }
            CampaignOutcome::Replied => {
                let sends = self
                    .sends
                    .iter()
                    .filter(|send| is_selected(send.campaign))
                    .filter_map(sent);
                let replies = sends.flat_map(|sent| {
                    let second = sent.replace_nanosecond(0).unwrap_or(sent);
                    self.inbound
                        .iter()
                        .filter(move |at| (second..=sent + REPLY_WINDOW).contains(*at))
                });
                replies.copied().any(is_recent)
            }
            CampaignOutcome::NotSent => !any_send(&sent),
            CampaignOutcome::NotRead => any_send(&|send| match send.status {
                SendStatus::Read => None,
                _ => sent(send),
            }),
        }
    }

    fn ordered(&self, condition: &OrdersCondition, now: OffsetDateTime) -> bool {
        let status = condition.status.unwrap_or(OrderStatus::Paid);
        let orders = self.orders.iter().filter(|order| {
            let at = match status {
                OrderStatus::Paid => order.paid_at,
                _ => Some(order.placed_at),
            };
            let product = condition.product_id.as_ref();
            order.status == status
                && condition
                    .within_days
                    .is_none_or(|days| at.is_some_and(|at| at >= now - days_long(days)))
                && product.is_none_or(|product| order.products.contains(product))
        });
        let totals: Vec<Amount> = orders.map(|order| order.total).collect();
        compare(condition.count.as_ref(), condition.total.as_ref(), &totals)
    }

    fn recorded(&self, condition: &MetricCondition, now: OffsetDateTime) -> bool {
        let events = self.metrics.iter().filter(|event| {
            let is_recent = condition
                .within_days
                .is_none_or(|days| event.at >= now - days_long(days));
            event.name == condition.name && is_recent
        });
        let values: Vec<Amount> = events.map(|event| event.value.unwrap_or_default()).collect();
        compare(condition.count.as_ref(), condition.sum.as_ref(), &values)
    }
}

fn compare(count: Option<&NumberTest>, sum: Option<&NumberTest>, values: &[Amount]) -> bool {
    let number = Amount::from(i64::try_from(values.len()).unwrap_or(i64::MAX));
    match (count, sum) {
        (None, None) => !values.is_empty(),
        (count, sum) => {
            count.is_none_or(|test| test.matches(number))
                && sum.is_none_or(|test| test.matches(values.iter().copied().sum()))
        }
    }
}

fn days_long(days: u16) -> Duration {
    Duration::hours(24 * i64::from(days))
}

fn is_at(time: &TimeCondition, at: OffsetDateTime, now: OffsetDateTime) -> bool {
    time.within_days.is_none_or(|days| at >= now - days_long(days))
        && time.before_days.is_none_or(|days| at < now - days_long(days))
        && time.after.is_none_or(|after| at >= after)
        && time.before.is_none_or(|before| at < before)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// When the message was sent; None if it was not, or failed. A status may come without the ones before it.
fn sent(send: &PastSend) -> Option<OffsetDateTime> {
    match send.status {
        SendStatus::Pending | SendStatus::Failed => None,
        _ => send.sent_at.or(send.delivered_at).or(send.read_at),
    }
}

fn delivered(send: &PastSend) -> Option<OffsetDateTime> {
    match send.status {
        SendStatus::Delivered | SendStatus::Read => send.delivered_at.or(send.read_at),
        _ => None,
    }
}

fn read(send: &PastSend) -> Option<OffsetDateTime> {
    match send.status {
        SendStatus::Read => send.read_at,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn contact() -> ContactHistory {
        ContactHistory {
            created_at: NOW - Duration::days(10),
            has_phone: true,
            email: None,
            opted_out: false,
            time_zone: ZoneName::default(),
            attributes: Map::new(),
            tags: vec![],
            rfm: None,
            inbound: vec![],
            sends: vec![],
            clicks: vec![],
            orders: vec![],
            metrics: vec![],
        }
    }

    fn matches(contact: &ContactHistory, node: Value) -> bool {
        let filters: AudienceFilters = serde_json::from_value(json!({ "all": [node] })).unwrap();
        assert!(filters.nodes().is_ok(), "{filters:?}");
        contact.matches(&filters, NOW)
    }

    #[test]
    fn absent_attribute_matches_ne_and_absent_alone() {
        let without = contact();
        let with = |value: Value| ContactHistory {
            attributes: Map::from_iter([("n".to_owned(), value)]),
            ..contact()
        };
        for op in AttributeOp::ALL {
            let node = json!({ "attribute": { "key": "n", "op": op, "value": 9 } });
            let expected = matches!(op, AttributeOp::Ne | AttributeOp::Absent);
            assert_eq!(matches(&without, node), expected, "{op}");
        }
        // Two numbers are compared as numbers, a text and a number as texts.
        let less = json!({ "attribute": { "key": "n", "op": "lt", "value": 10 } });
        assert!(matches(&with(json!(9)), less.clone()));
        assert!(!matches(&with(json!("9")), less));
        assert!(matches(
            &with(json!("São Paulo")),
            json!({ "attribute": { "key": "n", "op": "contains", "value": "Pau" } })
        ));
    }

    #[test]
    fn outcomes_are_cumulative_and_not_sent_is_a_complement() {
        let campaign = CampaignId(Uuid::from_u128(1));
        let send = |status, days: i64| PastSend {
            campaign,
            status,
            sent_at: Some(NOW - Duration::days(days)),
            delivered_at: None,
            read_at: (status == SendStatus::Read).then_some(NOW - Duration::days(days)),
            failed_at: (status == SendStatus::Failed).then_some(NOW),
        };
        let with = |status, days| ContactHistory {
            sends: vec![send(status, days)],
            ..contact()
        };
        let was = |contact: &ContactHistory, outcome: &str| matches(contact, json!({ "campaign": { "was": outcome } }));
        let outcomes = |contact: &ContactHistory| {
            let all = [
                "sent",
                "delivered",
                "read",
                "failed",
                "replied",
                "clicked",
                "not_sent",
                "not_read",
            ];
            all.into_iter()
                .filter(|outcome| was(contact, outcome))
                .collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&contact()), ["not_sent"]);
        assert_eq!(outcomes(&with(SendStatus::Sent, 1)), ["sent", "not_read"]);
        assert_eq!(outcomes(&with(SendStatus::Read, 1)), ["sent", "delivered", "read"]);
        assert_eq!(outcomes(&with(SendStatus::Failed, 1)), ["failed", "not_sent"]);
        let old = with(SendStatus::Sent, 8);
        assert!(!matches(
            &old,
            json!({ "campaign": { "was": "sent", "within_days": 7 } })
        ));
        assert!(matches(
            &old,
            json!({ "campaign": { "was": "not_sent", "within_days": 7 } })
        ));
        let reply = |days| ContactHistory {
            inbound: vec![NOW - Duration::days(days)],
            ..with(SendStatus::Sent, 9)
        };
        assert!(was(&reply(2), "replied") && !was(&reply(1), "replied") && !was(&reply(10), "replied"));
    }

    #[test]
    fn contact_without_orders_has_none_and_zero() {
        let orders = |condition: Value| matches(&contact(), json!({ "orders": condition }));
        assert!(!orders(json!({})));
        assert!(orders(json!({ "count": { "op": "lt", "value": 1 } })));
        assert!(orders(json!({ "total": { "op": "eq", "value": 0 } })));
        assert!(!orders(json!({ "total": { "op": "gt", "value": 0 } })));
    }
}
