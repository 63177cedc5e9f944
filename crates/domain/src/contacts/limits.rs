//! Limits of a contact's attributes, shared by every writer. The store enforces them within its SQL statements; its
//! tests compare the SQL size with [`attribute_bytes`].

use serde_json::{Map, Value};

/// The most attributes of a contact.
pub const MAX_ATTRIBUTES: usize = 100;

/// The largest total size of a contact's attribute names and values (as JSON).
pub const MAX_ATTRIBUTE_BYTES: usize = 16 * 1024;

/// Returns the size that counts against [`MAX_ATTRIBUTE_BYTES`].
pub fn attribute_bytes(attributes: &Map<String, Value>) -> usize {
    attributes
        .iter()
        .map(|(key, value)| key.len() + value.to_string().len())
        .sum()
}

/// Whether the attributes are within both limits.
pub(super) fn attributes_fit(attributes: &Map<String, Value>) -> bool {
    attributes.len() <= MAX_ATTRIBUTES && attribute_bytes(attributes) <= MAX_ATTRIBUTE_BYTES
}

/// Whether a merge of attributes may be stored. A contact that already exceeds a limit may be merged if it does not
/// grow.
pub(super) fn merge_fits(stored: &Map<String, Value>, merged: &Map<String, Value>) -> bool {
    (merged.len() <= MAX_ATTRIBUTES || merged.len() <= stored.len())
        && (attribute_bytes(merged) <= MAX_ATTRIBUTE_BYTES || attribute_bytes(merged) <= attribute_bytes(stored))
}

/// The error message for attributes beyond the limits. It continues the field's name.
pub(super) fn attributes_rule() -> String {
    format!("must have at most {MAX_ATTRIBUTES} values and {MAX_ATTRIBUTE_BYTES} bytes in total")
}

/// The error message for attributes that exceed the limits after the merge. It continues the field's name.
pub(super) fn merge_rule() -> String {
    format!("merged with the stored ones {}", attributes_rule())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attributes(prefix: &str, count: usize) -> Map<String, Value> {
        (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect()
    }

    #[test]
    fn attribute_bytes_count_names_and_json_values() {
        let json_bytes = |value: Value| attribute_bytes(value.as_object().unwrap());
        assert_eq!(json_bytes(json!({})), 0);
        assert_eq!(
            json_bytes(json!({ "a": "é\n", "bc": null, "d": 10, "e": true })),
            1 + 6 + 2 + 4 + 1 + 2 + 1 + 4
        );
        assert!(attributes_fit(&attributes("a", MAX_ATTRIBUTES)));
        assert!(!attributes_fit(&attributes("a", MAX_ATTRIBUTES + 1)));
        let large = |bytes: usize| json!({ "a": "x".repeat(bytes - 3) }).as_object().unwrap().clone();
        assert!(attributes_fit(&large(MAX_ATTRIBUTE_BYTES)));
        assert!(!attributes_fit(&large(MAX_ATTRIBUTE_BYTES + 1)));
    }

    #[test]
    fn contact_beyond_the_limit_may_be_merged_but_not_grow() {
        let mut merged = attributes("a", MAX_ATTRIBUTES + 20);
        let stored = merged.clone();
        assert!(merge_fits(&stored, &merged));
        merged.insert("a1".into(), json!("y"));
        assert!(merge_fits(&stored, &merged));
        merged.insert("b".into(), json!("y"));
        assert!(!merge_fits(&stored, &merged));
        assert!(merge_fits(&attributes("a", 99), &attributes("a", 100)));
        assert!(!merge_fits(&attributes("a", 100), &attributes("a", 101)));
    }
}
