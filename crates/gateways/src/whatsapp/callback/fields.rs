//! Reads single values of a callback.

use serde_json::Value;
use time::OffsetDateTime;

/// The longest id that is accepted, in bytes. WhatsApp's own ids are shorter.
const ID_BYTES: usize = 512;

/// An id, as a JSON string or a JSON number.
pub(super) fn id(object: &Value, field: &str) -> Option<String> {
    let given = match object.get(field)? {
        Value::String(id) => id.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!given.is_empty() && given.len() <= ID_BYTES && !given.contains('\0')).then_some(given)
}

/// A time in Unix seconds, as a JSON string or a JSON number.
pub(super) fn unix_time(object: &Value, field: &str) -> Option<OffsetDateTime> {
    let seconds = text(object, field)?.parse().ok()?;
    OffsetDateTime::from_unix_timestamp(seconds).ok()
}

/// A text without NUL, which PostgreSQL cannot store.
pub(super) fn text(object: &Value, field: &str) -> Option<String> {
    match object.get(field)? {
        Value::String(text) => Some(text.replace('\0', "")),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
