//! Rate limits on routes: which key a request counts under, and the headers that tell.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use recado_domain::limits::{Limit, RateLimitDecision};

/// How often a route may be called, and by whom together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRule {
    /// So often.
    pub limit: Limit,
    /// Who together.
    pub key: RateKey,
}

/// Who shares a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// Everybody in an account: `<name>:<account id>`.
    Account(&'static str),
    /// One person, wherever they come from: `<name>:<user id>`.
    Person(&'static str),
    /// Everybody behind an address: `<name>:<address>`.
    Address(&'static str),
}

/// `X-RateLimit-*` of a decision.
pub fn write_headers(headers: &mut HeaderMap, rule: RateRule, decision: RateLimitDecision) {
    let values = [
        ("x-ratelimit-limit", i64::from(rule.limit.requests)),
        ("x-ratelimit-remaining", i64::from(decision.remaining)),
        ("x-ratelimit-reset", decision.reset_at_ms),
    ];
    for (name, value) in values {
        headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
    }
}
