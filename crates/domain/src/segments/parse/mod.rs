//! Parses filter trees. Every error names the path of its value, such as `filters.all[1].campaign.was`.

use std::str::FromStr;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

use super::nodes::{
    AttributeCondition, AttributeOp, CampaignCondition, FilterNode, LastInboundCondition, MetricCondition, NumberTest,
    OrdersCondition, RfmCondition, TagCondition, TimeCondition, TimeZoneCondition,
};
use crate::shared::{Amount, FieldErrors, ZoneName, timestamp};

/// The limits of a tree.
const MAX_DEPTH: usize = 4;
const MAX_NODES: usize = 50;
const MAX_LIST: usize = 20;
const MAX_ZONES: usize = 50;

/// The limits of the values in conditions.
const MAX_DAYS: u64 = 730;
const MAX_TEXT_CHARS: usize = 200;
const MAX_VALUE_CHARS: usize = 1000;
const MAX_COUNT: i64 = 1_000_000_000;

/// Parses the trees of one set of filters, which share the limit of nodes.
pub(super) struct TreeParser<'e> {
    nodes: usize,
    errors: &'e mut FieldErrors,
}

impl<'e> TreeParser<'e> {
    pub(super) fn new(errors: &'e mut FieldErrors) -> Self {
        Self { nodes: 0, errors }
    }

    fn refuse<T>(&mut self, path: impl Into<String>, message: impl Into<String>) -> Option<T> {
        self.errors.add(path, message);
        None
    }

    /// A list of nodes. `depth` is the depth of its nodes; those of the filters themselves have depth 1.
    pub(super) fn list(&mut self, value: &Value, path: &str, depth: usize) -> Option<Vec<FilterNode>> {
        let items = value.as_array().filter(|items| (1..=MAX_LIST).contains(&items.len()));
        let Some(items) = items else {
            return self.refuse(path, format!("must be an array of 1 to {MAX_LIST} nodes"));
        };
        let nodes = items.iter().enumerate();
        let nodes: Vec<Option<FilterNode>> = nodes
            .map(|(index, node)| self.node(node, &format!("{path}[{index}]"), depth))
            .collect();
        nodes.into_iter().collect()
    }

    pub(super) fn node(&mut self, value: &Value, path: &str, depth: usize) -> Option<FilterNode> {
        if depth > MAX_DEPTH {
            return self.refuse(path, format!("exceeds the depth limit of {MAX_DEPTH} levels"));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            // Once is enough: every later node is one too many as well.
            if self.nodes == MAX_NODES + 1 {
                self.errors
                    .add(path, format!("exceeds the limit of {MAX_NODES} nodes in total"));
            }
            return None;
        }
        let entry = value.as_object().filter(|object| object.len() == 1);
        let Some((key, value)) = entry.and_then(|object| object.iter().next()) else {
            return self.refuse(path, "must be an object with exactly one key");
        };
        let path = format!("{path}.{key}");
        match key.as_str() {
            "all" => self.list(value, &path, depth + 1).map(FilterNode::All),
            "any" => self.list(value, &path, depth + 1).map(FilterNode::Any),
            "not" => self
                .node(value, &path, depth + 1)
                .map(|node| FilterNode::Not(Box::new(node))),
            "tag" => self.tag(value, &path).map(FilterNode::Tag),
            "attribute" => self.attribute(value, &path).map(FilterNode::Attribute),
            "created" => self.created(value, &path).map(FilterNode::Created),
            "last_inbound" => self.last_inbound(value, &path).map(FilterNode::LastInbound),
            "campaign" => self.campaign(value, &path).map(FilterNode::Campaign),
            "orders" => self.orders(value, &path).map(FilterNode::Orders),
            "metric" => self.metric(value, &path).map(FilterNode::Metric),
            "rfm" => self.rfm(value, &path).map(FilterNode::Rfm),
            "opted_out" => self.boolean(value, &path).map(FilterNode::OptedOut),
            "has_phone" => self.boolean(value, &path).map(FilterNode::HasPhone),
            "has_email" => self.boolean(value, &path).map(FilterNode::HasEmail),
            "time_zone" => self.time_zone(value, &path).map(FilterNode::TimeZone),
            _ => self.refuse(path, "is not a known condition"),
        }
    }

    fn tag(&mut self, value: &Value, path: &str) -> Option<TagCondition> {
        let fields = self.fields(value, path, &["id"])?;
        let id = self.required(fields, path, "id", Self::uuid)?;
        Some(TagCondition { id: id.into() })
    }

    fn attribute(&mut self, value: &Value, path: &str) -> Option<AttributeCondition> {
        let fields = self.fields(value, path, &["key", "op", "value"])?;
        let key = self.required(fields, path, "key", Self::text);
        let op: Option<AttributeOp> = self.required(fields, path, "op", Self::word);
        let value = fields.get("value").filter(|value| !value.is_null());
        let value = match op {
            None => return None,
            Some(AttributeOp::Exists | AttributeOp::Absent) => None,
            Some(_) => Some(self.scalar(value, &format!("{path}.value"))?),
        };
        Some(AttributeCondition {
            key: key?,
            op: op?,
            value,
        })
    }

