//! Filter trees in SQL: one condition on contact `c` of account `$1`, evaluated in one of two ways ([`Access`]).
//!
//! The values of a tree are one parameter, a JSON array, so that statements have the same parameters whatever the tree.

use recado_domain::ingestion::OrderStatus;
use recado_domain::segments::{
    AttributeCondition, AttributeOp, CampaignCondition, CampaignOutcome, FilterNode, LastInboundCondition,
    MetricCondition, NumberOp, NumberTest, OrdersCondition, REPLY_WINDOW, TimeCondition, TimeZoneCondition,
};
use recado_domain::shared::ZoneName;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{HAS_OPTED_OUT, phone_zones};
use crate::sql::FENCE;

/// How the rows behind a condition are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By the contact, with an index: for contacts that were found before, and for the first of a list.
    PerContact,
    /// All of them once, as a set that is joined with the contacts. The statement MUST run under [`SET_PLANS`].
    Sets,
}

/// For statements with [`Access::Sets`]: only hash joins remain. With statistics that do not contain the account's rows,
/// the planner would read sets again for each contact; at the price of random reads, it would read all sends of the table
/// for one campaign. One more process reads along, because a caller waits.
pub(crate) const SET_PLANS: &str = "SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; \
    SET LOCAL work_mem = '64MB'; SET LOCAL random_page_cost = 1.1; SET LOCAL max_parallel_workers_per_gather = 1";

/// Ends [`SET_PLANS`], for look-ups later in the transaction.
pub(crate) const LOOKUP_PLANS: &str = "SET LOCAL enable_nestloop = on; SET LOCAL enable_mergejoin = on; \
    SET LOCAL random_page_cost TO DEFAULT; SET LOCAL max_parallel_workers_per_gather TO DEFAULT";

/// A tree as SQL.
pub(crate) struct TreeSql {
    /// A condition that is never null.
    pub(crate) condition: String,
    /// What follows `FROM contacts c`.
    pub(crate) joins: String,
    /// The value of the parameter.
    pub(crate) values: Value,
}

/// Writes nodes that must all match. `parameter` is the number of the parameter with the values, and `name` distinguishes
/// the sets of several trees in one statement.
pub(crate) fn tree_sql(nodes: &[FilterNode], access: Access, parameter: usize, name: &'static str) -> TreeSql {
    let mut writer = Writer {
        access,
        parameter,
        name,
        values: vec![],
        joins: vec![],
    };
    let condition = writer.all(nodes, " AND ");
    TreeSql {
        condition,
        joins: writer.joins.join(" "),
        values: Value::Array(writer.values),
    }
}

/// Rows of a contact, at least one of which makes a condition true.
struct Rows {
    from: String,
    /// The column with the contact.
    contact: &'static str,
    conditions: Vec<String>,
    /// Whether a contact has at most one of these rows.
    is_unique: bool,
}

impl Rows {
    fn new(from: impl Into<String>, contact: &'static str, conditions: impl IntoIterator<Item = String>) -> Self {
        Self {
            from: from.into(),
            contact,
            conditions: conditions.into_iter().collect(),
            is_unique: false,
        }
    }

    fn unique(self, is_unique: bool) -> Self {
        Self { is_unique, ..self }
    }

    fn and(mut self, condition: Option<String>) -> Self {
        self.conditions.extend(condition);
        self
    }
}

struct Writer {
    access: Access,
    parameter: usize,
    name: &'static str,
    values: Vec<Value>,
    joins: Vec<String>,
}

impl Writer {
    fn all(&mut self, nodes: &[FilterNode], operator: &str) -> String {
        let conditions: Vec<String> = nodes.iter().map(|node| self.node(node)).collect();
        match conditions.is_empty() {
            true => "true".to_owned(),
            false => format!("({})", conditions.join(operator)),
        }
    }

