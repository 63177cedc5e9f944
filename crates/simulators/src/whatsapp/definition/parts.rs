//! The parts of a definition or of a send, and their counts.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::whatsapp::graph::GraphError;

/// The distinct variables of a text: `{{1}}` or `{{first_name}}`.
pub(in crate::whatsapp) fn variables(content: &str) -> BTreeSet<&str> {
    content
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split_once("}}"))
        .map(|(name, _)| name.trim())
        .collect()
}

pub(in crate::whatsapp) fn component<'a>(template: &'a Value, expected: &str) -> Option<&'a Value> {
    components(template)
        .iter()
        .find(|component| kind(component) == expected)
}

pub(in crate::whatsapp) fn components(template: &Value) -> &[Value] {
    list(template, "components")
}

pub(in crate::whatsapp) fn kind(component: &Value) -> String {
    text(component, "type").to_ascii_uppercase()
}

pub(in crate::whatsapp) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(in crate::whatsapp) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(in crate::whatsapp) fn same_count(part: &str, expected: usize, actual: usize) -> Result<(), GraphError> {
    if expected == actual {
        return Ok(());
    }
    let part = part.to_ascii_lowercase();
    let details = format!(
        "{part}: number of localizable_params ({actual}) does not match the expected number of params ({expected})"
    );
    Err(GraphError::new(132000, details))
}
