//! The cost of the Redis rate limiter: commands and latency per request.
//!
//! The request is a creation whose body is refused, so that it does little else. Three measurements alternate: a server
//! that counts it in Redis, the Redis command alone, and a server whose Redis is unreachable. The difference of the
//! first and the last is the cost of the rate limiter; the command alone is the lower bound.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use recado_testkit::paths;
use recado_testkit::scratch::OTHER_LOG;
use recado_testkit::services::redis::Redis;

use super::data::accounts;
use super::fixture::{Fixture, Launch, Server};
use super::results::{BenchResult, median_and_spread};
use super::times::Latencies;
use super::wire::Wire;
use super::{Options, fixture};

const SCRIPT: &str = "crates/redis/src/hit.lua";

/// Commands that the script calls. Redis counts them like the commands of clients.
const BY_THE_SCRIPT: [&str; 7] = [
    "time",
    "zremrangebyscore",
    "zcard",
    "zrevrange",
    "zadd",
    "pexpire",
    "zrange",
];

/// Commands of this bench.
const BY_THE_BENCH: [&str; 6] = ["info", "auth", "config|resetstat", "flushall", "script|load", "hello"];

/// Requests of each kind per round, spread over the accounts, so that no account reaches the limit of 30.
const REQUESTS: usize = 2000;

struct TestServices {
    counting: Wire,
    uncounting: Wire,
    redis: Wire,
    script: String,
    requests: Vec<Vec<u8>>,
    keys: Vec<String>,
}

/// The p50 of one round, in microseconds.
struct Round {
    counted: f64,
    uncounted: f64,
    command: f64,
}

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let store = Redis::start(&fixture.dir().join("redis"))?;
    let counting = fixture.launch(&Launch {
        redis: Some(store.url()),
        ..fixture.routes()
    })?;
    let uncounting = fixture.launch(&Launch {
        redis: Some("redis://127.0.0.1:9".to_owned()),
        log: OTHER_LOG,
        ..fixture.routes()
    })?;
    let mut services = TestServices::new(fixture, &store, (&counting, &uncounting))?;
    services.warm_up()?;
    let (limited, others) = services.commands(fixture)?;
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        let round = services.round()?;
        println!(
            "{number}/{}: counted {:.0} us, uncounted {:.0} us, the command alone {:.0} us",
            options.pairs, round.counted, round.uncounted, round.command
        );
        rounds.push(round);
    }
    drop((counting, uncounting, store));
    Ok(results(&rounds, limited, others))
}

fn results(rounds: &[Round], limited: f64, others: f64) -> Vec<BenchResult> {
    let of = |value: fn(&Round) -> f64| median_and_spread(&rounds.iter().map(value).collect::<Vec<_>>());
    let (ratio, spread) = of(|round| (round.counted - round.uncounted) / round.command);
    let time = |name: &str, value| BenchResult::less(format!("limit: {name}"), of(value).0, " us", 0);
    vec![
        BenchResult::less("limit: Redis commands per limited request", limited, "", 2)
            .count()
            .target(1.0),
        BenchResult::less("limit: Redis commands per other request", others, "", 2)
            .count()
            .target(0.0),
        BenchResult::less("limit: added latency / latency of the Redis command", ratio, "", 2)
            .spread(spread)
            .target(1.3),
        time("p50 of a limited request", |round| round.counted),
        time("p50 of the same request without Redis", |round| round.uncounted),
        time("p50 of the Redis command", |round| round.command),
    ]
}

impl TestServices {
    fn new(fixture: &Fixture, store: &Redis, servers: (&Server, &Server)) -> Result<Self> {
        let (port, password) = store.port_and_password();
        let mut redis = Wire::connect(port)?;
        redis.redis(&["AUTH", password])?;
        let file = paths::root().join(SCRIPT);
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {SCRIPT}"))?;
        let (_, loaded) = redis.redis(&["SCRIPT", "LOAD", &source])?;
        let Some(script) = loaded.split("\r\n").nth(1).map(str::to_owned) else {
            bail!("Redis did not load {SCRIPT}: {loaded}");
        };
        let accounts = accounts();
        let requests = accounts.iter().map(|account| request(fixture, account));
        Ok(Self {
            counting: Wire::connect(fixture::port(&servers.0.base)?)?,
            uncounting: Wire::connect(fixture::port(&servers.1.base)?)?,
            redis,
            script,
            requests: requests.collect::<Result<_>>()?,
            keys: accounts
                .iter()
                .map(|account| format!("recado:limit:bench:{account}"))
                .collect(),
        })
    }

