//! One order of keys per salt: a tenant's keys never go for another's.

use super::{Placed, Policy, Scope, Selection, Visit, propose};
use crate::l2::index::{KeyId, SaltId};
use crate::l2::lists::Lists;

/// An LRU per salt. Victims are looked for within a salt; among all there is no order, so nothing is
/// selected.
#[derive(Debug, Default)]
pub(in crate::l2) struct IsolatedLru {
    /// A salt's list has the salt's number.
    lists: Lists,
}

impl Policy for IsolatedLru {
    fn created(&mut self, keys: &[Placed]) {
        for Placed { key, salt } in keys.iter().rev() {
            self.lists.push_young(salt.0, *key);
        }
    }

    fn recovered(&mut self, keys: &[Placed]) {
        for Placed { key, salt } in keys {
            if !self.remembers(*key) {
                self.lists.push_old(salt.0, *key);
            }
        }
    }

    fn touched(&mut self, keys: &[KeyId]) {
        for key in keys.iter().rev() {
            if let Some(list) = self.lists.list_of(*key) {
                self.lists.push_young(list, *key);
            }
        }
    }

    fn removed(&mut self, keys: &[KeyId]) {
        for key in keys {
            self.lists.remove(*key);
        }
    }

    fn select(&mut self, scope: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        match scope {
            Scope::Salt(SaltId(list)) => propose(self.lists.iter(list), visit),
            Scope::All => propose(std::iter::empty(), visit),
        }
    }

    fn len(&self, scope: Scope) -> usize {
        match scope {
            Scope::All => 0,
            Scope::Salt(SaltId(list)) => self.lists.len(list),
        }
    }

    fn remembers(&self, key: KeyId) -> bool {
        self.lists.list_of(key).is_some()
    }
}

#[cfg(test)]
impl IsolatedLru {
    pub(super) fn order(&self, salt: SaltId) -> Vec<u64> {
        self.lists.iter(salt.0).map(|key| key.0.into()).collect()
    }
}
