//! A map with a maximum number of keys, so that a long development session does not fill the memory.

use std::collections::{HashMap, VecDeque};

/// A map of at most `CAPACITY` keys in the order of their insertion. A new key then replaces the oldest.
#[derive(Debug)]
pub(super) struct BoundedMap<V, const CAPACITY: usize> {
    order: VecDeque<String>,
    values: HashMap<String, V>,
}

impl<V, const CAPACITY: usize> Default for BoundedMap<V, CAPACITY> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            values: HashMap::new(),
        }
    }
}

impl<V: Default, const CAPACITY: usize> BoundedMap<V, CAPACITY> {
    /// Returns the value of a key, or inserts the default.
    pub(super) fn entry(&mut self, key: &str) -> &mut V {
        if !self.values.contains_key(key) {
            while self.order.len() >= CAPACITY
                && let Some(oldest) = self.order.pop_front()
            {
                self.values.remove(&oldest);
            }
            self.order.push_back(key.to_owned());
        }
        self.values.entry(key.to_owned()).or_default()
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.values.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.values.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<V> {
        self.order.retain(|present| present != key);
        self.values.remove(key)
    }

    /// The keys, oldest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_map_replaces_its_oldest_key() {
        let mut map = BoundedMap::<u32, 2>::default();
        for key in ["a", "b", "a", "c"] {
            *map.entry(key) += 1;
        }
        assert_eq!(map.keys().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!((map.get("a"), map.get("b"), map.get("c")), (None, Some(&1), Some(&1)));
        assert_eq!(map.remove("b"), Some(1));
        assert_eq!(*map.entry("a"), 0, "a removed key makes room");
        assert_eq!(map.keys().collect::<Vec<_>>(), ["c", "a"]);
    }
}
