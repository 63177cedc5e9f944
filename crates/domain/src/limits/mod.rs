//! Rate limits: how many requests a key may make in a sliding window.
//!
//! Owns the presets, the port to the shared rate limiter, and the rate limiter of a single server. The route table
//! assigns limits to routes.

mod in_process;

use async_trait::async_trait;
use thiserror::Error;
use time::Duration;

pub use in_process::InProcessRateLimiter;

/// Maximum number of requests in any window of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub requests: u32,
    pub window: Duration,
}

impl Limit {
    /// The `webhook` preset.
    pub const WEBHOOK: Self = Self::per_minute(100);
    /// The `auth` preset.
    pub const AUTH: Self = Self::per_minute(5);
    /// The `api` preset.
    pub const API: Self = Self::per_minute(30);
    /// The `callback` preset: published, not yet used by a route.
    pub const CALLBACK: Self = Self::per_minute(20);
    /// The `ai` preset: published, not yet used by a route.
    pub const AI: Self = Self {
        requests: 20,
        window: Duration::hours(1),
    };
    /// The `send` preset: invites, and batches of messages.
    pub const SEND: Self = Self::per_minute(60);
    /// Requests with unknown API keys, from one address.
    pub const UNKNOWN_KEYS: Self = Self::per_minute(60);
    /// Campaign starts.
    pub const CAMPAIGN_SEND: Self = Self::per_minute(5);
    /// Checks of a WhatsApp number on request.
    pub const PROFILE_VERIFY: Self = Self::per_minute(10);
    /// Checks of WhatsApp numbers when their data are entered.
    pub const PROFILE_CHECK: Self = Self::per_minute(30);
    /// Single messages.
    pub const MESSAGES: Self = Self::per_minute(1000);
    /// Uploads of template media.
    pub const TEMPLATE_MEDIA: Self = Self::per_minute(5);
    /// Reads of files of messages.
    pub const MEDIA: Self = Self::per_minute(300);
    /// Uploads of files of messages.
    pub const MEDIA_UPLOAD: Self = Self::per_minute(60);

    /// At most this many requests a minute.
    pub const fn per_minute(requests: u32) -> Self {
        Self {
            requests,
            window: Duration::minutes(1),
        }
    }
}

/// Decision about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitDecision {
    pub allowed: bool,
    /// Number of further requests that are allowed now.
    pub remaining: u32,
    /// When the oldest counted request leaves the window, in milliseconds since the epoch.
    pub reset_at_ms: i64,
    /// Milliseconds until `reset_at_ms` by the limiter's clock. The caller's clock may differ from it by hours.
    pub wait_ms: i64,
}

/// The rate limiter cannot be reached. Fail open: the request is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the rate limiter is unavailable: {0}")]
pub struct RateLimiterUnavailable(pub String);

/// Port to the rate limiter: counts requests by key.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RateLimiter: Send + Sync {
    /// Counts a request, unless the limit is reached; a refused request is not counted. MUST be exact in every window,
    /// also for concurrent callers. MUST return within 50 ms, if necessary with `RateLimiterUnavailable`.
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