    /// Warms up both servers: connections, authentication cache, script, and the failed connection to the other Redis.
    fn warm_up(&mut self) -> Result<()> {
        for _ in 0..3 {
            self.redis.redis(&["FLUSHALL"])?;
            for request in self.requests.clone() {
                self.counting.http(&request)?;
                self.uncounting.http(&request)?;
            }
        }
        Ok(())
    }

    fn counted(&mut self, at: usize) -> Result<Duration> {
        let request = self.requests.get(at % self.requests.len()).cloned().unwrap_or_default();
        match self.counting.http(&request)? {
            (time, 422, true) => Ok(time),
            (_, status, counted) => bail!("a counted request: {status}, counted: {counted}"),
        }
    }

    fn uncounted(&mut self, at: usize) -> Result<Duration> {
        let request = self.requests.get(at % self.requests.len()).cloned().unwrap_or_default();
        match self.uncounting.http(&request)? {
            (time, 422, false) => Ok(time),
            (_, status, counted) => bail!("an uncounted request: {status}, counted: {counted}"),
        }
    }

    fn command(&mut self, at: usize) -> Result<Duration> {
        let key = self.keys.get(at % self.keys.len()).cloned().unwrap_or_default();
        let words = ["EVALSHA", &self.script, "1", &key, "30", "60000000"];
        let (time, response) = self.redis.redis(&words)?;
        // A list whose first item is 1 if the request is within the limit.
        if response.starts_with('*') && response.split("\r\n").nth(1) == Some(":1") {
            Ok(time)
        } else {
            bail!("the Redis command returned: {response}")
        }
    }

    fn round(&mut self) -> Result<Round> {
        self.redis.redis(&["FLUSHALL"])?;
        let (mut counted, mut uncounted, mut command) = (Latencies::new()?, Latencies::new()?, Latencies::new()?);
        for at in 0..REQUESTS {
            counted.record(self.counted(at)?);
            command.record(self.command(at)?);
            uncounted.record(self.uncounted(at)?);
        }
        Ok(Round {
            counted: counted.p50() * 1000.0,
            uncounted: uncounted.p50() * 1000.0,
            command: command.p50() * 1000.0,
        })
    }

    /// Redis commands per limited request and per other request.
    fn commands(&mut self, fixture: &Fixture) -> Result<(f64, f64)> {
        self.redis.redis(&["FLUSHALL"])?;
        self.redis.redis(&["CONFIG", "RESETSTAT"])?;
        for at in 0..REQUESTS {
            self.counted(at)?;
        }
        let limited = self.commands_per_request()?;
        self.redis.redis(&["CONFIG", "RESETSTAT"])?;
        let reads = fixture.requests()?;
        for read in reads.iter().cycle().take(REQUESTS) {
            let (_, status, _) = self.counting.http(&head("GET", &read.path, &read.headers, ""))?;
            if status != 200 {
                bail!("{} responded with {status}", read.path);
            }
        }
        Ok((limited, self.commands_per_request()?))
    }

    /// Commands of the server per request since the statistics were reset, without those of the script and the bench.
    fn commands_per_request(&mut self) -> Result<f64> {
        let (_, text) = self.redis.redis(&["INFO", "commandstats"])?;
        let excluded = |name: &str| BY_THE_SCRIPT.contains(&name) || BY_THE_BENCH.contains(&name);
        let calls = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls: u32 = rest.split(',').next()?.parse().ok()?;
            (!excluded(name)).then_some(calls)
        });
        let requests = u32::try_from(REQUESTS).context("too many requests")?;
        Ok(f64::from(calls.sum::<u32>()) / f64::from(requests))
    }
}

/// A creation for this account whose body is refused.
fn request(fixture: &Fixture, account: &str) -> Result<Vec<u8>> {
    let mut headers = fixture.headers(account)?;
    headers.push(("content-type", "application/json".to_owned()));
    Ok(head("POST", "/api/campaigns", &headers, "{}"))
}

fn head(method: &str, path: &str, headers: &[(&'static str, String)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_request_has_its_content_length() {
        let text = head("POST", "/x", &[("a", "b".to_owned())], "{}");
        assert_eq!(
            text,
            b"POST /x HTTP/1.1\r\nhost: localhost\r\na: b\r\ncontent-length: 2\r\n\r\n{}"
        );
    }
}
