//! Low-water mark of a relay: the `seq` below which the outbox holds no event of its kind, neither a visible one nor
//! one of a transaction that is still open.
//!
//! A transaction takes a `seq` before it commits, so a larger one may become visible first. A look remembers the
//! largest assigned `seq` and, after it, the transactions that run. When all of these have ended, every event up to
//! that `seq` is visible or rolled back. So the mark passes no late commit, whatever its duration up to
//! [`LONGEST_WRITER`].

use std::time::{Duration, Instant};

use crate::low_water::FullReads;

/// How long the mark waits for a transaction that may still append events. Events of longer transactions are found by
/// the next full read.
const LONGEST_WRITER: Duration = Duration::from_secs(10);

/// What a look at the outbox returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The smallest `seq` of a visible event, also of one that another relay has locked.
    pub(super) oldest: Option<i64>,
    /// The largest `seq` that was assigned, to any kind of event.
    pub(super) assigned: i64,
    /// The oldest transaction that runs, and the first one that has not begun.
    pub(super) running: i64,
    pub(super) next: i64,
}

/// When no transaction before `transaction` runs, every event up to `seq` is visible or rolled back.
#[derive(Debug)]
struct Horizon {
    seq: i64,
    transaction: i64,
    since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct RelayMark {
    full_reads: FullReads,
    /// The smallest `seq` that a look reads.
    low: i64,
    /// The largest `seq` that was assigned before the last look.
    assigned: i64,
    /// Every event up to this `seq` is visible or rolled back.
    decided: i64,
    horizon: Option<Horizon>,
}

impl RelayMark {
    /// Returns the `seq` from which a look reads, and whether that is a full read.
    pub(super) fn begin(&self, now: Instant) -> (i64, bool) {
        match self.full_reads.is_due(now) {
            true => (0, true),
            false => (self.low, false),
        }
    }

    /// Passes the horizon if the transactions before it have ended.
    fn decide(&mut self, look: Look, now: Instant) {
        let passed = self.horizon.take_if(|horizon| {
            look.running >= horizon.transaction || now.saturating_duration_since(horizon.since) >= LONGEST_WRITER
        });
        self.decided = passed.map_or(self.decided, |horizon| self.decided.max(horizon.seq));
    }

    pub(super) fn end(&mut self, look: Look, is_full: bool, began_at: Instant, now: Instant) {
        if is_full {
            self.full_reads.record(began_at, now);
        }
        self.decide(look, now);
        self.horizon.get_or_insert(Horizon {
            seq: self.assigned,
            transaction: look.next,
            since: now,
        });
        self.decide(look, now);
        self.assigned = look.assigned;
        let passed = self.decided.saturating_add(1);
        self.low = look.oldest.map_or(passed, |oldest| oldest.min(passed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(oldest: Option<i64>, assigned: i64, running: i64, next: i64) -> Look {
        Look {
            oldest,
            assigned,
            running,
            next,
        }
    }

    fn after(mark: &mut RelayMark, look: Look, now: Instant) -> i64 {
        mark.end(look, false, now, now);
        mark.low
    }

    #[test]
    fn mark_waits_for_open_transactions() {
        let (mut mark, now) = (RelayMark::default(), Instant::now());
        after(&mut mark, look(None, 10, 100, 100), now);
        // Transaction 98 began before the second look and may have taken a `seq` up to 10.
        assert_eq!(after(&mut mark, look(None, 20, 98, 105), now), 1);
        assert_eq!(after(&mut mark, look(None, 30, 98, 110), now), 1);
        assert_eq!(after(&mut mark, look(None, 30, 105, 110), now), 11);
        assert_eq!(after(&mut mark, look(None, 30, 110, 110), now), 31);
    }

    #[test]
    fn mark_stops_at_the_oldest_visible_event() {
        let (mut mark, now) = (RelayMark::default(), Instant::now());
        for assigned in [10, 10, 10] {
            after(&mut mark, look(Some(4), assigned, 100, 100), now);
        }
        assert_eq!(mark.low, 4);
        assert_eq!(after(&mut mark, look(None, 10, 100, 100), now), 11);
        // A full read finds an event that the mark had passed.
        assert_eq!(after(&mut mark, look(Some(2), 10, 100, 100), now), 2);
    }

    #[test]
    fn mark_passes_a_transaction_after_the_longest_wait() {
        let (mut mark, now) = (RelayMark::default(), Instant::now());
        after(&mut mark, look(None, 10, 50, 100), now);
        after(&mut mark, look(None, 10, 50, 100), now + LONGEST_WRITER);
        assert_eq!(mark.low, 1);
        let later = now + LONGEST_WRITER + LONGEST_WRITER;
        assert_eq!(after(&mut mark, look(None, 10, 50, 100), later), 11);
    }
}
