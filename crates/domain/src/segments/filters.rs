//! Filters on contacts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

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
}

impl AudienceFilters {
    /// Adds the errors of the filters. `path` is the field that contains them.
    pub fn check(&self, path: &str, errors: &mut FieldErrors) {
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
