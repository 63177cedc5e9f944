//! Tests of the rate limiter against a real Redis.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests say what they expect by panicking"
)]

mod faults;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use recado_domain::limits::{Limit, RateLimitDecision, RateLimiter};
use recado_redis::RedisRateLimiter;
use recado_testkit::DEADLINE;

const MINUTE: Limit = Limit {
    requests: 30,
    window: time::Duration::MINUTE,
};

fn url() -> String {
    std::env::var("TEST_REDIS_URL").expect("TEST_REDIS_URL is not set: run the tests with `cargo xtask test`")
}

/// A limiter with its own connection, and a timeout that is long enough for a busy machine.
fn limiter() -> RedisRateLimiter {
    limiter_at(&url())
}

fn limiter_at(url: &str) -> RedisRateLimiter {
    RedisRateLimiter::new(url).unwrap().timeout(Duration::from_secs(10))
}

/// A key that is unique among tests and runs.
fn key(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}:{}:{}:{number}", std::process::id(), now_ms())
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

async fn redis(command: &[&str]) -> redis::Value {
    let client = redis::Client::open(url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (name, arguments) = command.split_first().unwrap();
    let mut command = redis::cmd(name);
    for argument in arguments {
        command.arg(argument);
    }
    command.query_async(&mut connection).await.unwrap()
}

/// Hits until one is allowed, and returns the time of that hit in milliseconds.
async fn next_allowed(limiter: &RedisRateLimiter, key: &str, limit: Limit) -> i64 {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if limiter.hit(key, limit).await.unwrap().allowed {
            return now_ms();
        }
    }
    panic!("no hit was allowed");
}

#[tokio::test]
async fn limiter_admits_exactly_30_of_200_concurrent_hits() {
    let (servers, key) = ([Arc::new(limiter()), Arc::new(limiter())], key("parallel"));
    let hits = (0..200).map(|number: usize| {
        let (server, key) = (Arc::clone(&servers[number % 2]), key.clone());
        async move { server.hit(&key, MINUTE).await.unwrap() }
    });
    let decisions = join_all(hits).await;
    let allowed: Vec<&RateLimitDecision> = decisions.iter().filter(|decision| decision.allowed).collect();
    assert_eq!(allowed.len(), 30);
    let mut remaining: Vec<u32> = allowed.iter().map(|decision| decision.remaining).collect();
    remaining.sort_unstable();
    assert_eq!(
        remaining,
        (0..30).collect::<Vec<_>>(),
        "every allowed hit has another remaining count"
    );
    assert!(
        decisions
            .iter()
            .filter(|decision| !decision.allowed)
            .all(|decision| decision.remaining == 0)
    );
}

#[tokio::test]
async fn window_slides_and_refused_hits_do_not_count() {
    let limit = Limit {
        requests: 2,
        window: time::Duration::milliseconds(300),
    };
    let (limiter, key) = (limiter(), key("slides"));
    let first = limiter.hit(&key, limit).await.unwrap();
    let second = limiter.hit(&key, limit).await.unwrap();
    assert!(first.allowed && second.allowed);
    // Hundreds of hits are refused meanwhile. If they counted, none would ever be allowed.
    let third_at = next_allowed(&limiter, &key, limit).await;
    assert!(
        third_at >= first.reset_at_ms - 1,
        "allowed at {third_at}, before {}",
        first.reset_at_ms
    );
    // The next window holds the second and the third hit, so the fourth waits until the second leaves it.
    let fourth_at = next_allowed(&limiter, &key, limit).await;
    assert!(fourth_at >= third_at && fourth_at >= second.reset_at_ms - 1);
}

#[tokio::test]
async fn decision_reports_remaining_hits_and_reset_time() {
    let limit = Limit {
        requests: 2,
        window: time::Duration::MINUTE,
    };
    let (limiter, key) = (limiter(), key("reset"));
    let before = now_ms();
    let decisions = [
        limiter.hit(&key, limit).await.unwrap(),
        limiter.hit(&key, limit).await.unwrap(),
        limiter.hit(&key, limit).await.unwrap(),
    ];
    let after = now_ms();
    let reset_at_ms = decisions[0].reset_at_ms;
    assert!(
        (before + 60_000..=after + 60_001).contains(&reset_at_ms),
        "{reset_at_ms} is not one window after the first hit"
    );
    let actual = decisions.map(|decision| (decision.allowed, decision.remaining, decision.reset_at_ms));
    let expected = [(true, 1), (true, 0), (false, 0)].map(|(allowed, remaining)| (allowed, remaining, reset_at_ms));
    assert_eq!(actual, expected);
    // The wait is measured by the clock of Redis.
    let shortest_wait = 60_000 - (after - before) - 2;
    assert!(
        decisions
            .iter()
            .all(|decision| (shortest_wait..=60_001).contains(&decision.wait_ms)),
        "{decisions:?}"
    );
    let lowered = limiter.hit(&key, Limit { requests: 1, ..limit }).await.unwrap();
    assert!(
        !lowered.allowed && lowered.reset_at_ms >= reset_at_ms,
        "the lower limit allows a hit only after the second one expires"
    );
    let none = limiter
        .hit(&format!("{key}:none"), Limit { requests: 0, ..limit })
        .await
        .unwrap();
    assert!(!none.allowed && none.reset_at_ms >= before + 60_000);
}

