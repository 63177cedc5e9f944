//! Reads a chat completion: six strings of the model's JSON, or the reason why there are none.

use recado_domain::brand::BrandFacts;
use serde_json::{Map, Value, json};

#[derive(Debug, PartialEq)]
pub(super) enum CompletionOutcome {
    /// The facts and the token usage.
    Done(BrandFacts, Value),
    /// The model refused; a retry does not help.
    Refused,
    /// A retry may succeed.
    Retry(CompletionDefect),
}

/// What is wrong with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionDefect {
    /// It reached the token limit.
    TooLong,
    /// It is not the requested JSON object.
    Unreadable,
}

impl CompletionDefect {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "the response was cut off",
            Self::Unreadable => "the response cannot be read",
        }
    }
}

pub(super) fn parse_completion(completion: &Value) -> CompletionOutcome {
    let choice = completion.pointer("/choices/0");
    let field = |path: &str| choice.and_then(|choice| choice.pointer(path)).and_then(Value::as_str);
    match field("/finish_reason") {
        Some("content_filter") => return CompletionOutcome::Refused,
        Some("length") => return CompletionOutcome::Retry(CompletionDefect::TooLong),
        _ if field("/message/refusal").is_some() => return CompletionOutcome::Refused,
        _ => {}
    }
    match field("/message/content").and_then(parse_object) {
        Some(fields) => {
            let facts = BrandFacts::new(|name| fields.get(name)?.as_str().map(str::to_owned));
            CompletionOutcome::Done(facts, token_usage(completion))
        }
        None => CompletionOutcome::Retry(CompletionDefect::Unreadable),
    }
}

/// Parses the outermost object. Servers without schema support add text or a code fence around it.
fn parse_object(content: &str) -> Option<Map<String, Value>> {
    let (begin, end) = (content.find('{')?, content.rfind('}')?);
    serde_json::from_str(content.get(begin..=end)?).ok()
}

/// Only numbers are used, since the response is untrusted.
fn token_usage(completion: &Value) -> Value {
    let count = |name: &str| completion.pointer(&format!("/usage/{name}")).and_then(Value::as_u64);
    json!({
        "prompt_tokens": count("prompt_tokens"),
        "completion_tokens": count("completion_tokens"),
        "total_tokens": count("total_tokens"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(content: &Value, reason: &str, refusal: &Value) -> Value {
        json!({ "choices": [{ "finish_reason": reason, "message": { "content": content, "refusal": refusal } }],
                "usage": { "prompt_tokens": 9, "total_tokens": -1, "completion_tokens": "x" } })
    }

    #[test]
    fn completion_gives_only_the_six_strings() {
        let inner = json!({ "company_name": " Loja ", "description": 7, "brand_values": null, "tone_of_voice": ["a"],
                            "account_id": "x", "products_services": "Pão\u{0}" });
        for content in [
            inner.to_string(),
            format!("```json\n{inner}\n```"),
            format!("Here it is: {inner}. Anything else?"),
        ] {
            let CompletionOutcome::Done(facts, usage) =
                parse_completion(&completion(&json!(content), "stop", &Value::Null))
            else {
                panic!("{content}")
            };
            let expected = BrandFacts {
                company_name: Some("Loja".into()),
                products_services: Some("Pão".into()),
                ..BrandFacts::default()
            };
            assert_eq!(facts, expected);
            assert_eq!(
                usage,
                json!({ "prompt_tokens": 9, "completion_tokens": null, "total_tokens": null })
            );
        }
    }

    #[test]
    fn unusable_completion_is_refused_or_retried() {
        let none = Value::Null;
        let text = |text: &str| json!(text);
        for (body, expected) in [
            (
                completion(&text("{}"), "stop", &text("No.")),
                CompletionOutcome::Refused,
            ),
            (
                completion(&text("{}"), "content_filter", &none),
                CompletionOutcome::Refused,
            ),
            (
                completion(&text("{\"company"), "length", &none),
                CompletionOutcome::Retry(CompletionDefect::TooLong),
            ),
            (
                completion(&none, "stop", &none),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (
                completion(&text("no JSON"), "stop", &none),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (
                completion(&text("}{"), "stop", &none),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (
                completion(&text("[1]"), "stop", &none),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (
                completion(&text("{\"a\":"), "stop", &none),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (
                completion(&json!(7), "stop", &none),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (
                json!({ "choices": [] }),
                CompletionOutcome::Retry(CompletionDefect::Unreadable),
            ),
            (json!([]), CompletionOutcome::Retry(CompletionDefect::Unreadable)),
        ] {
            assert_eq!(parse_completion(&body), expected, "{body}");
        }
    }
}
