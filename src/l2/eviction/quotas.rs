//! How much each salt may hold, and which salts hold too much.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::l2::config::UnregisteredSalts;
use crate::l2::index::SaltId;

/// The quotas of [`IsolatedLru`](super::IsolatedLru).
///
/// A salt is over its quota when its bytes reach the watermark's share of it. Which salts are is
/// kept up to date with every change, so that nobody has to look through all of them.
#[derive(Debug)]
pub(in crate::l2) struct Quotas {
    limits: HashMap<Arc<str>, u64>,
    unregistered: UnregisteredSalts,
    watermark: f64,
    over: BTreeSet<SaltId>,
}

impl Quotas {
    pub(in crate::l2) fn new(
        limits: &BTreeMap<String, u64>,
        unregistered: UnregisteredSalts,
        watermark: f64,
    ) -> Self {
        Self {
            limits: limits
                .iter()
                .map(|(salt, bytes)| (Arc::from(salt.as_str()), *bytes))
                .collect(),
            unregistered,
            watermark,
            over: BTreeSet::new(),
        }
    }

    /// The quota of a salt in bytes; `None` if it has no limit of its own.
    pub(in crate::l2) fn limit(&self, salt: &str) -> Option<u64> {
        let limit = self.limits.get(salt).copied();
        limit.or(match self.unregistered {
            UnregisteredSalts::Evict => Some(0),
            UnregisteredSalts::Keep => None,
        })
    }

    /// Registers a salt, or makes it unregistered. Its bytes must be [noted](Self::note) after.
    pub(in crate::l2) fn set(&mut self, salt: &str, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.limits.insert(Arc::from(salt), bytes),
            None => self.limits.remove(salt),
        };
    }

    /// A salt holds so many bytes now.
    pub(in crate::l2) fn note(&mut self, id: SaltId, salt: &str, bytes: u64) {
        let is_over = bytes > 0
            && self
                .limit(salt)
                .is_some_and(|limit| bytes as f64 >= self.watermark * limit as f64);
        if is_over {
            self.over.insert(id);
        } else {
            self.over.remove(&id);
        }
    }

    /// Salts over their quota.
    pub(in crate::l2) fn over(&self) -> &BTreeSet<SaltId> {
        &self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SaltId = SaltId(0);

    fn is_over(quotas: &mut Quotas, salt: &str, bytes: u64) -> bool {
        quotas.note(A, salt, bytes);
        quotas.over().contains(&A)
    }

    #[test]
    fn reaching_the_watermark_is_enough() {
        let limits = BTreeMap::from([("a".to_owned(), 100), ("zero".to_owned(), 0)]);
        let mut quotas = Quotas::new(&limits, UnregisteredSalts::Keep, 0.8);
        assert!(!is_over(&mut quotas, "a", 79));
        assert!(is_over(&mut quotas, "a", 80));
        assert!(!is_over(&mut quotas, "a", 0));
        assert!(is_over(&mut quotas, "zero", 1));
        quotas.set("a", Some(1000));
        assert!(!is_over(&mut quotas, "a", 80));
    }

    #[test]
    fn salts_without_a_quota_are_kept_or_have_none() {
        let mut keep = Quotas::new(&BTreeMap::new(), UnregisteredSalts::Keep, 0.8);
        assert!(!is_over(&mut keep, "", u64::MAX));
        let mut evict = Quotas::new(&BTreeMap::new(), UnregisteredSalts::Evict, 0.8);
        assert!(is_over(&mut evict, "", 1));
        evict.set("", Some(10));
        assert!(!is_over(&mut evict, "", 1));
        evict.set("", None);
        assert!(is_over(&mut evict, "", 1));
    }
}
