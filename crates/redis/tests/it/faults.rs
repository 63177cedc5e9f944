//! Redis is slow, silent, gone, full or holds keys of another type: hits wait at most once, and limits recover with it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use recado_domain::limits::{RateLimitDecision, RateLimiter};
use recado_redis::RedisRateLimiter;
use recado_testkit::DEADLINE;
use recado_testkit::services::own_redis::OwnRedis;

use crate::support::Proxy;
use crate::{MINUTE, key, limiter, limiter_at, redis};

/// A limiter with the timeout of the server.
fn limiter_with_default_timeout(url: &str) -> RedisRateLimiter {
    RedisRateLimiter::new(url).unwrap()
}

/// Hits until one is counted.
async fn hit_until_counted(limiter: &RedisRateLimiter, key: &str) -> RateLimitDecision {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Ok(decision) = limiter.hit(key, MINUTE).await {
            return decision;
        }
        assert!(Instant::now() < deadline, "no hit was counted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes consecutive hits and asserts that none is counted.
async fn assert_uncounted(limiter: &RedisRateLimiter, key: &str, hits: usize) {
    for number in 0..hits {
        let hit = limiter.hit(key, MINUTE).await;
        assert!(hit.is_err(), "{number}: {hit:?}");
    }
}

#[tokio::test]
async fn slow_redis_delays_only_one_hit() {
    let redis = OwnRedis::start();
    let proxy = Proxy::start(redis.port());
    let limiter = limiter_with_default_timeout(&proxy.url());
    let before = hit_until_counted(&limiter, "k").await;
    proxy.delay(Duration::from_secs(5));
    let calls_before = proxy.script_calls();
    assert_uncounted(&limiter, "k", 200).await;
    let calls = proxy.script_calls() - calls_before;
    assert!(calls <= 1, "{calls} hits waited");
    proxy.delay(Duration::ZERO);
    let after = hit_until_counted(&limiter, "k").await;
    assert!(
        after.allowed && after.remaining < before.remaining,
        "{before:?} {after:?}"
    );
}

#[tokio::test]
async fn silent_redis_delays_only_hits_in_flight() {
    let redis = OwnRedis::start();
    let proxy = Proxy::start(redis.port());
    let limiter = limiter_with_default_timeout(&proxy.url());
    hit_until_counted(&limiter, "k").await;
    redis.signal("STOP");
    let hits = join_all((0..200).map(|_| limiter.hit("k", MINUTE))).await;
    assert!(hits.iter().all(Result::is_err));
    let (calls_before, connections_before) = (proxy.script_calls(), proxy.connections());
    // Until several attempts to reconnect have failed.
    while proxy.connections() < connections_before + 3 {
        assert_uncounted(&limiter, "k", 10).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        proxy.script_calls(),
        calls_before,
        "no hit and no probe calls the script"
    );
    redis.signal("CONT");
    hit_until_counted(&limiter, "k").await;
    let mut allowed = 0;
    while limiter.hit("other", MINUTE).await.unwrap().allowed {
        allowed += 1;
    }
    assert_eq!(allowed, 30, "the limit applies again");
}

#[tokio::test]
async fn blocked_thread_does_not_lift_the_limit() {
    let redis = OwnRedis::start();
    let limiter = limiter_with_default_timeout(&redis.url());
    hit_until_counted(&limiter, "k").await;
    let mut missed = 0;
    for attempt in 0..10 {
        let key = format!("busy {attempt}");
        let hits = (0..40).map(|_| limiter.hit(&key, MINUTE));
        // All hits are queued when the thread blocks for longer than the timeout of a hit.
        let blocked = async { std::thread::sleep(Duration::from_millis(120)) };
        let (hits, ()) = futures_util::future::join(join_all(hits), blocked).await;
        missed += hits.iter().filter(|hit| hit.is_err()).count();
    }
    assert_eq!(missed, 0, "hits went uncounted");
}

#[tokio::test]
async fn key_of_another_type_affects_no_other_key() {
    let (limiter, bad, good) = (limiter(), key("spoiled"), key("good"));
    let stored = format!("recado:limit:{bad}");
    for spoil in [
        &["SET", &stored, "x"][..],
        &["LPUSH", &stored, "x"],
        &["HSET", &stored, "a", "b"],
    ] {
        redis(spoil).await;
        for _ in 0..3 {
            let why = limiter.hit(&bad, MINUTE).await.unwrap_err();
            assert!(why.0.contains("WRONGTYPE"), "{why}");
            assert!(
                limiter.hit(&good, MINUTE).await.unwrap().allowed,
                "the connection stays in use, without a pause"
            );
        }
        redis(&["DEL", &stored]).await;
    }
    assert_eq!(limiter.hit(&bad, MINUTE).await.unwrap().remaining, 29);
    assert_eq!(limiter.hit(&good, MINUTE).await.unwrap().remaining, 20);
}

#[tokio::test]
async fn full_redis_does_not_pause_the_limiter() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 29);
    redis.command("CONFIG SET maxmemory-policy noeviction");
    redis.command("CONFIG SET maxmemory 1");
    // Redis lets a script finish once it has written. If it aborted the script, the hit would be refused as in the next
    // test.
    let hits = join_all((0..10).map(|_| limiter.hit("k", MINUTE))).await;
    let counted = hits.iter().filter(|hit| hit.is_ok()).count();
    redis.command("CONFIG SET maxmemory 0");
    let after = limiter.hit("k", MINUTE).await.unwrap();
    assert_eq!(
        usize::try_from(28 - after.remaining).unwrap(),
        counted,
        "counted at once"
    );
}