    fn scalar(&mut self, value: Option<&Value>, path: &str) -> Option<Value> {
        let fits = |value: &&Value| match value {
            Value::String(text) => text.chars().count() <= MAX_VALUE_CHARS,
            Value::Number(_) | Value::Bool(_) => true,
            _ => false,
        };
        match value.filter(fits) {
            Some(value) => Some(value.clone()),
            None => self.refuse(
                path,
                format!("must be a string of at most {MAX_VALUE_CHARS} characters, a number or a boolean"),
            ),
        }
    }

    fn created(&mut self, value: &Value, path: &str) -> Option<TimeCondition> {
        let fields = self.fields(value, path, &["within_days", "before_days", "after", "before"])?;
        let time = self.time(fields, path)?;
        match forms(&time) {
            1 => Some(time),
            _ => self.refuse(
                path,
                "must have exactly one of within_days, before_days, or a range (after, before or both)",
            ),
        }
    }

    fn last_inbound(&mut self, value: &Value, path: &str) -> Option<LastInboundCondition> {
        let fields = self.fields(value, path, &["within_days", "before_days", "after", "before", "never"])?;
        let time = self.time(fields, path)?;
        let never = self.optional(fields, path, "never", Self::boolean)?;
        if never == Some(false) {
            return self.refuse(format!("{path}.never"), "must be true, or absent");
        }
        match forms(&time) + usize::from(never.is_some()) {
            1 => Some(LastInboundCondition { time, never }),
            _ => self.refuse(
                path,
                "must have exactly one of within_days, before_days, never, or a range (after, before or both)",
            ),
        }
    }

    fn time(&mut self, fields: &Map<String, Value>, path: &str) -> Option<TimeCondition> {
        let within_days = self.optional(fields, path, "within_days", Self::days);
        let before_days = self.optional(fields, path, "before_days", Self::days);
        let after = self.optional(fields, path, "after", Self::timestamp);
        let before = self.optional(fields, path, "before", Self::timestamp);
        Some(TimeCondition {
            within_days: within_days?,
            before_days: before_days?,
            after: after?,
            before: before?,
        })
    }

    fn campaign(&mut self, value: &Value, path: &str) -> Option<CampaignCondition> {
        let fields = self.fields(value, path, &["id", "was", "within_days"])?;
        let id = self.optional(fields, path, "id", Self::uuid);
        let was = self.required(fields, path, "was", Self::word);
        let within_days = self.optional(fields, path, "within_days", Self::days);
        Some(CampaignCondition {
            id: id?.map(Into::into),
            was: was?,
            within_days: within_days?,
        })
    }

    fn orders(&mut self, value: &Value, path: &str) -> Option<OrdersCondition> {
        let fields = self.fields(value, path, &["count", "total", "status", "within_days", "product_id"])?;
        let count = self.optional(fields, path, "count", Self::count);
        let total = self.optional(fields, path, "total", Self::number);
        let status = self.optional(fields, path, "status", Self::word);
        let within_days = self.optional(fields, path, "within_days", Self::days);
        let product_id = self.optional(fields, path, "product_id", Self::text);
        let (count, total) = (count?, total?);
        if count.is_some() && total.is_some() {
            return self.refuse(path, "must not have both count and total");
        }
        Some(OrdersCondition {
            count,
            total,
            status: status?,
            within_days: within_days?,
            product_id: product_id?,
        })
    }

    fn metric(&mut self, value: &Value, path: &str) -> Option<MetricCondition> {
        let fields = self.fields(value, path, &["name", "count", "sum", "within_days"])?;
        let name = self.required(fields, path, "name", Self::text);
        let count = self.optional(fields, path, "count", Self::count);
        let sum = self.optional(fields, path, "sum", Self::number);
        let within_days = self.optional(fields, path, "within_days", Self::days);
        let (count, sum) = (count?, sum?);
        if count.is_some() && sum.is_some() {
            return self.refuse(path, "must not have both count and sum");
        }
        Some(MetricCondition {
            name: name?,
            count,
            sum,
            within_days: within_days?,
        })
    }

    fn rfm(&mut self, value: &Value, path: &str) -> Option<RfmCondition> {
        let fields = self.fields(value, path, &["segments"])?;
        let names = fields.get("segments").and_then(Value::as_array);
        let names = names.filter(|names| (1..=MAX_LIST).contains(&names.len()));
        let path = format!("{path}.segments");
        let Some(names) = names else {
            return self.refuse(path, format!("must be an array of 1 to {MAX_LIST} names"));
        };
        let names = names.iter().enumerate();
        let segments: Vec<Option<String>> = names
            .map(|(index, name)| self.text(name, &format!("{path}[{index}]")))
            .collect();
        let segments = segments.into_iter().collect::<Option<_>>()?;
        Some(RfmCondition { segments })
    }

