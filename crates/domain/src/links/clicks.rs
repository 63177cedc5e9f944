//! Pending clicks: counted in memory by the redirect, written to the database in batches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use uuid::Uuid;

use super::LinkTarget;
use crate::ingestion::Granularity;
use crate::shared::{AccountId, LinkId};

/// The most counts (link and quarter of an hour) in memory. Clicks of further keys are dropped.
const MAX_COUNTS: usize = 100_000;

/// The most counts in one batch.
pub(super) const MAX_BATCH: usize = 1000;

/// The key of a count in memory: a link and a quarter of an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClickKey {
    pub account_id: AccountId,
    pub link_id: LinkId,
    pub quarter: OffsetDateTime,
}

/// Clicks that one transaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickBatch {
    /// The id of the process that counted them.
    pub writer: Uuid,
    /// Idempotency key, together with the writer. It increases with every batch.
    pub number: i64,
    /// Sorted by key.
    pub clicks: Vec<(ClickKey, i64)>,
}

/// The unwritten clicks of one process. At most one batch is in flight. It keeps its number until the store confirms
/// it, so that a retry after an unknown outcome does not count twice.
pub struct PendingClicks {
    writer: Uuid,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counts: HashMap<ClickKey, i64>,
    submitted: Option<Arc<ClickBatch>>,
    last_number: i64,
    dropped: u64,
}

impl State {
    fn add(&mut self, key: ClickKey, clicks: i64) {
        if self.counts.len() >= MAX_COUNTS && !self.counts.contains_key(&key) {
            self.dropped = self.dropped.saturating_add(clicks.unsigned_abs());
            return;
        }
        let count = self.counts.entry(key).or_default();
        *count = count.saturating_add(clicks);
    }
}

impl PendingClicks {
    /// `writer` is the id of this process. It MUST be unique among all processes, past ones included.
    pub fn new(writer: Uuid) -> Self {
        let state = Mutex::default();
        Self { writer, state }
    }

    /// Counts one click at `now`.
    pub fn add(&self, target: &LinkTarget, now: OffsetDateTime) {
        let key = ClickKey {
            account_id: target.account_id,
            link_id: target.link_id,
            quarter: Granularity::Quarter.begin(now),
        };
        self.state().add(key, 1);
    }

    /// Whether all clicks are written.
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.counts.is_empty() && state.submitted.is_none()
    }

    /// How many clicks were dropped since the previous call.
    pub fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.state().dropped)
    }

    /// The batch in flight, or a new one. None if all clicks are written.
    pub(super) fn next_batch(&self) -> Option<Arc<ClickBatch>> {
        let mut state = self.state();
        if state.submitted.is_none() && !state.counts.is_empty() {
            let mut keys: Vec<ClickKey> = state.counts.keys().copied().take(MAX_BATCH).collect();
            keys.sort_unstable();
            let clicks = keys
                .into_iter()
                .filter_map(|key| state.counts.remove_entry(&key))
                .collect();
            state.last_number = state.last_number.saturating_add(1);
            state.submitted = Some(Arc::new(ClickBatch {
                writer: self.writer,
                number: state.last_number,
                clicks,
            }));
        }
        state.submitted.clone()
    }

    /// Removes the batch in flight. The clicks of the `deferred` links were not applied and are counted again for a
    /// later batch.
    pub(super) fn complete(&self, batch: &ClickBatch, deferred: &[LinkId]) {
        let mut state = self.state();
        state.submitted = None;
        let deferred_clicks = batch.clicks.iter().filter(|(key, _)| deferred.contains(&key.link_id));
        deferred_clicks.for_each(|&(key, clicks)| state.add(key, clicks));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:07 UTC);

    fn target(link: u128) -> LinkTarget {
        LinkTarget {
            account_id: AccountId(Uuid::from_u128(9)),
            link_id: LinkId(Uuid::from_u128(link)),
            original_url: "https://loja.example/".into(),
        }
    }

    fn counts(batch: &ClickBatch) -> Vec<(u128, OffsetDateTime, i64)> {
        let count = |(key, clicks): &(ClickKey, i64)| (key.link_id.0.as_u128(), key.quarter, *clicks);
        batch.clicks.iter().map(count).collect()
    }

    #[test]
    fn clicks_of_a_quarter_hour_are_one_count() {
        let pending = PendingClicks::new(Uuid::nil());
        assert!(pending.next_batch().is_none() && pending.is_empty());
        for (link, minutes) in [(2, 0), (1, 0), (2, 7), (2, 8)] {
            pending.add(&target(link), NOW + Duration::minutes(minutes));
        }
        let batch = pending.next_batch().unwrap();
        let (first, second) = (datetime!(2026-03-01 12:00 UTC), datetime!(2026-03-01 12:15 UTC));
        assert_eq!(counts(&batch), [(1, first, 1), (2, first, 2), (2, second, 1)]);
        assert!(!pending.is_empty(), "the batch is in flight");
        pending.complete(&batch, &[]);
        assert!(pending.is_empty());
    }

    #[test]
    fn click_batch_keeps_its_number_until_applied() {
        let pending = PendingClicks::new(Uuid::nil());
        pending.add(&target(1), NOW);
        let batch = pending.next_batch().unwrap();
        pending.add(&target(1), NOW);
        assert_eq!(
            pending.next_batch().unwrap(),
            batch,
            "the batch in flight does not change"
        );
        pending.complete(&batch, &[]);
        let next = pending.next_batch().unwrap();
        assert_eq!((batch.number, next.number), (1, 2));
        assert_eq!(counts(&next).len(), 1);
    }

    #[test]
    fn deferred_clicks_are_in_a_later_batch() {
        let pending = PendingClicks::new(Uuid::nil());
        (1..=2).for_each(|link| pending.add(&target(link), NOW));
        let batch = pending.next_batch().unwrap();
        pending.add(&target(2), NOW);
        pending.complete(&batch, &[target(2).link_id]);
        let next = pending.next_batch().unwrap();
        assert_eq!(counts(&next), [(2, datetime!(2026-03-01 12:00 UTC), 2)]);
    }

    #[test]
    fn pending_clicks_and_batches_are_bounded() {
        let pending = PendingClicks::new(Uuid::nil());
        for link in 0..MAX_COUNTS + 3 {
            pending.add(&target(u128::try_from(link).unwrap()), NOW);
        }
        pending.add(&target(0), NOW);
        assert_eq!((pending.take_dropped(), pending.take_dropped()), (3, 0));
        let batch = pending.next_batch().unwrap();
        assert_eq!(batch.clicks.len(), MAX_BATCH);
        assert!(batch.clicks.is_sorted());
    }
}
