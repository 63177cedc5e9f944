//! The parts of the OpenAPI document that describe error responses. Codes, statuses and texts are those of `ErrorCode`.

use serde_json::{Map, Value, json};

use crate::error::ErrorCode;

impl ErrorCode {
    /// The name of the shared response component.
    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    /// References to the headers that every response with this code has.
    pub(super) fn header_references(self) -> Map<String, Value> {
        header_references(self.headers().iter().copied())
    }

    /// An example response body.
    pub(super) fn example(self) -> Value {
        let details = match self {
            Self::Invalid => json!({ "fields": { "name": ["must not be empty"] } }),
            _ => json!({}),
        };
        json!({ "error": { "code": self.as_str(), "message": self.message(), "details": details } })
    }
}

/// References to shared headers. Every response has `X-Request-Id`.
pub(super) fn header_references<'a>(names: impl IntoIterator<Item = &'a str>) -> Map<String, Value> {
    let names = ["X-Request-Id"].into_iter().chain(names);
    names
        .map(|name| {
            (
                name.to_owned(),
                json!({ "$ref": format!("#/components/headers/{name}") }),
            )
        })
        .collect()
}

/// The shared response headers.
pub(super) fn headers() -> Value {
    fn header(description: &str, schema: Value, example: Value) -> Value {
        json!({ "description": description, "schema": schema, "example": example })
    }
    let count = || json!({ "type": "integer", "minimum": 0 });
    json!({
        "X-Request-Id": header(
            "The request's own `X-Request-Id` if it has 1 to 128 visible ASCII characters, otherwise a new id. The \
             server's log lines contain it.",
            json!({ "type": "string", "minLength": 1, "maxLength": 128 }),
            json!("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"),
        ),
        "X-RateLimit-Limit": header("The number of requests that the window allows.", count(), json!(30)),
        "X-RateLimit-Remaining": header("The number of requests that remain in the window.", count(), json!(29)),
        "X-RateLimit-Reset": header(
            "The time at which `X-RateLimit-Remaining` next increases, in milliseconds since 1970-01-01T00:00:00Z.",
            count(),
            json!(1_769_904_000_000_i64),
        ),
        "Retry-After": header("The number of seconds to wait before the next attempt.", count(), json!(1)),
        "Idempotent-Replayed": header(
            "`true` if this is the stored response of the same `Idempotency-Key`; otherwise absent.",
            json!({ "type": "string", "const": "true" }), json!("true"),
        ),
        "ETag": header(
            "The strong entity tag of the body. It changes exactly when the body does, a time of counting such as \
             `members_as_of` aside; `If-None-Match` compares it.",
            json!({ "type": "string", "pattern": "^\"[^\"]+\"$" }),
            json!("\"5f70bf18a086007016e948b04aed3b82\""),
        ),
        "Location": header(
            "The path of the new row.",
            json!({ "type": "string", "format": "uri-reference" }),
            json!("/api/contacts/0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"),
        ),
        "WWW-Authenticate": header(
            "How to authenticate. `error=\"invalid_token\"`: the session token or API key is not valid.",
            json!({ "type": "string" }),
            json!("Bearer realm=\"recado\""),
        ),
        "Allow": header("The methods that the path accepts.", json!({ "type": "string" }), json!("GET, HEAD, POST")),
    })
}

/// The schema of the error envelope, with the closed list of codes.
pub(super) fn error_schema() -> Value {
    let mut codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    json!({
        "type": "object",
        "description": "The body of every error response.",
        "required": ["error"],
        "additionalProperties": false,
        "properties": { "error": {
            "type": "object",
            "description": "The error.",
            "required": ["code", "message", "details"],
            "additionalProperties": false,
            "properties": {
                "code": {
                    "type": "string", "enum": codes, "examples": ["VALIDATION_ERROR"],
                    "description": "The machine-readable error code.",
                },
                "message": {
                    "type": "string", "minLength": 1, "examples": ["Invalid data"],
                    "description": "A description of the error for people. The wording may change.",
                },
                "details": {
                    "type": "object", "examples": [{ "fields": { "name": ["must not be empty"] } }],
                    "description": "Details of the error; empty for most errors. For a 422, `fields` maps the path of \
                        each invalid field (`segment_config.tag_ids[1]`) to its errors. For a 403, `required_scope` is \
                        the scope that the API key lacks. For an error of WhatsApp, `code` and `message` are those \
                        that WhatsApp returned.",
                    "properties": { "fields": {
                        "type": "object",
                        "description": "The errors of each field by its path. Long lists are truncated.",
                        "additionalProperties": {
                            "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 10,
                        },
                        "maxProperties": 100,
                        "examples": [{ "name": ["must not be empty"] }],
                    } },
                },
            },
        } },
    })
}
