//! Descriptions that many operations share: permitted callers, rate limits and common headers.

use serde_json::{Value, json};

use crate::error::ErrorCode;
use crate::web::limit::{RateKey, RateRule};
use crate::web::route::{Access, RouteSpec};

const ABOUT: &str = include_str!("about.md");

/// The id of the webhook event in examples.
pub(super) const EVENT_ID: &str = "0190a1b2-c3d4-7e5f-8a9b-000000000013";

pub(super) fn info() -> Value {
    json!({
        "title": "Recado",
        "version": env!("CARGO_PKG_VERSION"),
        "summary": "Customer messaging for many tenants: WhatsApp campaigns, conversations, templates, analytics, \
         billing.",
        "description": ABOUT,
        "license": { "name": "Apache 2.0", "identifier": "Apache-2.0" },
    })
}

pub(super) fn security_schemes() -> Value {
    json!({
        "session": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A session: the identity provider's JWT in `Authorization: Bearer`. The header \
                `X-Account-Id` selects the account; without it, the user's last active account is used.",
        },
        "sessionCookie": {
            "type": "apiKey", "in": "cookie", "name": "svc-session",
            "description": "The same JWT in a cookie, for browsers (the cookie name is configurable). The cookie \
                `svc-active-account-id`, which is set when an account is created or switched, selects the account. \
                Changes that another site sends are rejected with 403.",
        },
        "apiKey": {
            "type": "http", "scheme": "bearer", "bearerFormat": "svc_live_sk_...",
            "description": "An API key in `Authorization: Bearer`. It acts in its account with the role `member`, as \
                far as its scopes permit. Operations that require a session, an owner or an admin reject it with 401, \
                and an operation whose `x-scope` it lacks with 403.",
        },
        "apiKeyHeader": {
            "type": "apiKey", "in": "header", "name": "X-API-Key",
            "description": "The same API key in the header `X-API-Key`.",
        },
    })
}

/// The security schemes that an operation accepts.
pub(super) fn security(access: Access) -> Value {
    match access {
        Access::Public => json!([]),
        Access::Session | Access::Administrator | Access::Manage => json!([{ "session": [] }, { "sessionCookie": [] }]),
        Access::Read | Access::Write => json!([
            { "session": [] }, { "sessionCookie": [] }, { "apiKey": [] }, { "apiKeyHeader": [] },
        ]),
    }
}

/// Whether the operation acts in an account.
pub(super) fn has_account(access: Access) -> bool {
    match access {
        Access::Read | Access::Write | Access::Manage => true,
        Access::Public | Access::Session | Access::Administrator => false,
    }
}

fn callers(access: Access) -> &'static str {
    match access {
        Access::Public => "No authentication required.",
        Access::Session => "Requires a session; no account is needed.",
        Access::Read => "Requires a session or an API key, with any role.",
        Access::Write => "Requires a session or an API key, with any role except `viewer`.",
        Access::Manage => "Requires a session with the role `owner` or `admin`.",
        Access::Administrator => "Requires a session of a platform administrator.",
    }
}

/// Who shares a rate limit counter, and the counter's name.
pub(super) fn counted_by(key: RateKey) -> (&'static str, &'static str) {
    match key {
        RateKey::Account(name) => ("account", name),
        RateKey::Person(name) => ("person", name),
        RateKey::Address(name) => ("client address", name),
    }
}

fn rate(rule: RateRule) -> String {
    let window = match rule.limit.window.whole_seconds() {
        60 => "minute".to_owned(),
        3600 => "hour".to_owned(),
        seconds => format!("{seconds} seconds"),
    };
    let (subject, counter) = counted_by(rule.key);
    format!(
        "{} requests in any {window} for each {subject} (counter `{counter}`)",
        rule.limit.requests
    )
}

