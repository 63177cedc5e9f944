//! What holds for many operations, in words: who may call, how often, what every request may carry.

use serde_json::{Value, json};

use super::error_codes::ErrorCode;
use crate::routes::{Access, RouteSpec};
use crate::web::limit::{RateKey, RateRule};

const ABOUT: &str = include_str!("about.md");

/// What the document is.
pub(super) fn info() -> Value {
    json!({
        "title": "Recado",
        "version": env!("CARGO_PKG_VERSION"),
        "summary": "Customer messaging for many tenants: WhatsApp campaigns, conversations, templates, analytics, billing.",
        "description": ABOUT,
        "license": { "name": "Apache 2.0", "identifier": "Apache-2.0" },
    })
}

/// Ways to prove who asks.
pub(super) fn security_schemes() -> Value {
    json!({
        "session": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A session: the identity provider's JWT in `Authorization: Bearer`. The account is the one \
                that the header `X-Account-Id` names, else the one that the person used last.",
        },
        "sessionCookie": {
            "type": "apiKey", "in": "cookie", "name": "svc-session",
            "description": "The same in a cookie, for browsers (an installation may name it otherwise). The account is \
                the one of the cookie `svc-active-account-id`, which creating and switching accounts sets. Changes are \
                refused with 403 when a page of another site sends them.",
        },
        "apiKey": {
            "type": "http", "scheme": "bearer", "bearerFormat": "svc_live_sk_...",
            "description": "An API key in `Authorization: Bearer`. It acts in its account with the role `member`, and \
                is no session: operations of persons, owners and admins refuse it with 401.",
        },
        "apiKeyHeader": {
            "type": "apiKey", "in": "header", "name": "X-API-Key",
            "description": "The same key in a header of its own.",
        },
    })
}

/// Which of them an operation takes.
pub(super) fn security(access: Access) -> Value {
    match access {
        Access::Public => json!([]),
        Access::Session | Access::Administrator | Access::Manage => json!([{ "session": [] }, { "sessionCookie": [] }]),
        Access::Read | Access::Write => json!([
            { "session": [] }, { "sessionCookie": [] }, { "apiKey": [] }, { "apiKeyHeader": [] },
        ]),
    }
}

/// Whether it acts in an account.
pub(super) fn has_account(access: Access) -> bool {
    match access {
        Access::Read | Access::Write | Access::Manage => true,
        Access::Public | Access::Session | Access::Administrator => false,
    }
}

fn callers(access: Access) -> &'static str {
    match access {
        Access::Public => "Anybody may call it.",
        Access::Session => "Takes a session; no account is needed.",
        Access::Read => "Takes a session or an API key; every role may call it.",
        Access::Write => "Takes a session or an API key; every role but `viewer` may call it.",
        Access::Manage => "Takes a session of an `owner` or `admin`.",
        Access::Administrator => "Takes a session of a platform administrator.",
    }
}

/// Who shares a count, and its name.
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
    let (who, counter) = counted_by(rule.key);
    format!(
        "{} requests in any {window} for each {who} (counter `{counter}`)",
        rule.limit.requests
    )
}

/// What an operation is, who may call it, and how often.
pub(super) fn description(spec: &RouteSpec, text: &str) -> String {
    let rate = spec
        .rate
        .map(|rule| format!(" At most {}.", rate(rule)))
        .unwrap_or_default();
    format!("{text}\n\n{}{rate}", callers(spec.access))
}

/// When a refusal is answered, here.
pub(super) fn refusal(spec: &RouteSpec, error: ErrorCode, words: &[&str]) -> String {
    let general = match (error, spec.rate) {
        (ErrorCode::RateLimited, Some(rule)) => {
            format!("More than {}; `Retry-After` says when to come again.", rate(rule))
        }
        // A state that is in the way has no general words that would say more.
        (ErrorCode::Precondition, _) => String::new(),
        _ => error.description().to_owned(),
    };
    let words = words.iter().map(|words| (*words).to_owned());
    let parts: Vec<String> = [general]
        .into_iter()
        .chain(words)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n\n")
}

/// The headers that many requests may bear.
pub(super) fn parameters() -> Value {
    json!({
        "AccountId": {
            "name": "X-Account-Id", "in": "header", "required": false,
            "description": "With a session: the account that is meant. Without it, the account of the cookie \
                `svc-active-account-id`, else the one used last. An API key knows its account.",
            "schema": { "type": "string", "format": "uuid" },
            "example": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        },
        "IdempotencyKey": {
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Any text, new for each thing to be done. A request that is sent again with the key of one \
                that was answered, within 24 hours, does nothing and gets the first answer, with \
                `Idempotent-Replayed: true`; another path or body with the same key is refused with 409. Answers with \
                408, 413, 415 and 5xx are not kept.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
            "example": "7d1c7f5e-3f4c-4f39-9b8e-0d6a5f2f1c11",
        },
        "RequestId": {
            "name": "X-Request-Id", "in": "header", "required": false,
            "description": "An id for this request, of 1 to 128 visible ASCII characters: the answer and the server's \
                log lines bear it. Without it, or with anything else, the server makes one.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" },
            "example": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
        },
    })
}
