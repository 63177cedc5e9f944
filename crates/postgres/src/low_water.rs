//! Low-water marks of queues. A worker reads its queue from the position up to which it has found nothing more, so it
//! passes no entries of finished rows: while an old snapshot is held, PostgreSQL cannot remove them from an index.
//!
//! A mark may pass a row that commits late, or that another worker returns by an aborted claim. A *full read* from the
//! beginning finds these rows. Full reads are as frequent as their duration permits, and [`FULL_READ_INTERVAL`] apart
//! at most. So without old row versions a worker reads in full most of the time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use time::OffsetDateTime;
use uuid::Uuid;

/// The longest time between two full reads: the longest additional delay of a row that a mark has passed.
pub(crate) const FULL_READ_INTERVAL: Duration = Duration::from_secs(60);

/// A full read is followed by at least this multiple of its duration without another one.
const FULL_READ_SPACING: u32 = 1000;

/// How long before a read a row may have become due without being visible to it: the usual duration of a transaction
/// that inserts rows. Rows of longer transactions are found by the next full read.
const LATE_COMMIT: Duration = Duration::from_secs(1);

/// Claims that follow one another at once look for new queues no more often than this.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);

/// The order of a queue: the time from which a row is due, then its id.
pub(crate) type Position = (OffsetDateTime, Uuid);

/// Before every row.
pub(crate) const BEGINNING: Position = (OffsetDateTime::UNIX_EPOCH, Uuid::nil());

/// Locks the mark of a store. No holder panics while it changes a mark, so a poisoned one is still valid.
pub(crate) fn lock<T>(mark: &Mutex<T>) -> MutexGuard<'_, T> {
    mark.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the next full read is due.
#[derive(Debug, Default)]
pub(crate) struct FullReads {
    /// The end and the duration of the last one.
    last: Option<(Instant, Duration)>,
}

impl FullReads {
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|(ended_at, took)| {
            let pause = took.saturating_mul(FULL_READ_SPACING).min(FULL_READ_INTERVAL);
            now.saturating_duration_since(ended_at) >= pause
        })
    }

    pub(crate) fn record(&mut self, began_at: Instant, ended_at: Instant) {
        self.last = Some((ended_at, ended_at.saturating_duration_since(began_at)));
    }
}

/// The mark of a queue that is claimed in one order.
#[derive(Debug)]
pub(crate) struct Mark {
    full_reads: FullReads,
    after: Position,
}

/// A read of a queue that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    began_at: Instant,
    is_full: bool,
}

impl Read {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self {
            full_reads: FullReads::default(),
            after: BEGINNING,
        }
    }
}

impl Mark {
    /// Begins a read, and returns the position after which it reads.
    pub(crate) fn begin(&self) -> (Read, Position) {
        let began_at = Instant::now();
        let is_full = self.full_reads.is_due(began_at);
        let read = Read { began_at, is_full };
        (read, if is_full { BEGINNING } else { self.after })
    }

    /// Ends a read that claimed the row at `claimed`, or found none that was due at `read_at`. After a full read the
    /// mark may be lower than before: a row that it had passed may have neighbours.
    pub(crate) fn end(&mut self, read: Read, read_at: OffsetDateTime, claimed: Option<Position>) {
        self.after = claimed.unwrap_or((read_at, Uuid::nil()));
        if read.is_full {
            self.full_reads.record(read.began_at, Instant::now());
        }
    }
}

/// Queues, by account or endpoint, that have due rows, each with its mark. New ones are discovered by the time from
/// which rows are due.
#[derive(Debug)]
pub(crate) struct ReadyQueues<K> {
    full_reads: FullReads,
    /// The queues of all rows that were due before this time are known, apart from rows that committed late.
    discovered_until: OffsetDateTime,
    discovered_at: Option<Instant>,
    queues: BTreeMap<K, Position>,
}

