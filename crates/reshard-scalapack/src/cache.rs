//! What is kept of earlier calls, by what they mean. Programs make and destroy contexts all the time and reuse their numbers for
//! other shapes, so contexts are nowhere in the key.
//!
//! All processes of a group call the same, so all keep the same, as long as what is dropped depends on nothing but the calls.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, the least recently used one dropped first.
pub struct Cache<K, V> {
    entries: HashMap<K, Entry<V>>,
    max_entries: usize,
    max_bytes: u64,
    bytes: u64,
    /// Uses so far.
    uses: u64,
}

struct Entry<V> {
    value: V,
    bytes: u64,
    last_use: u64,
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    /// A cache of so many entries, and so many bytes of all of them together.
    pub fn new(max_entries: usize, max_bytes: u64) -> Self {
        Self { entries: HashMap::new(), max_entries, max_bytes, bytes: 0, uses: 0 }
    }

    /// True if a key is kept. Counts as no use.
    pub fn has(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of a key, if it is kept. Counts as no use: for what one process does alone.
    pub fn look(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The value of a key, if it is kept.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.last_use = self.uses;
        Some(&mut entry.value)
    }

    /// Drops what is too much beside an entry of so many bytes: to be called before it is made.
    pub fn make_room(&mut self, bytes: u64) {
        while !self.entries.is_empty()
            && (self.entries.len() >= self.max_entries || self.bytes.saturating_add(bytes) > self.max_bytes)
        {
            let oldest =
                self.entries.iter().min_by_key(|(_, entry)| entry.last_use).map(|(key, _)| key.clone());
            if let Some(key) = oldest {
                self.remove(&key);
            }
        }
    }

    /// Keeps a value that takes so many bytes, as all processes count them.
    pub fn insert(&mut self, key: K, value: V, bytes: u64) {
        // No two uses have one number, so it is the same entry on all processes that is dropped first.
        self.uses += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries.insert(key, Entry { value, bytes, last_use: self.uses });
    }

    /// Drops the value of a key.
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache: Cache<u32, u32> = Cache::new(3, 1000);
        for key in 0..3 {
            cache.make_room(10);
            cache.insert(key, key * 10, 10);
        }
        assert_eq!(cache.get(&0).copied(), Some(0));
        assert_eq!((cache.look(&1).copied(), cache.has(&1)), (Some(10), true));
        cache.make_room(10);
        cache.insert(3, 30, 10);
        assert_eq!([0, 1, 2, 3].map(|key| cache.get(&key).is_some()), [true, false, true, true]);
    }

    #[test]
    fn bytes_are_bounded_and_one_entry_may_have_more() {
        let mut cache: Cache<u32, u32> = Cache::new(4, 100);
        for key in 0..10 {
            cache.make_room(50);
            cache.insert(key, key, 50);
        }
        assert_eq!((cache.entries.len(), cache.bytes), (2, 100));
        cache.make_room(u64::MAX);
        assert!(cache.entries.is_empty() && cache.bytes == 0);
    }
}
