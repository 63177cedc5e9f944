//! The refusals that are published: the closed list of codes, with their statuses and when they are answered.

use serde_json::{Map, Value, json};

/// A kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorCode {
    Precondition,
    Auth,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    SlowBody,
    Conflict,
    TooLarge,
    MediaType,
    Invalid,
    RateLimited,
    TooManyAtOnce,
    Internal,
    Whatsapp,
    Payment,
    Extraction,
    Storage,
    Unavailable,
}

impl ErrorCode {
    /// Every one.
    pub const ALL: [Self; 18] = [
        Self::Precondition,
        Self::Auth,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::SlowBody,
        Self::Conflict,
        Self::TooLarge,
        Self::MediaType,
        Self::Invalid,
        Self::RateLimited,
        Self::TooManyAtOnce,
        Self::Internal,
        Self::Whatsapp,
        Self::Payment,
        Self::Extraction,
        Self::Storage,
        Self::Unavailable,
    ];

    /// Status, code, and an example of its message.
    pub fn spec(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Precondition => (
                400,
                "VALIDATION_ERROR",
                "a campaign in status sending cannot be deleted",
            ),
            Self::Auth => (401, "AUTH_ERROR", "A session or an API key is required"),
            Self::Forbidden => (403, "FORBIDDEN", "This request comes from a foreign site"),
            Self::NotFound => (404, "NOT_FOUND", "Not found"),
            Self::MethodNotAllowed => (405, "METHOD_NOT_ALLOWED", "This path takes GET, POST"),
            Self::SlowBody => (408, "REQUEST_TIMEOUT", "The body did not arrive in time"),
            Self::Conflict => (409, "CONFLICT", "A request with this idempotency key is still running"),
            Self::TooLarge => (413, "PAYLOAD_TOO_LARGE", "The body is too large"),
            Self::MediaType => (415, "UNSUPPORTED_MEDIA_TYPE", "The body must be application/json"),
            Self::Invalid => (422, "VALIDATION_ERROR", "Invalid data"),
            Self::RateLimited => (429, "RATE_LIMIT", "Too many requests"),
            Self::TooManyAtOnce => (
                429,
                "RATE_LIMIT",
                "This account has 2 imports under way, which is the limit",
            ),
            Self::Internal => (500, "INTERNAL_ERROR", "Internal error"),
            Self::Whatsapp => (502, "WHATSAPP_ERROR", "The messaging platform is unavailable"),
            Self::Payment => (502, "PAYMENT_ERROR", "The payment gateway is unavailable"),
            Self::Extraction => (502, "VPS_ERROR", "The AI service is unavailable"),
            Self::Storage => (502, "STORAGE_ERROR", "The media store is unavailable"),
            Self::Unavailable => (503, "UNAVAILABLE", "The service is temporarily unavailable"),
        }
    }

    /// Its status.
    pub fn status(self) -> u16 {
        self.spec().0
    }

    /// Its code.
    pub fn code(self) -> &'static str {
        self.spec().1
    }

    /// The name of its response among the shared ones.
    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    /// When it is answered, whatever the operation.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Precondition => "The state of things does not allow it; the message says why.",
            Self::Auth => {
                "No session or API key, or one that is expired, revoked or not valid; no membership in the account; a \
                 suspended account; or a role that may not do this."
            }
            Self::Forbidden => "A change that a browser sends with a cookie from a page of another site.",
            Self::NotFound => "There is no such thing, or it belongs to another account.",
            Self::MethodNotAllowed => "The path is known, and takes other methods: those that `Allow` names.",
            Self::SlowBody => {
                "The body did not arrive in time: within 30 seconds; a file within 30 seconds and one more for every \
                 16 KiB of it, and 30 seconds for its next piece."
            }
            Self::Conflict => {
                "A request with the same `Idempotency-Key` is still running, or came with another path or body."
            }
            Self::TooLarge => "The body is too large.",
            Self::MediaType => "The body has another media type, or a content encoding.",
            Self::Invalid => {
                "Something in the path, the query, a header or the body is missing or wrong: `details.fields` names \
                 each field and what is wrong with it."
            }
            Self::RateLimited => "Too many requests; `Retry-After` says when to come again.",
            Self::TooManyAtOnce => "As many as may be are under way at the same time; try again after `Retry-After`.",
            Self::Internal => "A fault of the server; its log has the cause under the request's id.",
            Self::Whatsapp => {
                "WhatsApp refused, cannot be reached, or is not configured. What it said is in `details`."
            }
            Self::Payment => "The payment gateway cannot be reached, fails, or is not configured.",
            Self::Extraction => "The AI service cannot be reached, fails, or is not configured.",
            Self::Storage => "The store of files cannot be reached, fails, or is not configured.",
            Self::Unavailable => "The database, or this server, cannot serve right now; try again after `Retry-After`.",
        }
    }

    /// The headers that it always bears.
    pub(super) fn headers(self) -> Map<String, Value> {
        let names: &[&str] = match self {
            Self::MethodNotAllowed => &["Allow"],
            Self::RateLimited => &[
                "X-RateLimit-Limit",
                "X-RateLimit-Remaining",
                "X-RateLimit-Reset",
                "Retry-After",
            ],
            Self::TooManyAtOnce | Self::Unavailable => &["Retry-After"],
            _ => &[],
        };
        header_references(names.iter().copied())
    }

    /// An error of this kind.
    pub(super) fn example(self) -> Value {
        let (_, code, message) = self.spec();
        let details = match self {
            Self::Invalid => json!({ "fields": { "name": ["must not be empty"] } }),
            _ => json!({}),
        };
        json!({ "error": { "code": code, "message": message, "details": details } })
    }
}

