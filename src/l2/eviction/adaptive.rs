//! Adaptive replacement: recency and frequency, weighed by which of them would have been right.
//!
//! Keys stored once are in `T1`, keys used again in `T2`. Keys that were evicted leave a ghost in
//! `B1` or `B2`. A key that returns while its ghost is remembered should not have been evicted, so
//! its list's share grows: `target` is how many keys `T1` should have.

use std::collections::HashSet;

use super::{Placed, Policy, Scope, Selection, Visit};
use crate::l2::index::KeyId;
use crate::l2::lists::{ListId, Lists};

const T1: ListId = 0;
const T2: ListId = 1;
const B1: ListId = 2;
const B2: ListId = 3;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::l2) struct Adaptive {
    lists: Lists,
    target: f64,
    /// The most keys that were ever resident, which bounds the ghosts.
    capacity: usize,
    /// Selected, and not yet reported as removed: only these leave ghosts.
    pending: HashSet<KeyId>,
    forgotten: Vec<KeyId>,
}

impl Adaptive {
    fn resident(&self) -> usize {
        self.lists.len(T1) + self.lists.len(T2)
    }

    fn create(&mut self, key: KeyId) {
        self.pending.remove(&key);
        let list = self.lists.list_of(key);
        self.adapt(list);
        let list = if list.is_some() { T2 } else { T1 };
        self.lists.push_young(list, key);
        self.capacity = self.capacity.max(self.resident());
        self.trim();
    }

    /// Moves the target if the key has a ghost.
    fn adapt(&mut self, list: Option<ListId>) {
        let (b1, b2) = (self.lists.len(B1) as f64, self.lists.len(B2) as f64);
        match list {
            Some(B1) => {
                self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
            }
            Some(B2) => self.target = (self.target - (b1 / b2).max(1.0)).max(0.0),
            _ => {}
        }
    }

    fn remove(&mut self, key: KeyId) {
        let pending = self.pending.remove(&key);
        match self.lists.list_of(key) {
            Some(T1) if pending => self.lists.push_young(B1, key),
            Some(T2) if pending => self.lists.push_young(B2, key),
            _ if pending => {}
            Some(B1 | B2) => {
                self.lists.remove(key);
                self.forgotten.push(key);
            }
            _ => {
                self.lists.remove(key);
            }
        }
    }

    /// Drops the oldest ghosts beyond what the capacity allows.
    fn trim(&mut self) {
        while self.lists.len(T1) + self.lists.len(B1) > self.capacity && self.drop_ghost(B1) {}
        while self.resident() + self.lists.len(B1) + self.lists.len(B2) > 2 * self.capacity
            && (self.drop_ghost(B2) || self.drop_ghost(B1))
        {}
    }

    fn drop_ghost(&mut self, list: ListId) -> bool {
        let ghost = self.lists.pop_old(list);
        self.forgotten.extend(ghost);
        ghost.is_some()
    }

    fn is_resident(&self, key: KeyId) -> bool {
        matches!(self.lists.list_of(key), Some(T1 | T2))
    }
}

impl Policy for Adaptive {
    fn created(&mut self, keys: &[Placed]) {
        for placed in keys.iter().rev() {
            self.create(placed.key);
        }
    }

    fn recovered(&mut self, keys: &[Placed]) {
        for placed in keys {
            if !self.is_resident(placed.key) {
                self.lists.push_old(T1, placed.key);
            }
        }
        self.capacity = self.capacity.max(self.resident());
        self.trim();
    }

    fn touched(&mut self, keys: &[KeyId]) {
        for key in keys.iter().rev() {
            if self.is_resident(*key) {
                self.lists.push_young(T2, *key);
            }
        }
    }

    fn removed(&mut self, keys: &[KeyId]) {
        for key in keys {
            self.remove(*key);
        }
        self.trim();
    }

    fn select(&mut self, _: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        self.capacity = self.capacity.max(self.resident());
        self.target = self.target.min(self.capacity as f64);
        self.trim();
        let mut selection = Selection::default();
        {
            let mut recent = self.lists.iter(T1).peekable();
            let mut frequent = self.lists.iter(T2).peekable();
            let mut left = self.lists.len(T1);
            loop {
                let prefer_recent = left as f64 >= self.target.trunc();
                let from_recent =
                    recent.peek().is_some() && (prefer_recent || frequent.peek().is_none());
                let next = if from_recent {
                    recent.next()
                } else {
                    frequent.next()
                };
                let Some(key) = next else {
                    selection.exhausted = true;
                    break;
                };
                match visit(key) {
                    Visit::Take => {
                        selection.victims.push(key);
                        left = left.saturating_sub(usize::from(from_recent));
                    }
                    Visit::Pass => {}
                    Visit::Stop => break,
                }
            }
        }
        self.pending.extend(selection.victims.iter().copied());
        selection
    }

    fn len(&self, _: Scope) -> usize {
        self.resident()
    }

    fn remembers(&self, key: KeyId) -> bool {
        self.lists.list_of(key).is_some()
    }

    fn forgotten(&mut self) -> Vec<KeyId> {
        std::mem::take(&mut self.forgotten)
    }
}

/// The memory tier of LMCache reserves keys before it stores them. An L2 tier does not, but its
/// traces do, so this stands on the same parts.
#[cfg(test)]
#[derive(Default, Debug)]
pub(super) struct Reserving {
    policy: Adaptive,
    admitting: HashSet<KeyId>,
}

#[cfg(test)]
impl Reserving {
    pub(super) fn reserved(&mut self, keys: &[KeyId]) {
        for key in keys.iter().rev() {
            self.policy.pending.remove(key);
            self.admitting.insert(*key);
            self.policy.adapt(self.policy.lists.list_of(*key));
            self.policy.lists.push_young(T1, *key);
            self.policy.capacity = self.policy.capacity.max(self.policy.resident());
            self.policy.trim();
        }
    }

    pub(super) fn target(&self) -> f64 {
        self.policy.target
    }

    /// The lists in the order of the traces, and the capacity.
    pub(super) fn lists(&self) -> ([Vec<u64>; 4], usize) {
        let lists = &self.policy.lists;
        let lists = [T1, T2, B1, B2].map(|list| lists.iter(list).map(|key| key.0.into()).collect());
        (lists, self.policy.capacity)
    }
}

#[cfg(test)]
impl Policy for Reserving {
    fn created(&mut self, keys: &[Placed]) {
        for placed in keys.iter().rev() {
            if self.admitting.remove(&placed.key) {
                self.policy.pending.remove(&placed.key);
            } else {
                self.policy.created(&[*placed]);
            }
        }
    }

    fn recovered(&mut self, keys: &[Placed]) {
        self.policy.recovered(keys);
    }

    fn touched(&mut self, keys: &[KeyId]) {
        self.policy.touched(keys);
    }

    fn removed(&mut self, keys: &[KeyId]) {
        for key in keys {
            self.admitting.remove(key);
        }
        self.policy.removed(keys);
    }

    fn select(&mut self, scope: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        self.policy.select(scope, visit)
    }

    fn len(&self, scope: Scope) -> usize {
        self.policy.len(scope)
    }

    fn remembers(&self, key: KeyId) -> bool {
        self.policy.remembers(key)
    }
}
