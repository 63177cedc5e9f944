//! Rate limiter of a single server: one sliding-window log per key, in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{Limit, RateLimitDecision, RateLimiter, RateLimiterUnavailable};
use crate::shared::Clock;

/// Number of hits after which idle keys are removed, so that they do not accumulate.
const SWEEP_EVERY: u32 = 10_000;

/// Exact sliding-window rate limiter in memory.
pub struct InProcessRateLimiter {
    clock: Arc<dyn Clock>,
    logs: Mutex<Logs>,
}

#[derive(Default)]
struct Logs {
    by_key: HashMap<String, Log>,
    hits_since_sweep: u32,
}

/// Times of the counted hits in milliseconds, oldest first.
struct Log {
    times: VecDeque<i64>,
    window_ms: i64,
}

impl Log {
    fn evict_expired(&mut self, now_ms: i64) {
        while self
            .times
            .front()
            .is_some_and(|oldest| oldest + self.window_ms <= now_ms)
        {
            self.times.pop_front();
        }
    }
}

impl InProcessRateLimiter {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            logs: Mutex::default(),
        }
    }

    fn count(&self, key: &str, limit: Limit) -> RateLimitDecision {
        let now_ms = i64::try_from(self.clock.now().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let window_ms = i64::try_from(limit.window.whole_milliseconds()).unwrap_or(i64::MAX);
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.hits_since_sweep += 1;
        if logs.hits_since_sweep >= SWEEP_EVERY {
            logs.hits_since_sweep = 0;
            logs.by_key.values_mut().for_each(|log| log.evict_expired(now_ms));
            logs.by_key.retain(|_, log| !log.times.is_empty());
        }
        let log = logs.by_key.entry(key.to_owned()).or_insert_with(|| Log {
            times: VecDeque::new(),
            window_ms,
        });
        log.evict_expired(now_ms);
        let used = u32::try_from(log.times.len()).unwrap_or(u32::MAX);
        let allowed = used < limit.requests;
        if allowed {
            log.times.push_back(now_ms);
        }
        let reset_at_ms = log.times.front().map_or(now_ms, |oldest| oldest + window_ms);
        RateLimitDecision {
            allowed,
            remaining: limit.requests.saturating_sub(used).saturating_sub(u32::from(allowed)),
            reset_at_ms,
            wait_ms: reset_at_ms - now_ms,
        }
    }
}

#[async_trait]
impl RateLimiter for InProcessRateLimiter {
    async fn hit(&self, key: &str, limit: Limit) -> Result<RateLimitDecision, RateLimiterUnavailable> {
        Ok(self.count(key, limit))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use proptest::prelude::*;
    use time::{Duration, OffsetDateTime};

    use super::*;

    #[derive(Default)]
    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> OffsetDateTime {
            OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(self.0.load(Ordering::Relaxed))
        }
    }

    const LIMIT: Limit = Limit {
        requests: 30,
        window: Duration::minutes(1),
    };

    fn limiter() -> (Arc<ManualClock>, InProcessRateLimiter) {
        let clock = Arc::new(ManualClock::default());
        (clock.clone(), InProcessRateLimiter::new(clock))
    }

    #[test]
    fn rate_limit_window_slides_across_minutes() {
        let (clock, limiter) = limiter();
        let allowed_at = |ms| {
            clock.0.store(ms, Ordering::Relaxed);
            (0..30).filter(|_| limiter.count("k", LIMIT).allowed).count()
        };
        assert_eq!(
            [
                allowed_at(59_000),
                allowed_at(61_000),
                allowed_at(118_999),
                allowed_at(119_000)
            ],
            [30, 0, 0, 30]
        );
    }

    #[test]
    fn rate_limit_decision_reports_remaining_and_reset() {
        let (clock, limiter) = limiter();
        let first = limiter.count("k", LIMIT);
        assert_eq!((first.remaining, first.reset_at_ms), (29, 60_000));
        clock.0.store(10, Ordering::Relaxed);
        (0..29).for_each(|_| assert!(limiter.count("k", LIMIT).allowed));
        let refused = limiter.count("k", LIMIT);
        assert_eq!(
            refused,
            RateLimitDecision {
                allowed: false,
                remaining: 0,
                reset_at_ms: 60_000,
                wait_ms: 59_990,
            }
        );
        assert!(limiter.count("other", LIMIT).allowed);
    }

    #[test]
    fn rate_limiter_removes_idle_keys() {
        let (clock, limiter) = limiter();
        for key in 0..SWEEP_EVERY - 1 {
            limiter.count(&key.to_string(), LIMIT);
        }
        clock.0.store(60_000, Ordering::Relaxed);
        limiter.count("last", LIMIT);
        assert_eq!(limiter.logs.lock().unwrap().by_key.len(), 1);
    }

    /// A sweep visits every key, so it must not run for every hit.
    #[test]
    fn rate_limiter_sweeps_only_after_many_hits() {
        let (clock, limiter) = limiter();
        limiter.count("first", LIMIT);
        clock.0.store(60_000, Ordering::Relaxed);
        limiter.count("second", LIMIT);
        assert_eq!(limiter.logs.lock().unwrap().by_key.len(), 2);
    }

    proptest! {
        /// The limiter agrees with a model that stores every hit and counts those in the window each time.
        #[test]
        fn rate_limiter_matches_a_model_with_all_hits(
            requests in 0_u32..5,
            hits in prop::collection::vec((0_i64..700, 0_usize..3), 0..80),
        ) {
            let limit = Limit { requests, window: Duration::seconds(1) };
            let (clock, limiter) = limiter();
            let mut allowed_hits: [Vec<i64>; 3] = Default::default();
            let mut now = 0;
            for (pause, key) in hits {
                now += pause;
                clock.0.store(now, Ordering::Relaxed);
                let decision = limiter.count(["a", "b", "c"][key], limit);
                let window: Vec<i64> = allowed_hits[key].iter().copied().filter(|at| at + 1000 > now).collect();
                let used = u32::try_from(window.len()).unwrap();
                let allowed = used < requests;
                prop_assert_eq!(decision.allowed, allowed);
                prop_assert_eq!(decision.remaining, requests - used - u32::from(allowed));
                if allowed {
                    allowed_hits[key].push(now);
                    prop_assert_eq!(decision.reset_at_ms, window.first().unwrap_or(&now) + 1000);
                }
            }
        }
    }
}
