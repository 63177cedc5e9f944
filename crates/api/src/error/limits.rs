//! 429 for limits that count things instead of requests.

use actix_web::http::header::{self, HeaderName, HeaderValue};
use recado_domain::idempotency::{IdempotencyError, MAX_KEYS_PER_DAY};
use time::{Duration, OffsetDateTime, Time};

use super::{ApiError, ErrorCode};

/// How long a caller waits before it tries again to get one of a limited number of things.
const CONCURRENCY_RETRY: Duration = Duration::seconds(5);

/// A limit that is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// How many things the limit allows.
    pub limit: u32,
    /// The limit in words.
    pub message: String,
    /// How long to wait before the next attempt.
    pub wait: Duration,
}

impl ReachedLimit {
    /// The limit of things that are open at the same time.
    pub fn concurrency(limit: usize, message: String) -> Self {
        Self {
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            message,
            wait: CONCURRENCY_RETRY,
        }
    }

    /// The headers of a rate limit, and `Retry-After`.
    fn headers(&self) -> [(HeaderName, HeaderValue); 4] {
        let seconds = self.wait.whole_seconds().max(1);
        let reset_at = (OffsetDateTime::now_utc() + self.wait).unix_timestamp_nanos() / 1_000_000;
        let reset_at = i64::try_from(reset_at).unwrap_or(i64::MAX);
        [
            (HeaderName::from_static("x-ratelimit-limit"), self.limit.into()),
            (HeaderName::from_static("x-ratelimit-remaining"), 0.into()),
            (HeaderName::from_static("x-ratelimit-reset"), reset_at.into()),
            (header::RETRY_AFTER, seconds.into()),
        ]
    }
}

impl ApiError {
    /// 429: a limit that counts things is reached. `code` is the code that the reference describes it with.
    pub fn limit_reached(code: ErrorCode, reached: ReachedLimit) -> Self {
        let headers = reached.headers();
        let error = Self::new(code, reached.message);
        let with_header = |error: Self, (name, value)| error.header(name, value);
        headers.into_iter().fold(error, with_header)
    }
}

/// The time until the next UTC midnight.
fn until_midnight(now: OffsetDateTime) -> Duration {
    now.date().next_day().map_or(Duration::DAY, |tomorrow| {
        tomorrow.with_time(Time::MIDNIGHT).assume_utc() - now
    })
}

impl From<IdempotencyError> for ApiError {
    fn from(error: IdempotencyError) -> Self {
        match error {
            IdempotencyError::Running | IdempotencyError::Mismatch => Self::new(ErrorCode::Conflict, error.to_string()),
            IdempotencyError::Exhausted => Self::limit_reached(
                ErrorCode::RateLimited,
                ReachedLimit {
                    limit: u32::try_from(MAX_KEYS_PER_DAY).unwrap_or(u32::MAX),
                    message: error.to_string(),
                    // Rounded up, so that the next attempt does not come too early.
                    wait: until_midnight(OffsetDateTime::now_utc()) + Duration::SECOND,
                },
            ),
            IdempotencyError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError as _;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn day_ends_at_utc_midnight() {
        assert_eq!(until_midnight(datetime!(2026-12-31 23:59:58 UTC)), Duration::seconds(2));
        assert_eq!(until_midnight(datetime!(2026-03-01 00:00 UTC)), Duration::DAY);
    }

    #[test]
    fn reached_limit_has_four_headers() {
        let before = OffsetDateTime::now_utc().unix_timestamp() * 1000;
        let error = ApiError::limit_reached(ErrorCode::TooManyAtOnce, ReachedLimit::concurrency(20, "full".into()));
        let response = error.error_response();
        let number = |name: &str| -> i64 { response.headers().get(name).unwrap().to_str().unwrap().parse().unwrap() };
        assert_eq!(response.status(), 429);
        assert_eq!(
            (
                number("x-ratelimit-limit"),
                number("x-ratelimit-remaining"),
                number("retry-after")
            ),
            (20, 0, 5)
        );
        assert!((5000..=7000).contains(&(number("x-ratelimit-reset") - before)));
    }
}
