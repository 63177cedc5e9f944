//! Schemas of single types: tidied, self-contained, or closed.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

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

/// Removes line breaks inside a paragraph, the formats `uint*` and the default `null`. Writes an enumeration as `enum`.
pub(crate) fn tidied(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.filter_map(|(key, value)| tidied_keyword(key, value));
            Value::Object(with_enumeration(fields.collect()))
        }
        Value::Array(items) => items.into_iter().map(tidied).collect(),
        other => other,
    }
}

fn tidied_keyword(key: String, value: Value) -> Option<(String, Value)> {
    match (key.as_str(), value) {
        ("default", Value::Null) => None,
        // The same, in the form that every generator of clients can read.
        ("items", Value::Bool(true)) => Some((key, json!({}))),
        ("format", Value::String(format)) if format.starts_with("uint") => None,
        ("description", Value::String(text)) => Some((key, Value::String(paragraphs(&text)))),
        ("examples" | "default" | "const" | "enum", value) => Some((key, value)),
        (_, value) => Some((key, tidied(value))),
    }
}

/// Replaces a `oneOf` of string constants, as schemars writes an enum with comments, with `enum`: generators of clients
/// read `oneOf` as a union of types. The comments become a list in the description.
fn with_enumeration(mut fields: Map<String, Value>) -> Map<String, Value> {
    let Some(choices) = fields.get("oneOf").and_then(Value::as_array) else {
        return fields;
    };
    let constants: Option<Vec<&str>> = choices.iter().map(|choice| choice.get("const")?.as_str()).collect();
    let Some(constants) = constants else {
        return fields;
    };
    let own = fields.get("description").and_then(Value::as_str).map(str::to_owned);
    let of_constants = choices.iter().zip(&constants).filter_map(|(choice, constant)| {
        let text = choice.get("description")?.as_str()?;
        Some(format!("- `{constant}`: {text}"))
    });
    let list = of_constants.collect::<Vec<_>>().join("\n");
    let values = constants.iter().map(|constant| json!(constant)).collect();
    let description: Vec<String> = own.into_iter().chain([list]).filter(|text| !text.is_empty()).collect();
    fields.remove("oneOf");
    fields.insert("type".into(), json!("string"));
    fields.insert("enum".into(), values);
    if !description.is_empty() {
        fields.insert("description".into(), json!(description.join("\n\n")));
    }
    fields
}

/// Replaces the line breaks of source comments with spaces; paragraph breaks stay.
fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_is_in_the_form_that_generators_read() {
        let draft = json!({ "const": "draft", "type": "string", "description": "Not sent\nyet." });
        let sent = json!({ "const": "sent", "type": "string" });
        let status = json!({ "description": "The status.", "oneOf": [draft, sent] });
        let number = json!({ "oneOf": [{ "type": "integer" }, { "const": "all" }] });
        let list = json!({ "type": "array", "items": true });
        let schema = tidied(json!({ "properties": { "status": status, "number": number, "list": list } }));
        assert_eq!(
            schema["properties"]["status"],
            json!({ "type": "string", "enum": ["draft", "sent"], "description": "The status.\n\n- `draft`: Not sent yet." })
        );
        assert_eq!(schema["properties"]["number"], number);
        assert_eq!(schema["properties"]["list"], json!({ "type": "array", "items": {} }));
    }
}