    fn time_zone(&mut self, value: &Value, path: &str) -> Option<TimeZoneCondition> {
        let fields = self.fields(value, path, &["in"])?;
        let names = fields.get("in").and_then(Value::as_array);
        let names = names.filter(|names| (1..=MAX_ZONES).contains(&names.len()));
        let path = format!("{path}.in");
        let Some(names) = names else {
            return self.refuse(path, format!("must be an array of 1 to {MAX_ZONES} names"));
        };
        let names = names.iter().enumerate();
        let zones: Vec<Option<ZoneName>> = names
            .map(|(index, name)| self.word(name, &format!("{path}[{index}]")))
            .collect();
        let zones = zones.into_iter().collect::<Option<_>>()?;
        Some(TimeZoneCondition { zones })
    }

    /// The fields of a condition. A field that is not `known` is an error of its own path.
    fn fields<'v>(&mut self, value: &'v Value, path: &str, known: &[&str]) -> Option<&'v Map<String, Value>> {
        let Some(fields) = value.as_object() else {
            return self.refuse(path, "must be an object");
        };
        let unknown = fields.keys().filter(|key| !known.contains(&key.as_str()));
        let unknown: Vec<&String> = unknown.collect();
        for key in &unknown {
            self.errors.add(format!("{path}.{key}"), "is not a known field");
        }
        unknown.is_empty().then_some(fields)
    }

    fn required<T>(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        key: &str,
        read: impl FnOnce(&mut Self, &Value, &str) -> Option<T>,
    ) -> Option<T> {
        match self.optional(fields, path, key, read)? {
            Some(value) => Some(value),
            None => self.refuse(format!("{path}.{key}"), "is required"),
        }
    }

    /// `Some(None)`: the field is absent or null. `None`: its value is an error.
    fn optional<T>(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
        key: &str,
        read: impl FnOnce(&mut Self, &Value, &str) -> Option<T>,
    ) -> Option<Option<T>> {
        match fields.get(key).filter(|value| !value.is_null()) {
            None => Some(None),
            Some(value) => read(self, value, &format!("{path}.{key}")).map(Some),
        }
    }

    fn boolean(&mut self, value: &Value, path: &str) -> Option<bool> {
        match value.as_bool() {
            Some(value) => Some(value),
            None => self.refuse(path, "must be a boolean"),
        }
    }

    fn uuid(&mut self, value: &Value, path: &str) -> Option<Uuid> {
        match value.as_str().and_then(|text| text.parse().ok()) {
            Some(id) => Some(id),
            None => self.refuse(path, "must be a UUID"),
        }
    }

    fn text(&mut self, value: &Value, path: &str) -> Option<String> {
        let fits = |text: &&str| (1..=MAX_TEXT_CHARS).contains(&text.chars().count());
        match value.as_str().filter(fits) {
            Some(text) => Some(text.to_owned()),
            None => self.refuse(path, format!("must be a string of 1 to {MAX_TEXT_CHARS} characters")),
        }
    }

    /// A value of an enumeration.
    fn word<T: FromStr<Err = String>>(&mut self, value: &Value, path: &str) -> Option<T> {
        match value.as_str().unwrap_or_default().parse() {
            Ok(word) => Some(word),
            Err(message) => self.refuse(path, message),
        }
    }

    fn days(&mut self, value: &Value, path: &str) -> Option<u16> {
        let days = value.as_u64().filter(|days| (1..=MAX_DAYS).contains(days));
        match days.and_then(|days| u16::try_from(days).ok()) {
            Some(days) => Some(days),
            None => self.refuse(path, format!("must be an integer from 1 to {MAX_DAYS}")),
        }
    }

    fn timestamp(&mut self, value: &Value, path: &str) -> Option<OffsetDateTime> {
        match value.as_str().and_then(timestamp::parse) {
            Some(at) => Some(at),
            None => self.refuse(path, "is not an ISO 8601 timestamp"),
        }
    }

    fn number(&mut self, value: &Value, path: &str) -> Option<NumberTest> {
        let fields = self.fields(value, path, &["op", "value"])?;
        let op = self.required(fields, path, "op", Self::word);
        let value = self.required(fields, path, "value", |parser, value, path| {
            let digits = value.as_number().map(ToString::to_string);
            let amount = digits.and_then(|digits| Amount::parse(&digits)?.validated());
            match amount {
                Some(amount) => Some(amount),
                None => parser.refuse(path, "must be a number below 100 billion with at most 4 decimals"),
            }
        });
        Some(NumberTest { op: op?, value: value? })
    }

    fn count(&mut self, value: &Value, path: &str) -> Option<NumberTest> {
        let test = self.number(value, path)?;
        let is_count = value.get("value").and_then(Value::as_i64);
        match is_count.filter(|count| (0..=MAX_COUNT).contains(count)) {
            Some(_) => Some(test),
            None => self.refuse(
                format!("{path}.value"),
                format!("must be an integer from 0 to {MAX_COUNT}"),
            ),
        }
    }
}

/// How many of the forms of a time are given: days within, days before, or a range.
fn forms(time: &TimeCondition) -> usize {
    let is_range = time.after.is_some() || time.before.is_some();
    usize::from(time.within_days.is_some()) + usize::from(time.before_days.is_some()) + usize::from(is_range)
}

#[cfg(test)]
mod tests;
