//! Sliding-window rate limiter: one Lua call per hit, on one shared connection.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use recado_domain::limits::{Limit, RateLimitDecision, RateLimiter, RateLimiterUnavailable};
use redis::aio::ConnectionManager;
use redis::{Client, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, TlsCertificates};

use crate::connection::SharedConnection;
use crate::log_throttle::LogThrottle;

/// Time limit of a hit. The port requires it.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Parts of that time limit, see `run_within`.
const SLICES: u32 = 5;

/// Shortest time between two warnings that hits are not counted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Separates these keys from other data in the same Redis.
const PREFIX: &str = "recado:limit:";

/// Key and limit of a health check. With a limit of 0 the script writes nothing.
const PROBE: (&str, Limit) = (
    "probe",
    Limit {
        requests: 0,
        window: time::Duration::SECOND,
    },
);

const SOURCE: &str = include_str!("hit.lua");

static HIT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

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
        probe(&mut connection).await.map_err(|error| error.to_string())
    }

    async fn count_hit(&self, key: &str, limit: Limit) -> Result<RateLimitDecision, String> {
        let shared = self.connection.connection().map_err(|error| error.to_string())?;
        let Some((mut connection, generation)) = shared else {
            return Err("Redis failed before and is being reconnected".into());
        };
        match run_within(self.timeout, count(&mut connection, key, limit)).await {
            Some(Ok((allowed, remaining, reset_at_ms, wait_ms))) => Ok(RateLimitDecision {
                allowed,
                remaining,
                reset_at_ms,
                wait_ms,
            }),
            Some(Err(error)) => {
                if !is_refusal(&error) {
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

/// Runs a call with a timeout; `None` when it expires. The timeout is cut into `SLICES`: a thread that was blocked has
/// neither sent the request nor read the response, and loses one slice instead of all. Otherwise a burst of requests
/// would block its thread, time out and so switch off its own limit.
pub(crate) async fn run_within<T>(timeout: Duration, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    for _ in 0..SLICES {
        if let Ok(value) = tokio::time::timeout(timeout / SLICES, &mut call).await {
            return Some(value);
        }
    }
    None
}

/// Whether Redis itself refused the command: the connection still works. `READONLY` is not a refusal: the server was
/// demoted to a replica, and a new connection may reach the new primary.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some() && error.kind() != ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// Loads the script into Redis.
pub(crate) async fn load(connection: &mut ConnectionManager) -> RedisResult<()> {
    HIT.prepare_invoke().load_async(connection).await.map(|_: String| ())
}

/// Runs the script of a hit without counting one.
pub(crate) async fn probe(connection: &mut ConnectionManager) -> RedisResult<()> {
    let (key, limit) = PROBE;
    count(connection, key, limit).await.map(|_| ())
}

/// Calls the script. Returns: allowed, remaining, reset in milliseconds since the epoch, and milliseconds until then.
async fn count(connection: &mut ConnectionManager, key: &str, limit: Limit) -> RedisResult<(bool, u32, i64, i64)> {
    let window_us = i64::try_from(limit.window.whole_microseconds()).unwrap_or(i64::MAX);
    let key = format!("{PREFIX}{key}");
    let call = |command: &str, script: &str| {
        let mut call = redis::cmd(command);
        call.arg(script).arg(1).arg(&key).arg(limit.requests).arg(window_us);
        call
    };
    match call("EVALSHA", HIT.get_hash()).query_async(connection).await {
        // EVAL runs and caches the script in one step: no SCRIPT FLUSH can come between loading and running.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            call("EVAL", SOURCE).query_async(connection).await
        }
        result => result,
    }
}