    fn node(&mut self, node: &FilterNode) -> String {
        match node {
            FilterNode::All(nodes) => self.all(nodes, " AND "),
            FilterNode::Any(nodes) => self.all(nodes, " OR "),
            FilterNode::Not(node) => format!("NOT {}", self.node(node)),
            FilterNode::Tag(tag) => {
                let tag = self.uuid(json!(tag.id));
                let rows = Rows::new(
                    "contact_tags l",
                    "l.contact_id",
                    [of_account("l"), format!("l.tag_id = {tag}")],
                );
                self.has_any(rows.unique(true))
            }
            FilterNode::Attribute(attribute) => self.attribute(attribute),
            FilterNode::Created(time) => format!("({})", self.time(time, "c.created_at").join(" AND ")),
            FilterNode::LastInbound(condition) => self.last_inbound(condition),
            FilterNode::Campaign(campaign) => self.campaign(campaign),
            FilterNode::Orders(orders) => self.orders(orders),
            FilterNode::Metric(metric) => self.metric(metric),
            FilterNode::Rfm(rfm) => {
                let names = self.value(json!(rfm.segments));
                let is_named = format!("r.segment = ANY (ARRAY (SELECT jsonb_array_elements_text({names})))");
                let rows = Rows::new("contact_rfm r", "r.contact_id", [of_account("r"), is_named]);
                self.has_any(rows.unique(true))
            }
            FilterNode::OptedOut(opted_out) => is_it(HAS_OPTED_OUT, *opted_out),
            FilterNode::HasPhone(has_phone) => is_it("(c.phone IS NOT NULL)", *has_phone),
            FilterNode::HasEmail(has_email) => is_it("(coalesce(c.email, '') <> '')", *has_email),
            FilterNode::TimeZone(TimeZoneCondition { zones }) => {
                let names = self.value(json!(zones.iter().flat_map(ZoneName::names).collect::<Vec<_>>()));
                let patterns = phone_zones::patterns(zones).map(|pattern| self.text(json!(pattern)));
                phone_zones::condition(&names, &patterns)
            }
        }
    }

    /// A value, as JSON.
    fn value(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("(${} -> {})", self.parameter, self.values.len() - 1)
    }

    fn text(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("(${} ->> {})", self.parameter, self.values.len() - 1)
    }

    fn uuid(&mut self, id: Value) -> String {
        format!("{}::uuid", self.text(id))
    }

    /// The time in its full precision, which the published format does not have.
    fn timestamp(&mut self, at: OffsetDateTime) -> String {
        let at = at.format(&Rfc3339).unwrap_or_default();
        format!("{}::timestamptz", self.text(json!(at)))
    }

    /// Texts are compared by their bytes. A JSON null is the text `null`, so that the condition is never null.
    fn attribute(&mut self, condition: &AttributeCondition) -> String {
        let key = self.text(json!(condition.key));
        let exists = format!("c.attributes ? {key}");
        let stored = format!("coalesce(c.attributes ->> {key}, 'null')");
        let operator = match condition.op {
            AttributeOp::Exists => return format!("({exists})"),
            AttributeOp::Absent => return format!("(NOT {exists})"),
            AttributeOp::Contains => {
                let value = self.text(json!(condition.value));
                return format!("({exists} AND strpos({stored}, {value}) > 0)");
            }
            AttributeOp::Eq => "=",
            AttributeOp::Ne => "<>",
            AttributeOp::Lt => "<",
            AttributeOp::Lte => "<=",
            AttributeOp::Gt => ">",
            AttributeOp::Gte => ">=",
        };
        let is_number = condition.value.as_ref().is_some_and(Value::is_number);
        let value = self.text(json!(condition.value));
        let as_numbers = match is_number {
            true => format!(
                "WHEN jsonb_typeof(c.attributes -> {key}) = 'number'
                 THEN (c.attributes ->> {key})::numeric {operator} {value}::numeric"
            ),
            false => String::new(),
        };
        format!(
            "(CASE WHEN NOT {exists} THEN {without} {as_numbers} ELSE {stored} COLLATE \"C\" {operator} {value} COLLATE \"C\" END)",
            without = condition.op == AttributeOp::Ne,
        )
    }