#[tokio::test]
async fn refused_command_does_not_pause_the_limiter() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 29);
    redis.command("ACL SETUSER default -zadd");
    assert_uncounted(&limiter, "k", 50).await;
    redis.command("ACL SETUSER default +zadd");
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 28, "counted at once");
}

#[tokio::test]
async fn demoted_redis_is_reconnected() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    hit_until_counted(&limiter, "k").await;
    redis.command("REPLICAOF 127.0.0.1 9");
    assert_uncounted(&limiter, "k", 10).await;
    redis.command("REPLICAOF NO ONE");
    hit_until_counted(&limiter, "k").await;
}

#[tokio::test]
async fn flushed_or_restarted_redis_counts_from_zero() {
    let mut redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    for remaining in [29, 28, 27] {
        assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, remaining);
    }
    redis.command("FLUSHALL");
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 29);
    redis.command("SCRIPT FLUSH SYNC");
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 28);
    redis.command("FUNCTION FLUSH");
    redis.command("FLUSHALL SYNC");
    let hits = join_all((0..40).map(|_| limiter.hit("k", MINUTE))).await;
    let allowed = hits
        .iter()
        .filter(|hit| hit.as_ref().is_ok_and(|decision| decision.allowed));
    assert_eq!(allowed.count(), 30);
    redis.kill();
    assert_uncounted(&limiter, "k", 20).await;
    redis.restart();
    assert_eq!(hit_until_counted(&limiter, "k").await.remaining, 29);
}

#[tokio::test]
async fn limiter_recovers_after_repeated_redis_restarts() {
    let mut redis = OwnRedis::start();
    let limiter = limiter_with_default_timeout(&redis.url());
    hit_until_counted(&limiter, "k").await;
    for _ in 0..3 {
        redis.kill();
        assert_uncounted(&limiter, "k", 5).await;
        redis.restart();
        hit_until_counted(&limiter, "k").await;
    }
}

#[tokio::test]
async fn hit_sends_one_command() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    // The first hit connects, and the script is loaded before or after it.
    limiter.hit("k", MINUTE).await.unwrap();
    redis.command("CONFIG RESETSTAT");
    for _ in 0..40 {
        limiter.hit("k", MINUTE).await.unwrap();
    }
    let handshake = ["client|setinfo", "hello"];
    let mut calls = redis.calls();
    calls.retain(|(name, _)| !handshake.contains(&name.as_str()));
    assert_eq!(calls, [("evalsha".to_owned(), 40)]);
}
