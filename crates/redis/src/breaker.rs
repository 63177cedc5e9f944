//! Keeps a dead Redis from costing every request its time-out.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After a failure refuses for a while, then lets one caller a while try.
#[derive(Debug)]
pub(crate) struct Breaker {
    pause: Duration,
    /// When the next caller may try; none while all is well.
    open_until: Mutex<Option<Instant>>,
}

impl Breaker {
    /// Closed: lets everybody pass.
    pub(crate) fn new(pause: Duration) -> Self {
        Self {
            pause,
            open_until: Mutex::new(None),
        }
    }

    /// Whether the caller may try. After a pause one may; the others wait for another pause or its success, so that a
    /// prober that vanishes leaves nothing behind.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let mut open_until = self.state();
        match *open_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                *open_until = Some(now + self.pause);
                true
            }
        }
    }

    /// A call worked.
    pub(crate) fn succeeded(&self) {
        *self.state() = None;
    }

    /// A call failed.
    pub(crate) fn failed(&self, now: Instant) {
        *self.state() = Some(now + self.pause);
    }

    fn state(&self) -> MutexGuard<'_, Option<Instant>> {
        self.open_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_probes_after_each_pause() {
        let breaker = Breaker::new(Duration::from_secs(1));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert!(breaker.admits(at(0)) && breaker.admits(at(0)));
        breaker.failed(at(0));
        assert!(!breaker.admits(at(999)));
        assert!(breaker.admits(at(1000)), "the prober");
        assert!(!breaker.admits(at(1000)) && !breaker.admits(at(1999)), "the others");
        assert!(
            breaker.admits(at(2000)),
            "the next prober, where the first one vanished"
        );
        breaker.succeeded();
        assert!(breaker.admits(at(2001)) && breaker.admits(at(2001)));
    }
}
