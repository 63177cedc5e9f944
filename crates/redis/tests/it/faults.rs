//! A Redis that is slow, silent, gone, full or spoiled: nobody waits for it twice, and the limits come back with it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use recado_domain::limits::{RateLimitDecision, RateLimiter};
use recado_redis::RedisRateLimiter;
use recado_redis::testing::OwnRedis;

use crate::support::Proxy;
use crate::{MINUTE, key, limiter, limiter_at, redis};

/// A counter with the time limit that the server uses.
fn strict(url: &str) -> RedisRateLimiter {
    RedisRateLimiter::new(url).unwrap()
}

/// Hits until one is counted.
async fn counted(limiter: &RedisRateLimiter, key: &str) -> RateLimitDecision {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(decision) = limiter.hit(key, MINUTE).await {
            return decision;
        }
        assert!(Instant::now() < deadline, "no hit is counted any more");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// So many hits one after the other, all of them uncounted.
async fn uncounted(limiter: &RedisRateLimiter, key: &str, hits: usize) {
    for number in 0..hits {
        let hit = limiter.hit(key, MINUTE).await;
        assert!(hit.is_err(), "{number}: {hit:?}");
    }
}

#[tokio::test]
async fn a_slow_redis_is_asked_once_and_then_left_alone() {
    let redis = OwnRedis::start();
    let proxy = Proxy::start(redis.port());
    let limiter = strict(&proxy.url());
    let before = counted(&limiter, "k").await;
    proxy.delay(Duration::from_secs(5));
    let asked = proxy.asked();
    uncounted(&limiter, "k", 200).await;
    assert!(proxy.asked() - asked <= 1, "{} hits waited", proxy.asked() - asked);
    proxy.delay(Duration::ZERO);
    let after = counted(&limiter, "k").await;
    assert!(
        after.allowed && after.remaining < before.remaining,
        "{before:?} {after:?}"
    );
}

#[tokio::test]
async fn many_at_once_wait_together_for_a_silent_redis_and_nobody_after_them() {
    let redis = OwnRedis::start();
    let proxy = Proxy::start(redis.port());
    let limiter = strict(&proxy.url());
    counted(&limiter, "k").await;
    redis.signal("STOP");
    let begun = Instant::now();
    let hits = join_all((0..200).map(|_| limiter.hit("k", MINUTE))).await;
    assert!(hits.iter().all(Result::is_err));
    let asked = proxy.asked();
    // Also across several attempts to get a new connection.
    while begun.elapsed() < Duration::from_secs(3) {
        uncounted(&limiter, "k", 10).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(proxy.asked(), asked, "no hit asks, no probe gets so far");
    redis.signal("CONT");
    counted(&limiter, "k").await;
    let mut allowed = 0;
    while limiter.hit("other", MINUTE).await.unwrap().allowed {
        allowed += 1;
    }
    assert_eq!(allowed, 30, "the limit is the usual one again");
}

#[tokio::test]
async fn a_thread_that_is_busy_itself_does_not_lift_the_limit() {
    let redis = OwnRedis::start();
    let limiter = strict(&redis.url());
    counted(&limiter, "k").await;
    let mut missed = 0;
    for round in 0..10 {
        let key = format!("busy {round}");
        let hits = (0..40).map(|_| limiter.hit(&key, MINUTE));
        // Everything that is asked here at once is in its queue when the thread is lost for longer than a hit may take.
        let blocked = async { std::thread::sleep(Duration::from_millis(120)) };
        let (hits, ()) = futures_util::future::join(join_all(hits), blocked).await;
        missed += hits.iter().filter(|hit| hit.is_err()).count();
    }
    assert_eq!(missed, 0, "hits went uncounted");
}

#[tokio::test]
async fn a_key_of_another_type_spoils_no_other() {
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
                "no pause, the same connection"
            );
        }
        redis(&["DEL", &stored]).await;
    }
    assert_eq!(limiter.hit(&bad, MINUTE).await.unwrap().remaining, 29);
    assert_eq!(limiter.hit(&good, MINUTE).await.unwrap().remaining, 20);
}

#[tokio::test]
async fn a_full_redis_stops_nobody_and_counts_as_before_when_there_is_room() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 29);
    redis.say("CONFIG SET maxmemory-policy noeviction");
    redis.say("CONFIG SET maxmemory 1");
    // Redis lets a script go on that has begun to write; one that does not would be a refusal like the next test's.
    let hits = join_all((0..10).map(|_| limiter.hit("k", MINUTE))).await;
    let counted = hits.iter().filter(|hit| hit.is_ok()).count();
    redis.say("CONFIG SET maxmemory 0");
    let after = limiter.hit("k", MINUTE).await.unwrap();
    assert_eq!(usize::try_from(28 - after.remaining).unwrap(), counted, "at once");
}

#[tokio::test]
async fn what_redis_refuses_costs_that_hit_its_count_and_nobody_a_pause() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 29);
    redis.say("ACL SETUSER default -zadd");
    uncounted(&limiter, "k", 50).await;
    redis.say("ACL SETUSER default +zadd");
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 28, "at once");
}

#[tokio::test]
async fn a_redis_that_became_a_replica_is_looked_for_again() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    counted(&limiter, "k").await;
    redis.say("REPLICAOF 127.0.0.1 9");
    uncounted(&limiter, "k", 10).await;
    redis.say("REPLICAOF NO ONE");
    counted(&limiter, "k").await;
}

#[tokio::test]
async fn a_flushed_and_a_restarted_redis_count_from_the_start() {
    let mut redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    for remaining in [29, 28, 27] {
        assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, remaining);
    }
    redis.say("FLUSHALL");
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 29);
    redis.say("SCRIPT FLUSH SYNC");
    assert_eq!(limiter.hit("k", MINUTE).await.unwrap().remaining, 28);
    redis.say("FUNCTION FLUSH");
    redis.say("FLUSHALL SYNC");
    let hits = join_all((0..40).map(|_| limiter.hit("k", MINUTE))).await;
    let allowed = hits
        .iter()
        .filter(|hit| hit.as_ref().is_ok_and(|decision| decision.allowed));
    assert_eq!(allowed.count(), 30);
    redis.kill();
    uncounted(&limiter, "k", 20).await;
    redis.restart();
    assert_eq!(counted(&limiter, "k").await.remaining, 29);
}

#[tokio::test]
async fn a_redis_that_restarts_under_traffic_costs_some_counts_and_no_more() {
    let mut redis = OwnRedis::start();
    let limiter = strict(&redis.url());
    counted(&limiter, "k").await;
    for _ in 0..3 {
        redis.kill();
        uncounted(&limiter, "k", 5).await;
        redis.restart();
        counted(&limiter, "k").await;
    }
}

#[tokio::test]
async fn a_hit_is_one_command() {
    let redis = OwnRedis::start();
    let limiter = limiter_at(&redis.url());
    // The first one connects and loads the script, before or after it is asked for.
    limiter.hit("k", MINUTE).await.unwrap();
    redis.say("CONFIG RESETSTAT");
    for _ in 0..40 {
        limiter.hit("k", MINUTE).await.unwrap();
    }
    let connecting = ["client|setinfo", "hello"];
    let mut of_clients = redis.calls();
    of_clients.retain(|(name, _)| !connecting.contains(&name.as_str()));
    assert_eq!(of_clients, [("evalsha".to_owned(), 40)]);
}
