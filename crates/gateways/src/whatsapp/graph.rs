//! Reads values of the Graph API: errors, ids, limits, and texts that are safe to store and show.

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Longest stored text of a response, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// JSON pointers to the text of a send's error, best first.
pub(super) const SEND_ERROR_TEXTS: &[&str] = &["/error_data/details", "/message"];

/// JSON pointers to the text of a template's error, best first.
pub(super) const TEMPLATE_ERROR_TEXTS: &[&str] = &["/error_user_msg", "/error_data/details", "/message"];

/// An error of the Graph API. Only `code` has a stable meaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GraphError {
    pub(super) code: i64,
    pub(super) message: String,
}

/// The error in a response's body; `None` if there is none or it has no code.
pub(super) fn error(body: &Value, text_pointers: &[&str], token: &SecretString) -> Option<GraphError> {
    let error = body.get("error")?;
    let code = error.get("code")?;
    let code = code.as_i64().or_else(|| code.as_str()?.parse().ok())?;
    let found = text_pointers
        .iter()
        .filter_map(|pointer| error.pointer(pointer)?.as_str())
        .find(|text| !text.trim().is_empty());
    Some(GraphError {
        code,
        message: safe_text(found.unwrap_or("no reason given"), token),
    })
}

/// An id, which the Graph API returns as a string or as a number.
pub(super) fn id(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(id) if !id.is_empty() && !id.contains(char::is_control) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// The messaging limit that WhatsApp names by a number or by a word like `TIER_2K`; -1 is unlimited. None for a word
/// that is not known.
pub(super) fn messaging_limit(value: &Value) -> Option<i64> {
    let word = match value {
        Value::Number(limit) => return limit.as_i64().filter(|limit| *limit >= -1),
        Value::String(word) => word.trim().to_ascii_uppercase(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let word = word.strip_prefix("TIER_").unwrap_or(&word);
    let (digits, factor) = match (word, word.strip_suffix('K')) {
        ("UNLIMITED", _) => return Some(-1),
        (_, Some(thousands)) => (thousands, 1000),
        (digits, None) => (digits, 1),
    };
    digits
        .parse::<i64>()
        .ok()?
        .checked_mul(factor)
        .filter(|limit| *limit >= -1)
}

/// Reduces a text of the Graph API to one line of bounded length. Meta quotes a malformed token in its error, so the
/// token is replaced: these texts are stored and shown.
pub(super) fn safe_text(text: &str, token: &SecretString) -> String {
    let token = token.expose_secret();
    let safe = if token.is_empty() {
        text.to_owned()
    } else {
        text.replace(token, "[token]")
    };
    safe.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_TEXT_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_uses_best_text_and_hides_token() {
        let token = SecretString::from("EAAG1");
        let body =
            json!({ "error": { "code": "190", "message": "Malformed access token EAAG1\u{0}!", "error_data": {} } });
        let found = error(&body, SEND_ERROR_TEXTS, &token).unwrap();
        assert_eq!(
            found,
            GraphError {
                code: 190,
                message: "Malformed access token [token] !".into()
            }
        );
        let body = json!({ "error": { "code": 100, "message": "m", "error_user_msg": "u", "error_data": { "details": "d" } } });
        assert_eq!(error(&body, SEND_ERROR_TEXTS, &token).unwrap().message, "d");
        assert_eq!(error(&body, TEMPLATE_ERROR_TEXTS, &token).unwrap().message, "u");
        for unreadable in [
            json!({}),
            json!({ "error": "no" }),
            json!({ "error": { "message": "m" } }),
            json!([]),
        ] {
            assert_eq!(error(&unreadable, SEND_ERROR_TEXTS, &token), None);
        }
    }

    #[test]
    fn id_accepts_strings_and_numbers() {
        assert_eq!(id(Some(&json!("594"))).as_deref(), Some("594"));
        assert_eq!(
            id(Some(&json!(1_689_556_908_129_835_u64))).as_deref(),
            Some("1689556908129835")
        );
        for invalid in [json!(""), json!("a\u{0}"), json!(null), json!({})] {
            assert_eq!(id(Some(&invalid)), None);
        }
    }

    #[test]
    fn messaging_limit_is_a_number_or_a_tier() {
        for (value, expected) in [
            (json!("TIER_250"), Some(250)),
            (json!("TIER_2K"), Some(2000)),
            (json!("TIER_100K"), Some(100_000)),
            (json!("TIER_UNLIMITED"), Some(-1)),
            (json!(2000), Some(2000)),
            (json!("2000"), Some(2000)),
            (json!(-1), Some(-1)),
            (json!(-2), None),
            (json!("TIER_NOT_SET"), None),
            (json!(null), None),
        ] {
            assert_eq!(messaging_limit(&value), expected, "{value}");
        }
    }
}
