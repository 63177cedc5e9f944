//! The Lua script that counts a hit, and its calls.

use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use recado_domain::limits::Limit;
use redis::aio::ConnectionManager;
use redis::{ErrorKind, RedisError, RedisResult, Script, ServerErrorKind};

/// The parts into which [`run_within`] cuts a time limit.
const SLICES: u32 = 5;

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
pub(crate) async fn count(
    connection: &mut ConnectionManager,
    key: &str,
    limit: Limit,
) -> RedisResult<(bool, u32, i64, i64)> {
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
