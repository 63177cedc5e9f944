//! Sliding-window rate limiter: one Lua call per hit, on one shared connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use recado_domain::limits::{Limit, RateLimitDecision, RateLimiter, RateLimiterUnavailable};
use redis::{Client, TlsCertificates};

use crate::connection::SharedConnection;
use crate::hit;
use crate::log_throttle::LogThrottle;

/// Time limit of a hit. The port requires it.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Shortest time between two warnings that hits are not counted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Sliding-window rate limiter in Redis: exact, and shared by all servers.
///
/// Connects at the first hit, in the background: a server starts without Redis. After a failure every hit returns
/// [`RateLimiterUnavailable`] at once, until a background task gets a response from Redis. If Redis refuses a single
/// hit (a key of another type, no memory left), only that hit is [`RateLimiterUnavailable`].
pub struct RedisRateLimiter {
    connection: Arc<SharedConnection>,
    log_throttle: LogThrottle,
    timeout: Duration,
}

impl RedisRateLimiter {
    /// Accepts `redis://[[user]:password@]host[:port][/database]` or `unix://`. `rediss://` trusts Mozilla's
    /// authorities, see [`Self::trusting`]. Does not connect. Fails only if the URL is malformed; the error does not
    /// quote it, because it may hold a password.
    pub fn new(url: &str) -> Result<Self, String> {
        Self::open(url, None)
    }

    /// Like [`Self::new`]; `rediss://` trusts the authorities of this PEM text instead.
    pub fn trusting(url: &str, authorities: String) -> Result<Self, String> {
        Self::open(url, Some(authorities.into_bytes()))
    }

    fn open(url: &str, root_cert: Option<Vec<u8>>) -> Result<Self, String> {
        if url.contains('#') {
            return Err("the Redis URL has a fragment: the certificate of Redis is always verified".to_owned());
        }
        let client = match root_cert.is_some() && url.starts_with("rediss://") {
            true => {
                let client_tls = None;
                Client::build_with_tls(url, TlsCertificates { client_tls, root_cert })
            }
            false => Client::open(url),
        };
        let client = client.map_err(|error| format!("the Redis URL is malformed: {error}"))?;
        Ok(Self {
            connection: Arc::new(SharedConnection::new(client)),
            log_throttle: LogThrottle::new(WARNING_INTERVAL),
            timeout: TIMEOUT,
        })
    }

    /// Sets the time limit of a hit. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Checks with a new connection that Redis runs the script of a hit, without counting one. The limit is that of a
    /// connection, because a check may be slower than a hit.
    pub async fn test_connection(&self) -> Result<(), String> {
        let mut connection = self.connection.connect().map_err(|error| error.to_string())?;
        hit::probe(&mut connection).await.map_err(|error| error.to_string())
    }

    async fn count_hit(&self, key: &str, limit: Limit) -> Result<RateLimitDecision, String> {
        let shared = self.connection.connection().map_err(|error| error.to_string())?;
        let Some((mut connection, generation)) = shared else {
            return Err("Redis failed before and is being reconnected".into());
        };
        match hit::run_within(self.timeout, hit::count(&mut connection, key, limit)).await {
            Some(Ok((allowed, remaining, reset_at_ms, wait_ms))) => Ok(RateLimitDecision {
                allowed,
                remaining,
                reset_at_ms,
                wait_ms,
            }),
            Some(Err(error)) => {
                if !hit::is_refusal(&error) {
                    self.connection.mark_failed(generation, self.timeout);
                }
                Err(error.to_string())
            }
            None => {
                self.connection.mark_failed(generation, self.timeout);
                Err(format!("no response within {:?}", self.timeout))
            }
        }
    }
}

#[async_trait]
impl RateLimiter for RedisRateLimiter {
    async fn hit(&self, key: &str, limit: Limit) -> Result<RateLimitDecision, RateLimiterUnavailable> {
        self.count_hit(key, limit).await.map_err(|why| {
            if let Some(missed) = self.log_throttle.record_missed(Instant::now()) {
                tracing::warn!(why, missed, "the rate limiter is unavailable, requests are not counted");
            }
            RateLimiterUnavailable(why)
        })
    }
}