    fn time(&mut self, time: &TimeCondition, column: &str) -> Vec<String> {
        let within = time.within_days.map(|days| is_since(column, days));
        let before_days = time.before_days.map(|days| format!("{column} < {}", days_ago(days)));
        let after = time.after.map(|after| format!("{column} >= {}", self.timestamp(after)));
        let before = time
            .before
            .map(|before| format!("{column} < {}", self.timestamp(before)));
        [within, before_days, after, before].into_iter().flatten().collect()
    }

    fn last_inbound(&mut self, condition: &LastInboundCondition) -> String {
        let mut conditions = vec![of_account("v")];
        match condition.never {
            Some(_) => conditions.push("v.last_inbound_at IS NOT NULL".to_owned()),
            None => conditions.extend(self.time(&condition.time, "v.last_inbound_at")),
        }
        let rows = Rows::new("conversations v", "v.contact_id", conditions).unique(true);
        let wrote = self.has_any(rows);
        match condition.never {
            Some(_) => format!("NOT {wrote}"),
            None => wrote,
        }
    }

    /// A status may come without the ones before it, so the time of a later one stands for a missing one.
    fn campaign(&mut self, condition: &CampaignCondition) -> String {
        let (statuses, at) = match condition.was {
            CampaignOutcome::Clicked => return self.clicked(condition),
            CampaignOutcome::Sent | CampaignOutcome::NotSent | CampaignOutcome::Replied => (
                "('sent', 'delivered', 'read')",
                "coalesce(s.sent_at, s.delivered_at, s.read_at)",
            ),
            CampaignOutcome::Delivered => ("('delivered', 'read')", "coalesce(s.delivered_at, s.read_at)"),
            CampaignOutcome::Read => ("('read')", "s.read_at"),
            CampaignOutcome::Failed => ("('failed')", "s.failed_at"),
            CampaignOutcome::NotRead => ("('sent', 'delivered')", "coalesce(s.sent_at, s.delivered_at)"),
        };
        let mut conditions = vec![of_account("s"), format!("s.status IN {statuses}")];
        if let Some(id) = condition.id {
            let id = self.uuid(json!(id));
            conditions.push(format!("s.campaign_id = {id}"));
            // The ids of a campaign's sends: a look-up skips earlier and later partitions. A set is read by the index on
            // the campaign, in the order in which its sends were stored; by their ids it would be in random order.
            if self.access == Access::PerContact {
                let bound = |function: &str| {
                    format!("(SELECT {function}(f.frozen_at) FROM campaigns f WHERE f.account_id = $1 AND f.id = {id})")
                };
                conditions.push(format!("s.id BETWEEN {} AND {}", bound("first_id"), bound("last_id")));
            }
        }
        if condition.was == CampaignOutcome::Replied {
            return self.replied(condition, conditions, at);
        }
        let rows = Rows::new("campaign_sends s", "s.contact_id", conditions)
            .unique(condition.id.is_some())
            .and(condition.within_days.map(|days| is_since(at, days)));
        let has_any = self.has_any(rows);
        match condition.was {
            CampaignOutcome::NotSent => format!("NOT {has_any}"),
            _ => has_any,
        }
    }

