//! Rate limits of routes: the key under which a request is counted, and the `X-RateLimit-*` headers.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use recado_domain::limits::{Limit, RateLimitDecision};

/// The header that shows whether the others are there.
const NAME: &str = "x-ratelimit-limit";

/// The rate limit of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRule {
    pub limit: Limit,
    pub key: RateKey,
}

/// The callers that share a limit. The text is the limit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// All callers of an account: `<name>:<account id>`.
    Account(&'static str),
    /// One user at any address: `<name>:<user id>`.
    Person(&'static str),
    /// All callers at an IP address: `<name>:<address>`.
    Address(&'static str),
}

/// Writes the `X-RateLimit-*` headers of a decision, unless the response has those of another limit.
pub fn write_headers(headers: &mut HeaderMap, limit: Limit, decision: RateLimitDecision) {
    if headers.contains_key(NAME) {
        return;
    }
    let values = [
        (NAME, i64::from(limit.requests)),
        ("x-ratelimit-remaining", i64::from(decision.remaining)),
        ("x-ratelimit-reset", decision.reset_at_ms),
    ];
    for (name, value) in values {
        headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
    }
}
