//! What a model answered: six strings, or nothing.

use recado_domain::brand::BrandFacts;
use serde_json::{Map, Value, json};

/// What an answer is good for.
#[derive(Debug, PartialEq)]
pub(super) enum Read {
    /// The facts, and what they took.
    Done(BrandFacts, Value),
    /// The model will not, however often it is asked.
    Refused,
    /// It may do better the next time.
    Again(Trouble),
}

/// What was wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It ended before it was complete.
    TooLong,
    /// It is not what was asked for.
    Unreadable,
}

impl Trouble {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "an answer that was cut",
            Self::Unreadable => "an answer that cannot be read",
        }
    }
}

pub(super) fn read(completion: &Value) -> Read {
    let choice = completion.pointer("/choices/0");
    let of = |path: &str| choice.and_then(|choice| choice.pointer(path)).and_then(Value::as_str);
    match of("/finish_reason") {
        Some("content_filter") => return Read::Refused,
        Some("length") => return Read::Again(Trouble::TooLong),
        _ if of("/message/refusal").is_some() => return Read::Refused,
        _ => {}
    }
    match of("/message/content").and_then(object) {
        Some(fields) => {
            let facts = BrandFacts::new(|name| fields.get(name)?.as_str().map(str::to_owned));
            Read::Done(facts, usage(completion))
        }
        None => Read::Again(Trouble::Unreadable),
    }
}

/// The outermost object: servers that know no schema put words or a fence around it.
fn object(content: &str) -> Option<Map<String, Value>> {
    let (begin, end) = (content.find('{')?, content.rfind('}')?);
    serde_json::from_str(content.get(begin..=end)?).ok()
}

/// Numbers alone.
fn usage(completion: &Value) -> Value {
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

    fn answered(content: &Value, reason: &str, refusal: &Value) -> Value {
        json!({ "choices": [{ "finish_reason": reason, "message": { "content": content, "refusal": refusal } }],
                "usage": { "prompt_tokens": 9, "total_tokens": -1, "completion_tokens": "x" } })
    }

    #[test]
    fn six_strings_are_read_and_nothing_else() {
        let inner = json!({ "company_name": " Loja ", "description": 7, "brand_values": null, "tone_of_voice": ["a"],
                            "account_id": "x", "products_services": "Pão\u{0}" });
        for content in [
            inner.to_string(),
            format!("```json\n{inner}\n```"),
            format!("Here it is: {inner}. Anything else?"),
        ] {
            let Read::Done(facts, usage) = read(&answered(&json!(content), "stop", &Value::Null)) else {
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
    fn what_is_no_answer_is_told_apart() {
        let none = Value::Null;
        let text = |text: &str| json!(text);
        for (completion, wanted) in [
            (answered(&text("{}"), "stop", &text("No.")), Read::Refused),
            (answered(&text("{}"), "content_filter", &none), Read::Refused),
            (
                answered(&text("{\"company"), "length", &none),
                Read::Again(Trouble::TooLong),
            ),
            (answered(&none, "stop", &none), Read::Again(Trouble::Unreadable)),
            (
                answered(&text("no JSON"), "stop", &none),
                Read::Again(Trouble::Unreadable),
            ),
            (answered(&text("}{"), "stop", &none), Read::Again(Trouble::Unreadable)),
            (answered(&text("[1]"), "stop", &none), Read::Again(Trouble::Unreadable)),
            (
                answered(&text("{\"a\":"), "stop", &none),
                Read::Again(Trouble::Unreadable),
            ),
            (answered(&json!(7), "stop", &none), Read::Again(Trouble::Unreadable)),
            (json!({ "choices": [] }), Read::Again(Trouble::Unreadable)),
            (json!([]), Read::Again(Trouble::Unreadable)),
        ] {
            assert_eq!(read(&completion), wanted, "{completion}");
        }
    }
}