    /// WhatsApp's times of messages are whole seconds.
    fn replied(&mut self, condition: &CampaignCondition, conditions: Vec<String>, sent_at: &str) -> String {
        let from = format!(
            "campaign_sends s CROSS JOIN LATERAL (SELECT v.id, v.last_inbound_at FROM conversations v
               WHERE v.account_id = $1 AND v.contact_id = s.contact_id {FENCE}) AS v"
        );
        let wrote_since = format!("v.last_inbound_at >= date_trunc('second', {sent_at})");
        let within = condition
            .within_days
            .map(|days| format!(" AND {}", is_since("m.created_at", days)));
        let replied = format!(
            "EXISTS (SELECT 1 FROM messages m WHERE m.account_id = $1 AND m.conversation_id = v.id
               AND m.direction = 'inbound' AND m.created_at >= date_trunc('second', {sent_at})
               AND m.created_at <= {sent_at} + interval '{hours} hours'{within} {FENCE})",
            hours = REPLY_WINDOW.whole_hours(),
            within = within.unwrap_or_default(),
        );
        let rows = Rows::new(from, "s.contact_id", conditions)
            .unique(condition.id.is_some())
            .and(Some(wrote_since))
            .and(Some(replied));
        self.has_any(rows)
    }

    fn clicked(&mut self, condition: &CampaignCondition) -> String {
        let of_campaign = match condition.id {
            None => "k.campaign_id IS NOT NULL".to_owned(),
            Some(id) => format!("k.campaign_id = {}", self.uuid(json!(id))),
        };
        let conditions = [of_account("k"), of_campaign, "k.clicks > 0".to_owned()];
        let since = condition.within_days.map(|days| is_since("k.last_clicked_at", days));
        self.has_any(Rows::new("links k", "k.contact_id", conditions).and(since))
    }

    fn orders(&mut self, condition: &OrdersCondition) -> String {
        let status = condition.status.unwrap_or(OrderStatus::Paid);
        let at = match status {
            OrderStatus::Paid => "o.paid_at",
            _ => "o.placed_at",
        };
        let conditions = [of_account("o"), format!("o.status = '{status}'")];
        let product = condition.product_id.as_ref().map(|product| {
            format!(
                "EXISTS (SELECT 1 FROM order_items i WHERE i.account_id = $1 AND i.order_id = o.id
                   AND i.product_id = {} {FENCE})",
                self.text(json!(product))
            )
        });
        let rows = Rows::new("orders o", "o.contact_id", conditions)
            .and(condition.within_days.map(|days| is_since(at, days)))
            .and(product);
        match (&condition.count, &condition.total) {
            (None, None) => self.has_any(rows),
            (Some(count), _) => self.aggregate(rows, "count(*)", count),
            (None, Some(total)) => self.aggregate(rows, "sum(o.total)", total),
        }
    }

    /// The sums of each contact are stored. Those of the last days are made of its events.
    fn metric(&mut self, condition: &MetricCondition) -> String {
        let name = self.text(json!(condition.name));
        let Some(days) = condition.within_days else {
            let conditions = [of_account("m"), format!("m.metric_name = {name}")];
            let rows = Rows::new("metric_contacts m", "m.contact_id", conditions).unique(true);
            return match (&condition.count, &condition.sum) {
                (None, None) => self.has_any(rows.and(Some("m.event_count > 0".to_owned()))),
                (Some(count), _) => self.compare(rows, "m.event_count", count),
                (None, Some(sum)) => self.compare(rows, "m.total_value", sum),
            };
        };
        let conditions = [
            of_account("e"),
            format!("e.metric_name = {name}"),
            is_since("e.occurred_at", days),
        ];
        let rows = Rows::new("metric_events e", "e.contact_id", conditions);
        match (&condition.count, &condition.sum) {
            (None, None) => self.has_any(rows),
            (Some(count), _) => self.aggregate(rows, "count(*)", count),
            (None, Some(sum)) => self.aggregate(rows, "coalesce(sum(e.value), 0)", sum),
        }
    }

    /// Whether the contact has one of the rows.
    fn has_any(&mut self, rows: Rows) -> String {
        let Rows {
            from,
            contact,
            conditions,
            is_unique,
        } = rows;
        let conditions = conditions.join(" AND ");
        match self.access {
            Access::PerContact => {
                format!("EXISTS (SELECT 1 FROM {from} WHERE {conditions} AND {contact} = c.id {FENCE})")
            }
            Access::Sets => {
                let distinct = if is_unique { "" } else { "DISTINCT" };
                self.joined(&format!(
                    "SELECT {distinct} {contact} AS id FROM {from} WHERE {conditions}"
                ))
            }
        }
    }

    /// Compares a number of the contact's only row; without a row it is 0.
    fn compare(&mut self, rows: Rows, column: &str, test: &NumberTest) -> String {
        let (test, is_negated) = self.test(column, test);
        negated(self.has_any(rows.and(Some(test))), is_negated)
    }

    /// Compares an aggregate of the contact's rows; without rows it is 0.
    fn aggregate(&mut self, rows: Rows, aggregate: &str, test: &NumberTest) -> String {
        let (test, is_negated) = self.test(aggregate, test);
        let Rows {
            from,
            contact,
            conditions,
            ..
        } = rows;
        let conditions = conditions.join(" AND ");
        let has = match self.access {
            Access::PerContact => format!(
                "EXISTS (SELECT 1 FROM {from} WHERE {conditions} AND {contact} = c.id GROUP BY {contact} HAVING {test} {FENCE})"
            ),
            Access::Sets => self.joined(&format!(
                "SELECT {contact} AS id FROM {from} WHERE {conditions} GROUP BY {contact} HAVING {test}"
            )),
        };
        negated(has, is_negated)
    }

    /// A test of a number. If a contact without rows matches it, the opposite, and true.
    fn test(&mut self, number: &str, test: &NumberTest) -> (String, bool) {
        let operator = match test.op {
            NumberOp::Eq => "=",
            NumberOp::Ne => "<>",
            NumberOp::Lt => "<",
            NumberOp::Lte => "<=",
            NumberOp::Gt => ">",
            NumberOp::Gte => ">=",
        };
        let condition = format!(
            "{number} {operator} {}::numeric",
            self.text(json!(test.value.to_string()))
        );
        match test.matches(0.into()) {
            true => (format!("NOT ({condition})"), true),
            false => (condition, false),
        }
    }

    /// Joins a set of contacts, and returns whether contact `c` is in it.
    fn joined(&mut self, set: &str) -> String {
        let name = format!("{}{}", self.name, self.joins.len());
        self.joins
            .push(format!("LEFT JOIN ({set}) AS {name} ON {name}.id = c.id"));
        format!("({name}.id IS NOT NULL)")
    }
}

