//! The published error codes: a closed list with status, code, message example and description.

use serde_json::{Map, Value, json};

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

    /// HTTP status, published code and example message.
    pub fn spec(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Precondition => (
                400,
                "VALIDATION_ERROR",
                "a campaign in status sending cannot be deleted",
            ),
            Self::Auth => (401, "AUTH_ERROR", "A session or an API key is required"),
            Self::Forbidden => (
                403,
                "FORBIDDEN",
                "Cross-site requests with a session cookie are not allowed",
            ),
            Self::NotFound => (404, "NOT_FOUND", "Not found"),
            Self::MethodNotAllowed => (
                405,
                "METHOD_NOT_ALLOWED",
                "Method not allowed; this path accepts GET, POST",
            ),
            Self::SlowBody => (408, "REQUEST_TIMEOUT", "The request body did not arrive in time"),
            Self::Conflict => (409, "CONFLICT", "A request with this idempotency key is still running"),
            Self::TooLarge => (413, "PAYLOAD_TOO_LARGE", "The request body is too large"),
            Self::MediaType => (
                415,
                "UNSUPPORTED_MEDIA_TYPE",
                "The request body must be application/json",
            ),
            Self::Invalid => (422, "VALIDATION_ERROR", "Invalid data"),
            Self::RateLimited => (429, "RATE_LIMIT", "Too many requests"),
            Self::TooManyAtOnce => (
                429,
                "RATE_LIMIT",
                "This account has 3 imports under way, which is the limit",
            ),
            Self::Internal => (500, "INTERNAL_ERROR", "Internal error"),
            Self::Whatsapp => (502, "WHATSAPP_ERROR", "WhatsApp is unavailable; try again later"),
            Self::Payment => (502, "PAYMENT_ERROR", "The payment gateway is unavailable"),
            Self::Extraction => (502, "VPS_ERROR", "The AI service is unavailable"),
            Self::Storage => (502, "STORAGE_ERROR", "The media store is unavailable"),
            Self::Unavailable => (503, "UNAVAILABLE", "The service is temporarily unavailable"),
        }
    }

    pub fn status(self) -> u16 {
        self.spec().0
    }

    pub fn code(self) -> &'static str {
        self.spec().1
    }

    /// The name of the shared response component.
    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    /// The published description, independent of the operation.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Precondition => {
                "The resource's current state does not allow this operation. `message` gives the reason."
            }
            Self::Auth => {
                "The session or API key is missing, expired, revoked or invalid; the caller is not a member of the \
                 account; the account is suspended; or the caller's role does not permit this operation."
            }
            Self::Forbidden => {
                "The API key lacks the operation's scope, which `details.required_scope` names; or a browser sent the \
                 request from another site with a session cookie."
            }
            Self::NotFound => "The resource does not exist or belongs to another account.",
            Self::MethodNotAllowed => "The path does not accept this method. `Allow` lists the accepted methods.",
            Self::SlowBody => {
                "The request body did not arrive in time: within 30 seconds. A file has one more second for every 16 \
                 KiB, and at most 30 seconds between two chunks."
            }
            Self::Conflict => {
                "A request with the same `Idempotency-Key` is still running, or the key was used with another path or \
                 body."
            }
            Self::TooLarge => "The request body is too large.",
            Self::MediaType => "The request body has an unsupported media type or a content encoding.",
            Self::Invalid => {
                "A value in the path, query, headers or body is missing or invalid. `details.fields` lists the invalid \
                 fields with their errors."
            }
            Self::RateLimited => {
                "Too many requests with unknown API keys from this address (60 a minute), more idempotency keys than an \
                 account has for a UTC day (50,000), or more requests than the operator allows (`REQUESTS_PER_MINUTE`). \
                 `Retry-After` gives the seconds to wait."
            }
            Self::TooManyAtOnce => "The concurrency limit is reached. Try again after `Retry-After` seconds.",
            Self::Internal => "An internal server error. The server's log contains the cause under the request's id.",
            Self::Whatsapp => {
                "WhatsApp rejected the call, cannot be reached, or is not configured. `details` contains WhatsApp's \
                 error."
            }
            Self::Payment => "The payment gateway cannot be reached, returned an error, or is not configured.",
            Self::Extraction => "The AI service cannot be reached, returned an error, or is not configured.",
            Self::Storage => "The media store cannot be reached, returned an error, or is not configured.",
            Self::Unavailable => "The database or this server is unavailable. Try again after `Retry-After` seconds.",
        }
    }

    /// The headers that every response with this code has.
    pub(super) fn headers(self) -> Map<String, Value> {
        let names: &[&str] = match self {
            Self::MethodNotAllowed => &["Allow"],
            Self::RateLimited | Self::TooManyAtOnce => &[
                "X-RateLimit-Limit",
                "X-RateLimit-Remaining",
                "X-RateLimit-Reset",
                "Retry-After",
            ],
            Self::Unavailable => &["Retry-After"],
            _ => &[],
        };
        header_references(names.iter().copied())
    }

    /// An example response body.
    pub(super) fn example(self) -> Value {
        let (_, code, message) = self.spec();
        let details = match self {
            Self::Invalid => json!({ "fields": { "name": ["must not be empty"] } }),
            _ => json!({}),
        };
        json!({ "error": { "code": code, "message": message, "details": details } })
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
        "Allow": header("The methods that the path accepts.", json!({ "type": "string" }), json!("GET, POST")),
    })
}

/// The schema of the error envelope, with the closed list of codes.
pub(super) fn error_schema() -> Value {
    let mut codes: Vec<&str> = ErrorCode::ALL.map(ErrorCode::code).to_vec();
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