/// The description of an operation, followed by its permitted callers and rate limit.
pub(super) fn description(spec: &RouteSpec, text: &str) -> String {
    let rate = spec
        .rate
        .map(|rule| format!(" At most {}.", rate(rule)))
        .unwrap_or_default();
    let scope = spec
        .scope
        .map(|scope| format!(" An API key needs the scope `{scope}`."));
    format!("{text}\n\n{}{}{rate}", callers(spec.access), scope.unwrap_or_default())
}

/// The description of an error code for one operation: the general text, followed by its specific causes.
pub(super) fn error_description(spec: &RouteSpec, error: ErrorCode, causes: &[&str]) -> String {
    let general = match (error, spec.rate) {
        (ErrorCode::RateLimited, Some(rule)) => {
            format!("More than {}; `Retry-After` gives the seconds to wait.", rate(rule))
        }
        // The general text of a failed precondition adds nothing to the specific causes.
        (ErrorCode::Precondition, _) => String::new(),
        _ => error.description().to_owned(),
    };
    let causes = causes.iter().map(|cause| (*cause).to_owned());
    let parts: Vec<String> = [general]
        .into_iter()
        .chain(causes)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n\n")
}

/// The request headers that many operations share.
pub(super) fn parameters() -> Value {
    json!({
        "AccountId": {
            "name": "X-Account-Id", "in": "header", "required": false,
            "description": "The account, for requests with a session. Without it, the cookie `svc-active-account-id` \
                selects the account, else the user's last active account is used. An API key always acts in its own \
                account.",
            "schema": { "type": "string", "format": "uuid" },
            "example": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        },
        "IdempotencyKey": {
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "A unique text for each intended operation. A repeated request with the same key within 24 \
                hours changes nothing and returns the stored response with `Idempotent-Replayed: true`. The same key \
                with another path or body is rejected with 409. Responses with 408, 413, 415 and 5xx are not stored.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
            "example": "7d1c7f5e-3f4c-4f39-9b8e-0d6a5f2f1c11",
        },
        "IfNoneMatch": {
            "name": "If-None-Match", "in": "header", "required": false,
            "description": "Entity tags of earlier responses, or `*`. If one of them is the present tag, the response \
                is 304 without a body.",
            "schema": { "type": "string" },
            "example": "\"5f70bf18a086007016e948b04aed3b82\"",
        },
        "IfMatch": {
            "name": "If-Match", "in": "header", "required": false,
            "description": "Entity tags of the row, as its GET or the last PUT returned them, or `*`. If none of them \
                is the present one, the response is 412 and nothing is changed.",
            "schema": { "type": "string" },
            "example": "\"5f70bf18a086007016e948b04aed3b82\"",
        },
        "RequestId": {
            "name": "X-Request-Id", "in": "header", "required": false,
            "description": "An id for this request, of 1 to 128 visible ASCII characters. The response and the \
                server's log lines contain it. If it is absent or invalid, the server generates one.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" },
            "example": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        },
        "WebhookId": {
            "name": "webhook-id", "in": "header", "required": true,
            "description": "The event's id, the same in every attempt and redelivery. A receiver skips an id that it \
                has processed.",
            "schema": { "type": "string", "format": "uuid" },
            "example": EVENT_ID,
        },
        "WebhookTimestamp": {
            "name": "webhook-timestamp", "in": "header", "required": true,
            "description": "The time of this attempt, in seconds since 1970-01-01T00:00:00Z. A receiver refuses an \
                attempt that is older than five minutes.",
            "schema": { "type": "string", "pattern": "^[0-9]+$" },
            "example": "1769938200",
        },
        "WebhookSignature": {
            "name": "webhook-signature", "in": "header", "required": true,
            "description": "`v1,` and the base64 of HMAC-SHA256 over `{webhook-id}.{webhook-timestamp}.{body}` with \
                the endpoint's secret. After a rotation there are two, separated by a space, of which one must match.",
            "schema": { "type": "string", "pattern": "^v1,[A-Za-z0-9+/=]+( v1,[A-Za-z0-9+/=]+)*$" },
            "example": "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
        },
    })
}