/// References to shared headers; every answer bears its request's id.
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

/// The headers that answers bear.
pub(super) fn headers() -> Value {
    let header = |description: &str, schema: Value, example: Value| json!({ "description": description, "schema": schema, "example": example });
    let whole = || json!({ "type": "integer", "minimum": 0 });
    json!({
        "X-Request-Id": header(
            "The request's own `X-Request-Id`, where it is 1 to 128 visible ASCII characters, else a new one. The \
             server's log lines bear it.",
            json!({ "type": "string", "minLength": 1, "maxLength": 128 }),
            json!("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"),
        ),
        "X-RateLimit-Limit": header("How many requests the window takes.", whole(), json!(30)),
        "X-RateLimit-Remaining": header("How many more it takes right now.", whole(), json!(29)),
        "X-RateLimit-Reset": header(
            "When the next place frees, in milliseconds since 1970-01-01T00:00:00Z.", whole(), json!(1_769_904_000_000_i64),
        ),
        "Retry-After": header("How many seconds to wait before the next try.", whole(), json!(1)),
        "Idempotent-Replayed": header(
            "`true` where the answer is the one that was kept for this `Idempotency-Key`; absent otherwise.",
            json!({ "type": "string", "const": "true" }), json!("true"),
        ),
        "Allow": header("The methods that the path takes.", json!({ "type": "string" }), json!("GET, POST")),
    })
}

/// The error envelope, with the closed list of codes.
pub(super) fn error_schema() -> Value {
    let mut codes: Vec<&str> = ErrorCode::ALL.map(ErrorCode::code).to_vec();
    codes.sort_unstable();
    codes.dedup();
    json!({
        "type": "object",
        "description": "Every refusal has this body.",
        "required": ["error"],
        "additionalProperties": false,
        "properties": { "error": {
            "type": "object",
            "description": "What went wrong.",
            "required": ["code", "message", "details"],
            "additionalProperties": false,
            "properties": {
                "code": {
                    "type": "string", "enum": codes, "examples": ["VALIDATION_ERROR"],
                    "description": "What kind of error it is: the word for programs.",
                },
                "message": {
                    "type": "string", "minLength": 1, "examples": ["Invalid data"],
                    "description": "What went wrong, in words for people; the wording may change.",
                },
                "details": {
                    "type": "object", "examples": [{ "fields": { "name": ["must not be empty"] } }],
                    "description": "More on it; empty for most errors. Of a 422, `fields` maps the path of each wrong \
                        field (`segment_config.tag_ids[1]`) to what is wrong with it; of an error of WhatsApp, \
                        `code` and `message` are its own.",
                    "properties": { "fields": {
                        "type": "object",
                        "description": "What is wrong with each field, by its path; of very much that is wrong a part.",
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
