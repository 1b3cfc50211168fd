//! How many bytes are stored, in all and per salt: exact, whatever is overwritten or deleted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::key::ObjectKey;

/// How full the cache is.
///
/// Counts what this adapter knows to be stored: what it stored itself, corrected by what it found
/// when it looked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes stored.
    pub total_bytes_used: u64,
    /// Capacity in bytes; 0 is no limit.
    pub total_capacity_bytes: u64,
    /// Bytes per salt (the empty one included), only those with any.
    pub bytes_by_cache_salt: BTreeMap<String, u64>,
    /// Used bytes as a share of the capacity; -1 without one. May exceed 1 until eviction is done.
    pub usage_fraction: f64,
}

#[derive(Debug, Default)]
struct SaltBytes {
    bytes: u64,
    keys: usize,
}

/// The size of every tracked key, and their sums.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sizes: HashMap<ObjectKey, u64>,
    total: u64,
    by_salt: HashMap<Arc<str>, SaltBytes>,
}

impl Ledger {
    /// Records a key's size and returns the one it had.
    pub(super) fn set(&mut self, key: &ObjectKey, size: u64) -> Option<u64> {
        let old = self.sizes.insert(key.clone(), size);
        if let Some(old) = old {
            self.subtract(key, old);
        }
        self.total = self.total.saturating_add(size);
        let salt = self.by_salt.entry(Arc::clone(key.salt())).or_default();
        salt.bytes = salt.bytes.saturating_add(size);
        salt.keys += 1;
        old
    }

    /// Forgets a key and returns the size it had.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<u64> {
        let old = self.sizes.remove(key)?;
        self.subtract(key, old);
        Some(old)
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.sizes.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn usage(&self, capacity: u64) -> Usage {
        let positive = self.by_salt.iter().filter(|(_, salt)| salt.bytes > 0);
        Usage {
            total_bytes_used: self.total,
            total_capacity_bytes: capacity,
            bytes_by_cache_salt: positive
                .map(|(salt, sum)| (salt.as_ref().to_owned(), sum.bytes))
                .collect(),
            usage_fraction: fraction(self.total, capacity),
        }
    }

    fn subtract(&mut self, key: &ObjectKey, size: u64) {
        self.total = self.total.saturating_sub(size);
        if let Some(salt) = self.by_salt.get_mut(key.salt()) {
            salt.bytes = salt.bytes.saturating_sub(size);
            salt.keys = salt.keys.saturating_sub(1);
            if salt.keys == 0 {
                self.by_salt.remove(key.salt());
            }
        }
    }
}

/// Used bytes as a share of the capacity; -1 without one.
pub(super) fn fraction(used: u64, capacity: u64) -> f64 {
    if capacity == 0 {
        -1.0
    } else {
        used as f64 / capacity as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(n: u8, salt: &str) -> ObjectKey {
        ObjectKey::new("m", 0, [n])
            .unwrap()
            .with_cache_salt(salt)
            .unwrap()
    }

    #[test]
    fn an_overwrite_replaces_the_old_size() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.set(&key(1, "a"), 3), None);
        ledger.set(&key(2, "b"), 5);
        assert_eq!(ledger.set(&key(1, "a"), 100), Some(3));
        let usage = ledger.usage(210);
        assert_eq!(usage.total_bytes_used, 105);
        assert_eq!(usage.usage_fraction, 0.5);
        assert_eq!(
            usage.bytes_by_cache_salt,
            BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 5)])
        );
        assert_eq!(ledger.remove(&key(1, "a")), Some(100));
        assert_eq!(ledger.remove(&key(1, "a")), None);
        let usage = ledger.usage(0);
        assert_eq!((usage.total_bytes_used, usage.usage_fraction), (5, -1.0));
        assert_eq!(
            usage.bytes_by_cache_salt,
            BTreeMap::from([("b".to_owned(), 5)])
        );
    }

    #[test]
    fn empty_objects_are_tracked_and_not_reported() {
        let mut ledger = Ledger::default();
        ledger.set(&key(1, "a"), 0);
        assert_eq!(ledger.len(), 1);
        assert!(ledger.usage(0).bytes_by_cache_salt.is_empty());
        assert_eq!(ledger.remove(&key(1, "a")), Some(0));
        assert!(ledger.by_salt.is_empty());
    }

    proptest! {
        #[test]
        fn sums_equal_what_is_recorded(
            steps in prop::collection::vec((0u8..8, 0usize..3, prop::option::of(0u64..1000)), 0..200)
        ) {
            let salts = ["", "a", "b"];
            let mut ledger = Ledger::default();
            let mut model = BTreeMap::new();
            for (n, salt, size) in steps {
                let key = key(n, salts[salt]);
                let old = match size {
                    Some(size) => (ledger.set(&key, size), model.insert(key, size)),
                    None => (ledger.remove(&key), model.remove(&key)),
                };
                prop_assert_eq!(old.0, old.1);
                let mut by_salt = BTreeMap::new();
                for (key, size) in model.iter().filter(|(_, size)| **size > 0) {
                    *by_salt.entry(key.cache_salt().to_owned()).or_insert(0) += size;
                }
                let usage = ledger.usage(0);
                prop_assert_eq!(usage.total_bytes_used, model.values().sum::<u64>());
                prop_assert_eq!(usage.bytes_by_cache_salt, by_salt);
                prop_assert_eq!(ledger.len(), model.len());
            }
        }
    }
}
