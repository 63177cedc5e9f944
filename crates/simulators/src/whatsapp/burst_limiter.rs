//! The rate limiter for WhatsApp's two limits on sends: messages per second and phone number, messages per recipient.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Number of keys from which on those that no longer delay anything are removed.
const MAX_KEYS: usize = 100_000;

/// GCRA rate limiter: stores the theoretical arrival time per key. Allows one message per interval, and bursts.
#[derive(Debug, Default)]
pub(super) struct BurstLimiter(HashMap<String, Instant>);

impl BurstLimiter {
    /// Whether another message may pass now. If so, it is counted.
    pub(super) fn admit(&mut self, key: &str, interval: Duration, burst: u32, now: Instant) -> bool {
        let next = self.0.get(key).copied().unwrap_or(now).max(now);
        if next.duration_since(now) > interval * burst.saturating_sub(1) {
            return false;
        }
        if self.0.len() >= MAX_KEYS {
            // A key whose time has passed is like one that was never counted.
            self.0.retain(|_, next| *next > now);
        }
        self.0.insert(key.to_owned(), next + interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiter_admits_a_burst_then_one_per_interval() {
        let (mut limiter, start, second) = (BurstLimiter::default(), Instant::now(), Duration::from_secs(1));
        let admitted = (0..10).filter(|_| limiter.admit("a", second, 3, start)).count();
        assert_eq!(admitted, 3);
        assert!(limiter.admit("b", second, 3, start), "another key has its own limit");
        assert!(limiter.admit("a", second, 3, start + second));
        assert!(!limiter.admit("a", second, 3, start + second));
    }
}
