//! Throttles the warning that hits are not counted: one at once, then at most one per interval.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct LogThrottle {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_logged_at: Option<Instant>,
    missed: u64,
}

impl LogThrottle {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::default(),
        }
    }

    /// Counts one missed hit. If a warning is due, returns how many hits were missed since the last one.
    pub(crate) fn record_missed(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missed = state.missed.saturating_add(1);
        if state
            .last_logged_at
            .is_some_and(|logged| now.duration_since(logged) < self.interval)
        {
            return None;
        }
        state.last_logged_at = Some(now);
        Some(std::mem::take(&mut state.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_missed_hit_is_logged_at_once_later_ones_together() {
        let throttle = LogThrottle::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| throttle.record_missed(start + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(0), at(9), at(10), at(10)],
            [Some(1), None, None, Some(3), None]
        );
        assert_eq!(at(100), Some(2));
    }
}
