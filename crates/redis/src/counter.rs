//! The shared counter: one Lua call a hit, on one connection.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use recado_domain::limits::{CounterDown, Limit, RateCounter, Verdict};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, RedisResult, Script, ServerErrorKind};

use crate::breaker::Breaker;

/// How long a hit may take.
const TIMEOUT: Duration = Duration::from_millis(50);

/// How long connecting may take; it goes on in the background when a hit has given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long nobody is made to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps our keys apart from whatever else the Redis holds.
const PREFIX: &str = "recado:limit:";

const SOURCE: &str = include_str!("hit.lua");

static HIT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// Exact sliding windows in Redis, shared by every server.
///
/// Connects at the first hit, in the background: a missing Redis keeps no server from starting. Any failure, and
/// everything for a second after one, is [`CounterDown`].
pub struct RedisCounter {
    client: Client,
    slot: Mutex<Slot>,
    breaker: Breaker,
    timeout: Duration,
}

/// The connection in use, and how many there were before it.
#[derive(Default)]
struct Slot {
    connection: Option<ConnectionManager>,
    generation: u64,
}

impl RedisCounter {
    /// `redis://[[user]:password@]host[:port][/database]`, or `unix://`. Connects to nothing; fails on a malformed
    /// address only, without quoting it: it may hold a password.
    pub fn new(url: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(|error| format!("the address of Redis is malformed: {error}"))?;
        Ok(Self {
            client,
            slot: Mutex::default(),
            breaker: Breaker::new(PAUSE),
            timeout: TIMEOUT,
        })
    }

    /// The same with another time limit of a hit. Default: 50 ms, which the port demands.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, made if there is none, and its generation.
    fn connection(&self) -> RedisResult<(ConnectionManager, u64)> {
        let mut slot = self.slot();
        let connection = match &slot.connection {
            Some(connection) => connection.clone(),
            None => slot.connection.insert(self.connect()?).clone(),
        };
        Ok((connection, slot.generation))
    }

    /// A new connection, on its way: a task of its own drives it and loads the script, so that the hits that give up
    /// on it do not keep it from coming about.
    fn connect(&self) -> RedisResult<ConnectionManager> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(CONNECT_TIMEOUT))
            .set_number_of_retries(0);
        let connection = ConnectionManager::new_lazy_with_config(self.client.clone(), config)?;
        let mut warming = connection.clone();
        tokio::spawn(async move {
            if let Err(error) = HIT.prepare_invoke().load_async(&mut warming).await {
                tracing::debug!(%error, "Redis cannot be reached");
            }
        });
        Ok(connection)
    }

    /// Pauses, and replaces the connection: a fresh one is up by the end of the pause if Redis is, and whatever state
    /// the old one was in is gone. Of the hits that fail together on one connection, the first does this.
    fn failed(&self, generation: u64, why: &str) {
        let mut slot = self.slot();
        if slot.generation == generation {
            self.breaker.failed(Instant::now());
            *slot = Slot {
                connection: self.connect().ok(),
                generation: generation + 1,
            };
            tracing::warn!(why, "the rate counter is unavailable");
        }
    }
}

#[async_trait]
impl RateCounter for RedisCounter {
    async fn hit(&self, key: &str, limit: Limit) -> Result<Verdict, CounterDown> {
        if !self.breaker.admits(Instant::now()) {
            return Err(CounterDown("Redis failed a moment ago".into()));
        }
        let (connection, generation) = self.connection().map_err(|error| CounterDown(error.to_string()))?;
        let why = match tokio::time::timeout(self.timeout, count(connection, key, limit)).await {
            Ok(Ok((allowed, remaining, reset_at_ms))) => {
                self.breaker.succeeded();
                return Ok(Verdict {
                    allowed,
                    remaining,
                    reset_at_ms,
                });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.timeout),
        };
        self.failed(generation, &why);
        Err(CounterDown(why))
    }
}

/// One call of the script: allowed, remaining, reset in milliseconds since the epoch.
async fn count(mut connection: ConnectionManager, key: &str, limit: Limit) -> RedisResult<(bool, u32, i64)> {
    let window_us = i64::try_from(limit.window.whole_microseconds()).unwrap_or(i64::MAX);
    let key = format!("{PREFIX}{key}");
    let call = |command: &str, script: &str| {
        let mut call = redis::cmd(command);
        call.arg(script).arg(1).arg(&key).arg(limit.requests).arg(window_us);
        call
    };
    match call("EVALSHA", HIT.get_hash()).query_async(&mut connection).await {
        // Runs the script and keeps it, in one step: nothing can be flushed between loading and running.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            call("EVAL", SOURCE).query_async(&mut connection).await
        }
        result => result,
    }
}
