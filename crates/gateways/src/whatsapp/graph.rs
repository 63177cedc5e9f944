//! Reading what the Graph API answers: errors, ids, and words that are safe to keep and show.

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// The longest words kept of an answer, in characters.
const WORDS: usize = 500;

/// Where the Graph API puts its words about a refused send, best first.
pub(super) const OF_SEND: &[&str] = &["/error_data/details", "/message"];

/// The same of a refused template.
pub(super) const OF_TEMPLATE: &[&str] = &["/error_user_msg", "/error_data/details", "/message"];

/// An error as the Graph API tells it. `code` alone has a stable meaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GraphError {
    pub(super) code: i64,
    pub(super) message: String,
}

/// The error in an answer's body; none when there is none that can be read.
pub(super) fn error(body: &Value, places: &[&str], token: &SecretString) -> Option<GraphError> {
    let error = body.get("error")?;
    let code = error.get("code")?;
    let code = code.as_i64().or_else(|| code.as_str()?.parse().ok())?;
    let found = places
        .iter()
        .filter_map(|place| error.pointer(place)?.as_str())
        .find(|text| !text.trim().is_empty());
    Some(GraphError {
        code,
        message: words(found.unwrap_or("no reason given"), token),
    })
}

/// An id, which the Graph API gives as text or as a number.
pub(super) fn id(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(id) if !id.is_empty() && !id.contains(char::is_control) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// Text of the platform in one line of bounded length. The platform quotes a malformed token in its answer: it is
/// taken out here, since these words are stored and shown.
pub(super) fn words(text: &str, token: &SecretString) -> String {
    let token = token.expose_secret();
    let safe = if token.is_empty() {
        text.to_owned()
    } else {
        text.replace(token, "[token]")
    };
    safe.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(WORDS)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_best_words_are_taken_and_hold_no_token() {
        let token = SecretString::from("EAAG1");
        let body =
            json!({ "error": { "code": "190", "message": "Malformed access token EAAG1\u{0}!", "error_data": {} } });
        let found = error(&body, OF_SEND, &token).unwrap();
        assert_eq!(
            found,
            GraphError {
                code: 190,
                message: "Malformed access token [token] !".into()
            }
        );
        let body = json!({ "error": { "code": 100, "message": "m", "error_user_msg": "u", "error_data": { "details": "d" } } });
        assert_eq!(error(&body, OF_SEND, &token).unwrap().message, "d");
        assert_eq!(error(&body, OF_TEMPLATE, &token).unwrap().message, "u");
        for unreadable in [
            json!({}),
            json!({ "error": "no" }),
            json!({ "error": { "message": "m" } }),
            json!([]),
        ] {
            assert_eq!(error(&unreadable, OF_SEND, &token), None);
        }
    }

    #[test]
    fn ids_are_text_or_numbers() {
        assert_eq!(id(Some(&json!("594"))).as_deref(), Some("594"));
        assert_eq!(
            id(Some(&json!(1_689_556_908_129_835_u64))).as_deref(),
            Some("1689556908129835")
        );
        for none in [json!(""), json!("a\u{0}"), json!(null), json!({})] {
            assert_eq!(id(Some(&none)), None);
        }
    }
}
