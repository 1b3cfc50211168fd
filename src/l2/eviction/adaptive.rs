//! Adaptive replacement: recency and frequency, weighed by which of them would have been right.
//!
//! Keys stored once are in `t1`, keys used again in `t2`. Keys that were evicted leave a ghost in
//! `b1` or `b2`. A key that returns while its ghost is remembered should not have been evicted, so
//! its list's share grows: `target` is how many keys `t1` should have.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use hashlink::LinkedHashSet;

use super::Policy;

/// See the [module](self). All lists are oldest first.
#[derive(Debug)]
pub(in crate::l2) struct Adaptive<K> {
    t1: LinkedHashSet<K>,
    t2: LinkedHashSet<K>,
    b1: LinkedHashSet<K>,
    b2: LinkedHashSet<K>,
    target: f64,
    /// The most keys that were ever resident, which bounds the ghosts.
    capacity: usize,
    /// Selected, and not yet reported as removed: only these leave ghosts.
    pending: HashSet<K>,
}

impl<K: Eq + Hash> Default for Adaptive<K> {
    fn default() -> Self {
        Self {
            t1: LinkedHashSet::new(),
            t2: LinkedHashSet::new(),
            b1: LinkedHashSet::new(),
            b2: LinkedHashSet::new(),
            target: 0.0,
            capacity: 0,
            pending: HashSet::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Adaptive<K> {
    fn resident(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    fn create(&mut self, key: &K) {
        self.pending.remove(key);
        let known = self.t1.contains(key) || self.t2.contains(key) || self.adapt(key);
        self.forget(key);
        let list = if known { &mut self.t2 } else { &mut self.t1 };
        list.insert(key.clone());
        self.capacity = self.capacity.max(self.resident());
        self.trim();
    }

    /// Moves the target if the key has a ghost; true if it has.
    fn adapt(&mut self, key: &K) -> bool {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(key) {
            self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
        } else if self.b2.contains(key) {
            self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
        } else {
            return false;
        }
        true
    }

    fn remove(&mut self, key: &K) {
        if self.pending.remove(key) {
            if self.t1.remove(key) {
                self.b1.insert(key.clone());
            } else if self.t2.remove(key) {
                self.b2.insert(key.clone());
            }
        } else {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: &K) {
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            list.remove(key);
        }
    }

    /// Drops the oldest ghosts beyond what the capacity allows.
    fn trim(&mut self) {
        while self.t1.len() + self.b1.len() > self.capacity && self.b1.pop_front().is_some() {}
        while self.resident() + self.b1.len() + self.b2.len() > 2 * self.capacity
            && self
                .b2
                .pop_front()
                .or_else(|| self.b1.pop_front())
                .is_some()
        {}
    }
}

impl<K> Policy<K> for Adaptive<K>
where
    K: Clone + Eq + Hash + Debug + Send,
{
    fn created(&mut self, keys: &[K]) {
        for key in keys.iter().rev() {
            self.create(key);
        }
    }

    fn touched(&mut self, keys: &[K]) {
        for key in keys.iter().rev() {
            if self.t1.remove(key) || self.t2.contains(key) {
                self.t2.insert(key.clone());
            }
        }
    }

    fn removed(&mut self, keys: &[K]) {
        for key in keys {
            self.remove(key);
        }
        self.trim();
    }

    fn select(&mut self, count: usize, eligible: &dyn Fn(&K) -> bool) -> Vec<K> {
        self.capacity = self.capacity.max(self.resident());
        self.target = self.target.min(self.capacity as f64);
        self.trim();
        let mut victims = Vec::with_capacity(count.min(self.resident()));
        {
            let mut recent = self.t1.iter().filter(|key| eligible(key));
            let mut frequent = self.t2.iter().filter(|key| eligible(key));
            let mut left = self.t1.len();
            while victims.len() < count {
                let mut from_recent = left as f64 >= self.target.trunc();
                let mut victim = if from_recent { recent.next() } else { None };
                if victim.is_none() {
                    from_recent = false;
                    victim = frequent.next();
                }
                if victim.is_none() {
                    from_recent = true;
                    victim = recent.next();
                }
                let Some(victim) = victim else { break };
                if from_recent {
                    left = left.saturating_sub(1);
                }
                victims.push(victim.clone());
            }
        }
        self.pending.extend(victims.iter().cloned());
        victims
    }

    fn len(&self) -> usize {
        self.resident()
    }
}

/// The memory tier of LMCache reserves keys before it stores them. An L2 tier does not, but its
/// traces do, so this stands on the same parts.
#[cfg(test)]
#[derive(Default, Debug)]
pub(super) struct Reserving {
    policy: Adaptive<u64>,
    admitting: HashSet<u64>,
}

#[cfg(test)]
impl Reserving {
    pub(super) fn reserved(&mut self, keys: &[u64]) {
        for key in keys.iter().rev() {
            self.policy.pending.remove(key);
            self.admitting.insert(*key);
            self.policy.adapt(key);
            self.policy.forget(key);
            self.policy.t1.insert(*key);
            self.policy.capacity = self.policy.capacity.max(self.policy.resident());
            self.policy.trim();
        }
    }

    pub(super) fn target(&self) -> f64 {
        self.policy.target
    }

    /// The lists in the order of the traces, and the capacity.
    pub(super) fn lists(&self) -> ([Vec<u64>; 4], usize) {
        let Adaptive { t1, t2, b1, b2, .. } = &self.policy;
        let lists = [t1, t2, b1, b2].map(|list| list.iter().copied().collect());
        (lists, self.policy.capacity)
    }
}

#[cfg(test)]
impl Policy<u64> for Reserving {
    fn created(&mut self, keys: &[u64]) {
        for key in keys.iter().rev() {
            if self.admitting.remove(key) {
                self.policy.pending.remove(key);
            } else {
                self.policy.created(&[*key]);
            }
        }
    }

    fn touched(&mut self, keys: &[u64]) {
        self.policy.touched(keys);
    }

    fn removed(&mut self, keys: &[u64]) {
        for key in keys {
            self.admitting.remove(key);
        }
        self.policy.removed(keys);
    }

    fn select(&mut self, count: usize, eligible: &dyn Fn(&u64) -> bool) -> Vec<u64> {
        self.policy.select(count, eligible)
    }

    fn len(&self) -> usize {
        self.policy.len()
    }
}
