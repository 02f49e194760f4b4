//! A map that forgets what was not used for longest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// At most so many entries, and so many bytes as their owners state.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys by when they were last used.
    order: BTreeMap<u64, K>,
    clock: u64,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Lru<K, V> {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Lru<K, V> {
        Lru { entries: HashMap::new(), order: BTreeMap::new(), clock: 0, bytes: 0, entries_max, bytes_max }
    }

    /// The value, now the most recently used.
    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.order.insert(self.clock, key.clone());
        Some(entry.value.clone())
    }

    /// The value, without using it.
    pub(super) fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Adds or replaces a value. One that is larger than everything allowed is not kept.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        if bytes > self.bytes_max || self.entries_max == 0 {
            return;
        }
        self.clock += 1;
        self.bytes += bytes;
        self.order.insert(self.clock, key.clone());
        self.entries.insert(key, Entry { value, bytes, used: self.clock });
        while self.entries.len() > self.entries_max || self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lru: &Lru<u32, u32>) -> Vec<u32> {
        (0..10).filter(|key| lru.peek(key).is_some()).collect()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::new(3, 100);
        (0..3).for_each(|key| lru.insert(key, key, 1));
        assert_eq!(lru.get(&0), Some(0));
        lru.insert(3, 3, 1);
        assert_eq!(keys(&lru), [0, 2, 3]);
        lru.insert(4, 4, 99);
        assert_eq!(keys(&lru), [3, 4]);
    }

    #[test]
    fn a_replaced_value_is_counted_once_and_one_too_large_is_not_kept() {
        let mut lru = Lru::new(3, 10);
        (0..5).for_each(|value| lru.insert(1, value, 9));
        assert_eq!((lru.get(&1), lru.bytes), (Some(4), 9));
        lru.insert(1, 5, 11);
        assert_eq!((lru.get(&1), lru.bytes, lru.order.len()), (None, 0, 0));
    }

    #[test]
    fn a_map_of_nothing_keeps_nothing() {
        let mut lru = Lru::new(0, 10);
        lru.insert(1, 1, 1);
        assert_eq!(lru.get(&1), None);
    }
}
