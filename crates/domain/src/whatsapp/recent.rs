//! Limits how often the same thing is noted, so that frequent events cost no write each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use time::{Duration, OffsetDateTime};

/// The shortest time between two notes of one key.
const INTERVAL: Duration = Duration::seconds(10);

/// The maximum number of keys in memory.
const MAX_KEYS: usize = 10_000;

/// The keys that were noted within the last ten seconds.
#[derive(Debug)]
pub(crate) struct Recent<K>(Mutex<HashMap<K, OffsetDateTime>>);

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Recent<K> {
    /// Whether the key must be noted now. If so, it counts as noted.
    pub(crate) fn is_due(&self, key: K, now: OffsetDateTime) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock may have been set back.
        let is_recent = |at: &OffsetDateTime| (now - *at).abs() < INTERVAL;
        if noted.get(&key).is_some_and(is_recent) {
            return false;
        }
        if noted.len() >= MAX_KEYS {
            noted.retain(|_, at| is_recent(at));
        }
        if noted.len() >= MAX_KEYS {
            noted.clear();
        }
        noted.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    #[test]
    fn key_is_noted_at_most_every_ten_seconds() {
        let recent = Recent::default();
        let due = |key, seconds| recent.is_due(key, NOW + Duration::seconds(seconds));
        let noted = [
            due("a", 0),
            due("a", 9),
            due("b", 9),
            due("a", 10),
            due("a", 11),
            due("a", -60),
        ];
        assert_eq!(noted, [true, false, true, true, false, true]);
    }

    #[test]
    fn number_of_keys_is_bounded() {
        let recent = Recent::default();
        for key in 0..=MAX_KEYS {
            assert!(recent.is_due(key, NOW));
        }
        assert_eq!(recent.0.lock().unwrap().len(), 1);
    }
}
