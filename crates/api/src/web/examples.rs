//! Generates examples of bodies and responses from the examples of their fields.

use serde_json::{Map, Value, json};

/// The maximum nesting depth of a generated value; it bounds recursive schemas.
const DEPTH: usize = 16;

const CREATED: &str = "2026-01-31T12:00:00.000Z";
const LATER: &str = "2026-02-01T09:30:00.000Z";
const DAY: &str = "2026-02-01";

/// Generates a value of `schema`. References are resolved in `document`.
pub(crate) fn example_of(document: &Value, schema: &Value) -> Value {
    sample(document, schema, "", DEPTH)
}

/// Applies a patch: objects are merged field by field, each item of a list is merged into the first generated item,
/// and any other value is replaced.
pub(crate) fn patched(value: Value, patch: &Value) -> Value {
    match (value, patch) {
        (Value::Object(mut fields), Value::Object(changes)) => {
            for (name, change) in changes {
                let before = fields.remove(name).unwrap_or_default();
                fields.insert(name.clone(), patched(before, change));
            }
            Value::Object(fields)
        }
        (Value::Array(items), Value::Array(changes)) => {
            let item = items.into_iter().next().unwrap_or_default();
            changes.iter().map(|change| patched(item.clone(), change)).collect()
        }
        (_, patch) => patch.clone(),
    }
}

fn sample(document: &Value, schema: &Value, name: &str, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return Value::Null;
    };
    if let Some(value) = explicit_example(schema) {
        return value;
    }
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(path.trim_start_matches('#')).unwrap_or(&Value::Null);
        return sample(document, target, name, depth);
    }
    for choice in ["anyOf", "oneOf"] {
        let choices = schema.get(choice).and_then(Value::as_array);
        if let Some(first) = choices.and_then(|choices| choices.iter().find(|choice| !is_null(choice))) {
            let chosen = sample(document, first, name, depth);
            return match schema.get("properties") {
                Some(_) => patched(chosen, &fields(document, schema, depth)),
                None => chosen,
            };
        }
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        let parts = parts.iter().map(|part| sample(document, part, name, depth));
        return parts.fold(json!({}), |merged, part| patched(merged, &part));
    }
    match type_of(schema) {
        Some("object") => fields(document, schema, depth),
        Some("array") => match schema.get("items") {
            Some(items) => json!([sample(document, items, name, depth)]),
            None => json!([]),
        },
        Some("string") => text(schema, name),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(false),
        _ => Value::Null,
    }
}

/// The schema's own example, constant, default or first enum value. The default of an object is ignored, because it
/// often is empty.
fn explicit_example(schema: &Value) -> Option<Value> {
    let first = |key| schema.get(key).and_then(|values| values.get(0));
    let value = first("examples")
        .or_else(|| schema.get("const"))
        .or_else(|| schema.get("default").filter(|value| !value.is_object()));
    value.or_else(|| first("enum")).cloned()
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|value| value == "null")
}

/// The type of a schema; the first one if it has several.
pub(crate) fn type_of(schema: &Value) -> Option<&str> {
    match schema.get("type") {
        Some(Value::Array(types)) => types.first().and_then(Value::as_str),
        Some(value) => value.as_str(),
        None => schema.get("properties").map(|_| "object"),
    }
}

fn fields(document: &Value, schema: &Value, depth: usize) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    let fields: Map<String, Value> = properties
        .into_iter()
        .flatten()
        .map(|(name, field)| (name.clone(), sample(document, field, name, depth)))
        .collect();
    Value::Object(fields)
}

fn text(schema: &Value, name: &str) -> Value {
    match schema.get("format").and_then(Value::as_str) {
        Some("uuid") => json!(id(name)),
        Some("date-time") if name == "created_at" => json!(CREATED),
        Some("date-time") => json!(LATER),
        Some("date") => json!(DAY),
        Some("email") => json!("ana@example.com"),
        Some("uri") => json!("https://example.com/"),
        _ => json!("text"),
    }
}

/// A deterministic id for a field name (FNV-1a).
fn id(name: &str) -> String {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("0190a1b2-c3d4-7e5f-8a9b-{:012x}", u64::from(hash))
}
