//! Filters on contacts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::nodes::{FilterNode, FilterReference};
use super::parse::TreeParser;
use crate::shared::schema::Timestamp;
use crate::shared::{FieldErrors, timestamp};

/// The most attributes in a filter, and their largest size together.
const ATTRIBUTES: usize = 100;
const ATTRIBUTE_BYTES: usize = 16 * 1024;

/// Conditions that a contact must meet; all of them apply. Unknown names are rejected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AudienceFilters {
    /// Only contacts that were created at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub created_after: Option<OffsetDateTime>,
    /// Only contacts that were created before this time.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option", skip_serializing_if = "Option::is_none")]
    pub created_before: Option<OffsetDateTime>,
    /// True: only contacts with an e-mail address; false: only those without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_email: Option<bool>,
    /// Only contacts that have each of these attributes with exactly this value (string, number, boolean or null).
    #[schemars(example = serde_json::json!({ "city": "Campinas" }))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Map<String, Value>>,
    /// Only contacts that match each of these 1 to 20 nodes. Nodes are nested at most four levels deep, and filters have
    /// at most 50.
    #[schemars(with = "Option<Vec<FilterNode>>", length(min = 1, max = 20))]
    #[schemars(example = serde_json::json!([{ "attribute": { "key": "city", "op": "eq", "value": "Campinas" } }]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Value>,
    /// Only contacts that match at least one of these 1 to 20 nodes.
    #[schemars(with = "Option<Vec<FilterNode>>", length(min = 1, max = 20))]
    #[schemars(example = serde_json::json!([{ "opted_out": false }]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any: Option<Value>,
    /// Only contacts that do not match this node.
    #[schemars(with = "Option<FilterNode>", example = serde_json::json!({ "has_phone": false }))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Value>,
}

impl AudienceFilters {
    /// Adds the errors of the filters. `path` is the field that contains them.
    pub fn check(&self, path: &str, errors: &mut FieldErrors) {
        self.check_attributes(path, errors);
        self.parse(path, errors);
    }

    /// The nodes that must all match. An error: the filters were not checked.
    pub fn nodes(&self) -> Result<Vec<FilterNode>, FieldErrors> {
        let mut errors = FieldErrors::default();
        let nodes = self.parse("filters", &mut errors);
        errors.into_result().map(|()| nodes)
    }

    /// The rows that the nodes name, with the path of each. `path` is the field that contains the filters.
    pub fn references(&self, path: &str) -> Vec<(String, FilterReference)> {
        let nodes = self.parse(path, &mut FieldErrors::default());
        nodes.iter().flat_map(|node| node.references(path)).collect()
    }

    fn parse(&self, path: &str, errors: &mut FieldErrors) -> Vec<FilterNode> {
        let mut parser = TreeParser::new(errors);
        let all = self.all.as_ref().map(|all| parser.list(all, &format!("{path}.all"), 1));
        let any = self.any.as_ref().map(|any| parser.list(any, &format!("{path}.any"), 1));
        let not = self.not.as_ref().map(|not| parser.node(not, &format!("{path}.not"), 1));
        let not = not.flatten().map(|node| FilterNode::Not(Box::new(node)));
        let lists = [
            all.flatten().map(FilterNode::All),
            any.flatten().map(FilterNode::Any),
            not,
        ];
        lists.into_iter().flatten().collect()
    }

    fn check_attributes(&self, path: &str, errors: &mut FieldErrors) {
        let Some(attributes) = &self.attributes else { return };
        let bytes: usize = attributes
            .iter()
            .map(|(key, value)| key.len() + value.to_string().len())
            .sum();
        if attributes.len() > ATTRIBUTES || bytes > ATTRIBUTE_BYTES {
            errors.add(
                format!("{path}.attributes"),
                format!("must have at most {ATTRIBUTES} values and {ATTRIBUTE_BYTES} bytes in total"),
            );
        }
        // No contact has an array or object as an attribute, so the condition could never be met.
        for (key, value) in attributes {
            if value.is_array() || value.is_object() {
                let field = format!("{path}.attributes.{key}");
                errors.add(field, "must be a string, number, boolean or null");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_reject_unknown_and_omit_absent_conditions() {
        let unknown = serde_json::from_value::<AudienceFilters>(json!({ "age": 3 }));
        assert!(unknown.unwrap_err().to_string().contains("age"));
        let filters: AudienceFilters = serde_json::from_value(json!({ "has_email": true })).unwrap();
        assert_eq!(json!(filters), json!({ "has_email": true }));
    }

    #[test]
    fn published_filters_stay_lenient_beside_trees() {
        let nulls = json!({ "has_email": null, "created_after": null, "attributes": null, "all": null, "not": null });
        let filters: AudienceFilters = serde_json::from_value(nulls).unwrap();
        assert_eq!(filters, AudienceFilters::default());
        let tree = json!({ "has_email": true, "any": [{ "opted_out": false }], "not": { "has_phone": false } });
        let filters: AudienceFilters = serde_json::from_value(tree.clone()).unwrap();
        assert_eq!(json!(filters), tree);
        let nodes = [
            FilterNode::Any(vec![FilterNode::OptedOut(false)]),
            FilterNode::Not(Box::new(FilterNode::HasPhone(false))),
        ];
        assert_eq!(filters.nodes(), Ok(nodes.into()));
    }

    #[test]
    fn references_of_a_tree_are_named_by_path() {
        let (tag, campaign) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
        let filters: AudienceFilters = serde_json::from_value(json!({
            "all": [
                { "has_email": true },
                { "not": { "any": [{ "tag": { "id": tag } }, { "campaign": { "id": campaign, "was": "sent" } }] } },
            ],
            "not": { "orders": { "product_id": "p" } },
        }))
        .unwrap();
        let references = filters.references("segment_config.filters");
        let expected = [
            (
                "segment_config.filters.all[1].not.any[0].tag.id",
                FilterReference::Tag(tag.into()),
            ),
            (
                "segment_config.filters.all[1].not.any[1].campaign.id",
                FilterReference::Campaign(campaign.into()),
            ),
            (
                "segment_config.filters.not.orders.product_id",
                FilterReference::Product("p".into()),
            ),
        ];
        assert_eq!(
            references,
            expected.map(|(path, reference)| (path.to_owned(), reference))
        );
    }

    #[test]
    fn filters_reject_nested_and_too_many_attributes() {
        let filters = json!({ "attributes": { "a": 1, "b": null, "c": [1], "d": { "e": 1 } } });
        let filters: AudienceFilters = serde_json::from_value(filters).unwrap();
        let mut errors = FieldErrors::default();
        filters.check("filters", &mut errors);
        let fields: Vec<&str> = errors.0.keys().map(String::as_str).collect();
        assert_eq!(fields, ["filters.attributes.c", "filters.attributes.d"]);
        let many: Map<String, Value> = (0..101).map(|n| (n.to_string(), json!(n))).collect();
        let many = AudienceFilters {
            attributes: Some(many),
            ..AudienceFilters::default()
        };
        let mut errors = FieldErrors::default();
        many.check("segment_config.filters", &mut errors);
        assert!(errors.0.contains_key("segment_config.filters.attributes"));
    }
}