#[tokio::test]
async fn keys_count_separately_and_expire() {
    let one = Limit { requests: 1, ..MINUTE };
    let (limiter, key) = (limiter(), key("expires"));
    assert!(limiter.hit(&key, one).await.unwrap().allowed);
    assert!(limiter.hit(&format!("{key}:other"), one).await.unwrap().allowed);
    let redis::Value::Int(left_ms) = redis(&["PTTL", &format!("recado:limit:{key}")]).await else {
        panic!("no time to live");
    };
    assert!((1..=60_001).contains(&left_ms), "{left_ms}");
    let short = Limit {
        window: time::Duration::milliseconds(200),
        ..one
    };
    assert!(limiter.hit(&format!("{key}:short"), short).await.unwrap().allowed);
    let deadline = Instant::now() + DEADLINE;
    while redis(&["EXISTS", &format!("recado:limit:{key}:short")]).await != redis::Value::Int(0) {
        assert!(Instant::now() < deadline, "the key does not expire");
    }
}

#[tokio::test]
async fn flushed_script_is_loaded_again() {
    let (limiter, key) = (limiter(), key("flush"));
    assert_eq!(limiter.hit(&key, MINUTE).await.unwrap().remaining, 29);
    redis(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(limiter.hit(&key, MINUTE).await.unwrap().remaining, 28);
    // Like FLUSHALL for this key, without deleting the windows of concurrent tests.
    redis(&["DEL", &format!("recado:limit:{key}")]).await;
    assert_eq!(limiter.hit(&key, MINUTE).await.unwrap().remaining, 29);
}

#[tokio::test]
async fn dropped_connection_is_replaced() {
    // A separate database number distinguishes this connection from those of concurrent tests.
    let url = url();
    let (scheme, server) = url.split_once("://").unwrap();
    let server = server.split('/').next().unwrap();
    let (limiter, key) = (limiter_at(&format!("{scheme}://{server}/7")), key("dropped"));
    assert_eq!(limiter.hit(&key, MINUTE).await.unwrap().remaining, 29);
    let list: String = redis::from_redis_value(redis(&["CLIENT", "LIST"]).await).unwrap();
    let own = list.lines().find(|line| line.contains(" db=7 ")).unwrap();
    let address = own.split(' ').find_map(|field| field.strip_prefix("addr=")).unwrap();
    redis(&["CLIENT", "KILL", "ADDR", address]).await;
    let deadline = Instant::now() + DEADLINE;
    let counted = loop {
        assert!(Instant::now() < deadline, "no hit was counted");
        match limiter.hit(&key, MINUTE).await {
            Ok(decision) => break decision,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(counted.remaining, 28);
}

/// F09 promises these upper bounds of what a dead Redis adds to a request. Each holds for the shortest of ten: a busy machine delays single calls.
/// The first hit waits for its timeout of 50 ms, the next ones for nothing.
const FIRST_HIT: Duration = Duration::from_millis(60);
const NEXT_HIT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn hit_on_dead_redis_fails_fast() {
    // One port refuses connections; the other accepts them and never responds.
    let refusing = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [refusing, silent.local_addr().unwrap()] {
        // The shortest of ten: a busy machine delays single calls.
        let (mut first, mut second) = (Duration::MAX, Duration::MAX);
        for _ in 0..10 {
            let limiter = RedisRateLimiter::new(&format!("redis://{address}")).unwrap();
            for shortest in [&mut first, &mut second] {
                let started = Instant::now();
                assert!(limiter.hit("k", MINUTE).await.is_err());
                *shortest = started.elapsed().min(*shortest);
            }
        }
        assert!(first < FIRST_HIT, "{first:?}");
        assert!(second < NEXT_HIT, "{second:?}");
    }
}

#[test]
fn malformed_url_error_hides_the_password() {
    for url in ["", "localhost:6379", "http://localhost", "redis://:s3cret@:99999/x"] {
        let error = RedisRateLimiter::new(url)
            .err()
            .unwrap_or_else(|| panic!("{url:?} was accepted"));
        assert!(!error.contains("s3cret"), "{error}");
    }
}
