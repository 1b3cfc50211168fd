//! How many bytes are stored, in all and per salt: exact, whatever is overwritten or deleted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::index::{Index, SaltId};

/// How full the cache is.
///
/// Counts what this adapter knows to be stored: what it stored itself and what it found when it
/// listed the pool, corrected by what it found when it looked.
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

#[derive(Debug, Default, Clone, Copy)]
struct SaltSum {
    bytes: u64,
    keys: usize,
}

/// The sums of the sizes of all tracked keys.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    total: u64,
    keys: usize,
    by_salt: Vec<SaltSum>,
}

impl Ledger {
    /// A key of a salt had the size `old` and has the size `new`; `None` is not tracked.
    pub(super) fn change(&mut self, salt: SaltId, old: Option<u64>, new: Option<u64>) {
        let at = salt.0 as usize;
        if self.by_salt.len() <= at {
            self.by_salt.resize(at + 1, SaltSum::default());
        }
        let Some(sum) = self.by_salt.get_mut(at) else {
            return;
        };
        if let Some(old) = old {
            self.total = self.total.saturating_sub(old);
            self.keys = self.keys.saturating_sub(1);
            sum.bytes = sum.bytes.saturating_sub(old);
            sum.keys = sum.keys.saturating_sub(1);
        }
        if let Some(new) = new {
            self.total = self.total.saturating_add(new);
            self.keys += 1;
            sum.bytes = sum.bytes.saturating_add(new);
            sum.keys += 1;
        }
    }

    /// Tracked keys.
    pub(super) fn len(&self) -> usize {
        self.keys
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn of_salt(&self, salt: SaltId) -> u64 {
        self.by_salt.get(salt.0 as usize).map_or(0, |sum| sum.bytes)
    }

    /// Salts that have bytes.
    pub(super) fn salts(&self) -> impl Iterator<Item = (SaltId, u64)> {
        (0..)
            .zip(&self.by_salt)
            .filter(|(_, sum)| sum.bytes > 0)
            .map(|(at, sum)| (SaltId(at), sum.bytes))
    }

    pub(super) fn usage(&self, index: &Index, capacity: u64) -> Usage {
        let named = |(salt, bytes)| Some((index.salt(salt)?.as_ref().to_owned(), bytes));
        Usage {
            total_bytes_used: self.total,
            total_capacity_bytes: capacity,
            bytes_by_cache_salt: self.salts().filter_map(named).collect(),
            usage_fraction: fraction(self.total, capacity),
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
