//! Says that hits are not counted: at once, then once an interval, however many they are.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many hits were missed, and when that was last told.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    missed: u64,
}

impl LogThrottle {
    /// Silent so far.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::default(),
        }
    }

    /// One more hit was missed. Some when that is to be told: how many were since it was told last.
    pub(crate) fn missed(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missed = state.missed.saturating_add(1);
        if state.told.is_some_and(|told| now.duration_since(told) < self.interval) {
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let throttle = LogThrottle::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| throttle.missed(start + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(0), at(9), at(10), at(10)],
            [Some(1), None, None, Some(3), None]
        );
        assert_eq!(at(100), Some(2));
    }
}
