//! Does Redis answer the rate limiter?

use recado_redis::RedisRateLimiter;
use secrecy::ExposeSecret as _;

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;

const NAME: &str = "redis";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let Some(url) = &context.config(&["REDIS_URL"])?.redis_url else {
        let found = "REDIS_URL is not set: each process counts rate limits for itself";
        return Ok(vec![Diagnosis::ok(NAME, found)]);
    };
    let tested = match RedisRateLimiter::new(url.expose_secret()) {
        Ok(rate_limiter) => rate_limiter.test_connection().await,
        Err(error) => Err(error),
    };
    Ok(vec![match tested {
        Ok(()) => Diagnosis::ok(NAME, "Redis answers the rate limiter"),
        Err(error) => Diagnosis::fail(
            NAME,
            format!("Redis does not answer the rate limiter: {error}"),
            "check REDIS_URL, that Redis runs, and that its user may run scripts; until then no request is counted",
        ),
    }])
}
