//! The key that was not used for longest goes first.

use super::{Placed, Policy, Scope, Selection, Visit, propose};
use crate::l2::index::KeyId;
use crate::l2::lists::{ListId, Lists};

/// Least recently used: one order of keys, oldest first.
#[derive(Debug, Default)]
pub(in crate::l2) struct Lru {
    lists: Lists,
}

const ORDER: ListId = 0;

impl Policy for Lru {
    fn created(&mut self, keys: &[Placed]) {
        for placed in keys.iter().rev() {
            self.lists.push_young(ORDER, placed.key);
        }
    }

    fn recovered(&mut self, keys: &[Placed]) {
        for placed in keys {
            if !self.remembers(placed.key) {
                self.lists.push_old(ORDER, placed.key);
            }
        }
    }

    fn touched(&mut self, keys: &[KeyId]) {
        for key in keys.iter().rev() {
            if self.remembers(*key) {
                self.lists.push_young(ORDER, *key);
            }
        }
    }

    fn removed(&mut self, keys: &[KeyId]) {
        for key in keys {
            self.lists.remove(*key);
        }
    }

    fn select(&mut self, _: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        propose(self.lists.iter(ORDER), visit)
    }

    fn len(&self, _: Scope) -> usize {
        self.lists.len(ORDER)
    }

    fn remembers(&self, key: KeyId) -> bool {
        self.lists.list_of(key).is_some()
    }
}

#[cfg(test)]
impl Lru {
    pub(super) fn order(&self) -> Vec<u64> {
        self.lists.iter(ORDER).map(|key| key.0.into()).collect()
    }
}