fn of_account(table: &str) -> String {
    format!("{table}.account_id = $1")
}

/// Days of 24 hours, whatever the session's time zone.
fn days_ago(days: u16) -> String {
    format!("now() - interval '{} hours'", 24 * u32::from(days))
}

fn is_since(column: &str, days: u16) -> String {
    format!("{column} >= {}", days_ago(days))
}

fn is_it(condition: &str, value: bool) -> String {
    match value {
        true => condition.to_owned(),
        false => format!("(NOT {condition})"),
    }
}

fn negated(condition: String, is_negated: bool) -> String {
    match is_negated {
        true => format!("NOT {condition}"),
        false => condition,
    }
}

#[cfg(test)]
mod tests {
    use recado_domain::segments::AudienceFilters;

    use super::*;

    fn written(filters: Value, access: Access) -> TreeSql {
        let filters: AudienceFilters = serde_json::from_value(filters).unwrap();
        tree_sql(&filters.nodes().unwrap(), access, 9, "f")
    }

    #[test]
    fn both_ways_have_the_same_values() {
        let id = uuid::Uuid::nil();
        let filters = json!({
            "all": [
                { "tag": { "id": id } },
                { "orders": { "total": { "op": "lt", "value": 0.5 }, "product_id": "p'" } },
                { "campaign": { "id": id, "was": "replied" } },
            ],
            "not": { "attribute": { "key": "a'", "op": "gt", "value": "b'" } },
        });
        let expected = json!([id, "p'", "0.5", id, "a'", "b'"]);
        for access in [Access::PerContact, Access::Sets] {
            let written = written(filters.clone(), access);
            assert_eq!(written.values, expected);
            let text = format!("{} {}", written.condition, written.joins);
            assert!(
                !text.contains("p'") && !text.contains("a'\"") && !text.contains("b'\""),
                "{text}"
            );
        }
    }

    #[test]
    fn test_that_zero_passes_excludes_its_opposite() {
        let fewer = json!({ "all": [{ "orders": { "count": { "op": "lt", "value": 2 } } }] });
        let sets = written(fewer, Access::Sets);
        assert_eq!(sets.condition, "((NOT (f0.id IS NOT NULL)))");
        assert!(
            sets.joins.contains("HAVING NOT (count(*) < ($9 ->> 0)::numeric)"),
            "{}",
            sets.joins
        );
    }
}
