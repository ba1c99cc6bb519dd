//! A bounded cache whose entries expire. The caller passes the time.

use std::{
    hash::Hash,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use lru::LruCache;

/// A cache that keeps the most recently used entries until they expire.
#[derive(Debug)]
pub(super) struct TtlCache<K: Hash + Eq, V>(Mutex<LruCache<K, (V, Instant)>>);

impl<K: Hash + Eq, V: Clone> TtlCache<K, V> {
    /// A cache with at most `max` entries.
    pub(super) fn new(max: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::new(max)))
    }

    /// The value, unless it has expired.
    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.get(key) {
            Some((value, until)) if now < *until => Some(value.clone()),
            Some(_) => {
                entries.pop(key);
                None
            }
            None => None,
        }
    }

    /// Keeps a value until a time. If the cache is full, the entry that was not used for longest is
    /// dropped.
    pub(super) fn put(&self, key: K, value: V, until: Instant) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.put(key, (value, until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_expire_and_are_bounded() {
        let cache = TtlCache::new(NonZeroUsize::new(2).unwrap());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        cache.put("a", 1, at(10));
        assert_eq!(cache.get(&"a", at(9)), Some(1));
        assert_eq!(cache.get(&"a", at(10)), None);
        for (number, key) in ["a", "b", "c"].into_iter().enumerate() {
            cache.put(key, number, at(10));
        }
        assert_eq!((cache.get(&"a", start), cache.get(&"c", start)), (None, Some(2)));
    }
}
