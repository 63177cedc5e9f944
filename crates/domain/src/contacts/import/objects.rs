//! Parses contacts from a file of JSON lines.

use serde_json::{Map, Value};

use super::super::ImportRow;
use super::lines::{LINE_BYTES, Line, LineDecoder};
use super::row::{ParsedLine, RowInput, split_tags};
use crate::shared::text;

/// Read-only fields of a published contact, which the import ignores.
const READ_ONLY_FIELDS: [&str; 5] = ["id", "account_id", "opted_out_at", "created_at", "updated_at"];

#[derive(Default)]
pub(super) struct Objects(LineDecoder);

impl Objects {
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Vec<ParsedLine> {
        self.0.feed(chunk).into_iter().map(read_line).collect()
    }

    pub(super) fn finish(&mut self) -> Vec<ParsedLine> {
        self.0.finish().into_iter().map(read_line).collect()
    }
}

fn read_line(Line { line, bytes }: Line) -> ParsedLine {
    let row = match bytes {
        None => Err(format!("line must have at most {LINE_BYTES} bytes")),
        Some(bytes) => read_object(&bytes),
    };
    ParsedLine { line, row }
}

fn read_object(bytes: &[u8]) -> Result<ImportRow, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "line is not valid UTF-8")?;
    let value: Value = serde_json::from_str(text).map_err(|_| "line is not valid JSON")?;
    if text::holds_nul(&value) {
        return Err("line contains a NUL character".to_owned());
    }
    match value {
        Value::Object(fields) => parse_row(fields),
        _ => Err("line is not a JSON object".to_owned()),
    }
}

/// Parses the fields of a new contact. `tags` holds names, and every other field with a string, number or boolean is an
/// attribute.
fn parse_row(fields: Map<String, Value>) -> Result<ImportRow, String> {
    let mut input = RowInput::default();
    let mut other_fields = Map::new();
    for (field, value) in fields {
        match field.as_str() {
            "name" => input.name = parse_string(&field, value)?,
            "phone" => input.phone = parse_string(&field, value)?,
            "email" => input.email = parse_string(&field, value)?,
            "wa_user_id" => input.wa_user_id = parse_string(&field, value)?,
            "time_zone" => input.time_zone = parse_string(&field, value)?,
            "tags" => input.tags = parse_tag_names(value).map_err(|message| format!("tags {message}"))?,
            "attributes" => input.attributes = parse_attributes(value)?,
            "opted_out" => input.opted_out = parse_bool(&field, value)?,
            "tag_ids" if !value.is_null() => {
                return Err("tag_ids cannot be imported; leave it out".to_owned());
            }
            name if !name.is_empty() && !READ_ONLY_FIELDS.contains(&name) && is_scalar(&value) => {
                other_fields.insert(field, value);
            }
            _ => {}
        }
    }
    other_fields.extend(input.attributes);
    input.attributes = other_fields;
    input.check()
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

fn parse_string(field: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(String::new()),
        _ => Err(format!("{field} must be a string")),
    }
}

fn parse_bool(field: &str, value: Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(flag),
        Value::Null => Ok(false),
        _ => Err(format!("{field} must be true or false")),
    }
}

const TAGS_RULE: &str = "must be a list of strings, or one string with names separated by semicolons";

/// Parses tag names from a list or from one string. The error message continues the field's name.
pub(in crate::contacts) fn parse_tag_names(value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(vec![]),
        Value::String(text) => Ok(split_tags(&text)),
        Value::Array(names) => names.into_iter().map(parse_tag_name).collect(),
        _ => Err(TAGS_RULE.to_owned()),
    }
}

fn parse_tag_name(name: Value) -> Result<String, String> {
    match name {
        Value::String(name) => Ok(name),
        Value::Null => Ok(String::new()),
        _ => Err(TAGS_RULE.to_owned()),
    }
}

fn parse_attributes(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(attributes) if attributes.values().all(|value| is_scalar(value) || value.is_null()) => {
            Ok(attributes)
        }
        _ => Err("attributes must be an object of strings, numbers, booleans or nulls".to_owned()),
    }
}