impl<K: Ord + Copy> Default for ReadyQueues<K> {
    fn default() -> Self {
        Self {
            full_reads: FullReads::default(),
            discovered_until: BEGINNING.0,
            discovered_at: None,
            queues: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Copy> ReadyQueues<K> {
    /// Whether a claim must look for new queues first. While it can claim from known ones, that can wait a little.
    pub(crate) fn must_discover(&self) -> bool {
        let is_recent = self.discovered_at.is_some_and(|at| at.elapsed() < DISCOVERY_INTERVAL);
        self.is_empty() || !is_recent
    }

    /// Begins a discovery, and returns the time since which it reads due rows.
    pub(crate) fn begin(&self) -> (Read, OffsetDateTime) {
        let began_at = Instant::now();
        let is_full = self.full_reads.is_due(began_at);
        let read = Read { began_at, is_full };
        (read, if is_full { BEGINNING.0 } else { self.discovered_until })
    }

    /// Ends a discovery at `read_at` by the database's clock, which found queues with the time of their oldest row.
    pub(crate) fn end(
        &mut self,
        read: Read,
        read_at: OffsetDateTime,
        found: impl IntoIterator<Item = (K, OffsetDateTime)>,
    ) {
        self.discovered_until = read_at - LATE_COMMIT;
        self.discovered_at = Some(Instant::now());
        if read.is_full {
            self.queues.clear();
            self.full_reads.record(read.began_at, Instant::now());
        }
        for (key, oldest) in found {
            let position = (oldest, Uuid::nil());
            match self.queues.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(position)),
                Entry::Occupied(mut entry) => *entry.get_mut() = position.min(*entry.get()),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, Position)> + '_ {
        self.queues.iter().map(|(key, position)| (*key, *position))
    }

    /// The first queue behind `previous`, from the beginning after the last one, with its mark.
    pub(crate) fn next_after(&self, previous: Option<K>) -> Option<(K, Position)> {
        let behind = previous.and_then(|key| self.queues.range((Bound::Excluded(key), Bound::Unbounded)).next());
        let next = behind.or_else(|| self.queues.first_key_value());
        next.map(|(key, position)| (*key, *position))
    }

    /// Everything of a queue up to this position is claimed.
    pub(crate) fn advance(&mut self, key: K, position: Position) {
        if let Some(mark) = self.queues.get_mut(&key) {
            *mark = position;
        }
    }

    /// A queue has no due row.
    pub(crate) fn remove(&mut self, key: K) {
        self.queues.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(1000 + second)
    }

    #[test]
    fn discovery_can_wait_while_queues_are_known() {
        let mut queues = ReadyQueues::default();
        assert!(queues.must_discover());
        let (read, _) = queues.begin();
        queues.end(read, at(1), [(7, at(0))]);
        assert!(!queues.must_discover());
        queues.remove(7);
        assert!(queues.must_discover());
    }

    #[test]
    fn full_reads_are_spaced_by_their_duration_up_to_a_minute() {
        let (mut full_reads, began_at) = (FullReads::default(), Instant::now());
        assert!(full_reads.is_due(began_at));
        for (took, pause) in [(0, 0), (2, 2_000), (20, 20_000), (61, 60_000), (900, 60_000)] {
            let ended_at = began_at + Duration::from_millis(took);
            full_reads.record(began_at, ended_at);
            assert!(full_reads.is_due(ended_at + Duration::from_millis(pause)), "{took}");
            let early = Duration::from_millis(pause).checked_sub(Duration::from_millis(1));
            assert!(early.is_none_or(|early| !full_reads.is_due(ended_at + early)), "{took}");
        }
    }

    #[test]
    fn mark_follows_claims_and_returns_to_rows_of_a_full_read() {
        let (mut mark, id) = (Mark::default(), Uuid::max());
        let read = |is_full| Read {
            began_at: Instant::now(),
            is_full,
        };
        mark.end(read(false), at(9), Some((at(5), id)));
        assert_eq!(mark.after, (at(5), id));
        mark.end(read(false), at(9), None);
        assert_eq!(mark.after, (at(9), Uuid::nil()));
        mark.end(read(true), at(10), Some((at(1), id)));
        assert_eq!(mark.after, (at(1), id));
    }

    #[test]
    fn discovered_queue_keeps_the_lower_of_its_marks() {
        let mut ready = ReadyQueues::<u8>::default();
        let read = |is_full| Read {
            began_at: Instant::now(),
            is_full,
        };
        ready.end(read(true), at(20), [(1, at(3)), (2, at(4))]);
        assert_eq!(ready.discovered_until, at(19));
        ready.advance(1, (at(10), Uuid::max()));
        ready.end(read(false), at(21), [(1, at(12)), (3, at(5))]);
        assert_eq!(ready.next_after(None), Some((1, (at(10), Uuid::max()))));
        // A row that committed late is behind the queue's mark.
        ready.end(read(false), at(21), [(1, at(9))]);
        assert_eq!(ready.next_after(Some(3)), Some((1, (at(9), Uuid::nil()))));
        assert_eq!(ready.next_after(Some(1)).map(|(key, _)| key), Some(2));
        ready.remove(2);
        assert_eq!(ready.next_after(Some(1)).map(|(key, _)| key), Some(3));
        ready.end(read(true), at(30), [(3, at(29))]);
        assert_eq!(ready.iter().collect::<Vec<_>>(), [(3, (at(29), Uuid::nil()))]);
    }
}
