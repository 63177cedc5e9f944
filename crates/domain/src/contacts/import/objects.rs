//! Contacts in a file of JSON lines: what the fields of an object mean.

use serde_json::{Map, Value};

use super::super::ImportRow;
use super::Taken;
use super::lines::{LINE_BYTES, Line, LineDecoder};
use super::row::{Written, tags_of};
use crate::shared::text;

/// What a published contact says of itself and nobody may set.
const PUBLISHED: [&str; 5] = ["id", "account_id", "opted_out_at", "created_at", "updated_at"];

/// A file of JSON lines being read.
#[derive(Default)]
pub(super) struct Objects(LineDecoder);

impl Objects {
    pub(super) fn feed(&mut self, piece: &[u8]) -> Vec<Taken> {
        self.0.feed(piece).into_iter().map(read_line).collect()
    }

    pub(super) fn finish(&mut self) -> Vec<Taken> {
        self.0.finish().into_iter().map(read_line).collect()
    }
}

fn read_line(Line { line, bytes }: Line) -> Taken {
    let row = match bytes {
        None => Err(format!("line must have at most {LINE_BYTES} bytes")),
        Some(bytes) => read_object(&bytes),
    };
    Taken { line, row }
}

fn read_object(bytes: &[u8]) -> Result<ImportRow, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "line is not valid UTF-8")?;
    let value: Value = serde_json::from_str(text).map_err(|_| "line is not valid JSON")?;
    if text::holds_nul(&value) {
        return Err("line contains a NUL character".to_owned());
    }
    match value {
        Value::Object(fields) => row_of(fields),
        _ => Err("line is not a JSON object".to_owned()),
    }
}

/// A contact by the fields of a new one; tags by their names, and every other field that is a text, a number or a
/// boolean is an attribute.
fn row_of(fields: Map<String, Value>) -> Result<ImportRow, String> {
    let mut written = Written::default();
    let mut others = Map::new();
    for (field, value) in fields {
        match field.as_str() {
            "name" => written.name = text_of(&field, value)?,
            "phone" => written.phone = text_of(&field, value)?,
            "email" => written.email = text_of(&field, value)?,
            "tags" => written.tags = names_of(value).map_err(|message| format!("tags {message}"))?,
            "attributes" => written.attributes = attributes_of(value)?,
            "opted_out" => written.opted_out = truth_of(&field, value)?,
            "tag_ids" | "wa_user_id" if !value.is_null() => {
                return Err(format!("{field} cannot be imported; leave it out"));
            }
            name if !name.is_empty() && !PUBLISHED.contains(&name) && is_scalar(&value) => {
                others.insert(field, value);
            }
            _ => {}
        }
    }
    others.extend(written.attributes);
    written.attributes = others;
    written.check()
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

fn text_of(field: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(String::new()),
        _ => Err(format!("{field} must be a text")),
    }
}

fn truth_of(field: &str, value: Value) -> Result<bool, String> {
    match value {
        Value::Bool(truth) => Ok(truth),
        Value::Null => Ok(false),
        _ => Err(format!("{field} must be true or false")),
    }
}

const NAMES_RULE: &str = "must be a list of names, or a text of names separated by semicolons";

/// The names of tags: a list, or one text. An error continues the field's name.
pub(in crate::contacts) fn names_of(value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(vec![]),
        Value::String(text) => Ok(tags_of(&text)),
        Value::Array(names) => names.into_iter().map(name_of).collect(),
        _ => Err(NAMES_RULE.to_owned()),
    }
}

fn name_of(name: Value) -> Result<String, String> {
    match name {
        Value::String(name) => Ok(name),
        Value::Null => Ok(String::new()),
        _ => Err(NAMES_RULE.to_owned()),
    }
}

fn attributes_of(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(attributes) if attributes.values().all(|value| is_scalar(value) || value.is_null()) => {
            Ok(attributes)
        }
        _ => Err("attributes must be an object of texts, numbers, booleans or nulls".to_owned()),
    }
}
