//! Schemas of single types: tidied, self-contained, or closed.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::examples::{example_of, patched};
use super::operation::SchemaOf;

/// The self-contained schema of a type, and its example: the one that the fields' examples generate, with a patch.
pub(crate) fn schema_and_example(schema: SchemaOf, patch: &Value) -> (Value, Value) {
    let schema = inlined(schema);
    let example = patched(example_of(&schema, &schema), patch);
    (schema, example)
}

/// A self-contained schema of a serialized type: the types that it refers to are in place.
fn inlined(schema: SchemaOf) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    tidied(schema(&mut settings.for_serialize().into_generator()).to_value())
}

/// A schema that accepts no undocumented fields, for tests. The published one is open: later versions add fields.
pub fn closed(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut fields: Map<String, Value> = fields
                .into_iter()
                .map(|(key, value)| match key.as_str() {
                    "examples" | "default" | "const" | "enum" => (key, value),
                    _ => (key, closed(value)),
                })
                .collect();
            if fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.into_iter().map(closed).collect(),
        other => other,
    }
}

/// Removes what schemars adds beyond the standard: line breaks inside a paragraph, integer widths as `format`, and
/// `null` as the default of an optional field.
pub(crate) fn tidied(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .into_iter()
            .filter_map(|(key, value)| tidied_keyword(key, value))
            .collect(),
        Value::Array(items) => items.into_iter().map(tidied).collect(),
        other => other,
    }
}

fn tidied_keyword(key: String, value: Value) -> Option<(String, Value)> {
    match (key.as_str(), value) {
        ("default", Value::Null) => None,
        ("format", Value::String(format)) if format.starts_with("uint") => None,
        ("description", Value::String(text)) => Some((key, Value::String(paragraphs(&text)))),
        ("examples" | "default" | "const" | "enum", value) => Some((key, value)),
        (_, value) => Some((key, tidied(value))),
    }
}

/// Replaces the line breaks of source comments with spaces; paragraph breaks stay.
fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}
