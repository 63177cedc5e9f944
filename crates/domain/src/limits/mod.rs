//! Rate limits: how many requests a key may make in a sliding window.
//!
//! Owns the presets, the port to the shared counter, and the counter for a server that runs alone. Does not own which
//! route has which limit (the route table).

mod in_process;

use async_trait::async_trait;
use thiserror::Error;
use time::Duration;

pub use in_process::InProcessRateLimiter;

/// So many requests in any window of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How many.
    pub requests: u32,
    /// How long the window is.
    pub window: Duration,
}

impl Limit {
    /// The `webhook` preset.
    pub const WEBHOOK: Self = Self::per_minute(100);
    /// The `auth` preset.
    pub const AUTH: Self = Self::per_minute(5);
    /// The `api` preset.
    pub const API: Self = Self::per_minute(30);
    /// The `callback` preset: published, and of no route so far.
    pub const CALLBACK: Self = Self::per_minute(20);
    /// The `ai` preset: published, and of no route so far.
    pub const AI: Self = Self {
        requests: 20,
        window: Duration::hours(1),
    };
    /// The `send` preset: published, and of no route so far.
    pub const SEND: Self = Self::per_minute(60);
    /// Starting campaigns.
    pub const CAMPAIGN_SEND: Self = Self::per_minute(5);
    /// Uploading files for templates.
    pub const TEMPLATE_MEDIA: Self = Self::per_minute(5);

    const fn per_minute(requests: u32) -> Self {
        Self {
            requests,
            window: Duration::minutes(1),
        }
    }
}

/// What a counter says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitDecision {
    /// Whether it may go on.
    pub allowed: bool,
    /// How many more may, right now.
    pub remaining: u32,
    /// When the next place frees, in milliseconds since the epoch.
    pub reset_at_ms: i64,
    /// How long until then, in milliseconds, by the clock that the counter counts by: the caller's own clock may be
    /// hours away from it.
    pub wait_ms: i64,
}

/// The counter cannot be asked; the request goes on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the rate limiter is unavailable: {0}")]
pub struct RateLimiterUnavailable(pub String);

/// Counts requests by key.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RateLimiter: Send + Sync {
    /// Counts one request, unless the limit is reached: a refused request takes no place. Exact in every window, also
    /// for concurrent callers. MUST answer within 50 ms or say that it is down.
    async fn hit(&self, key: &str, limit: Limit) -> Result<RateLimitDecision, RateLimiterUnavailable>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_presets_have_the_published_values() {
        let presets = [
            Limit::WEBHOOK,
            Limit::API,
            Limit::AUTH,
            Limit::CALLBACK,
            Limit::AI,
            Limit::SEND,
        ];
        let published = [(100, 60), (30, 60), (5, 60), (20, 60), (20, 3600), (60, 60)];
        assert_eq!(
            presets.map(|limit| (limit.requests, limit.window.whole_seconds())),
            published
        );
    }
}
