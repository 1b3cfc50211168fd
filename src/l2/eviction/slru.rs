//! Two orders: keys that were used again are protected from those that were not. Kept beside
//! [`S3Fifo`](super::S3Fifo) for the [study](super::study) that chose between them.

use super::{Placed, Policy, Scope, Selection, Visit, propose};
use crate::l2::index::KeyId;
use crate::l2::lists::{ListId, Lists};

const PROBATION: ListId = 0;
const PROTECTED: ListId = 1;

/// Segmented LRU with four fifths of the keys protected at most.
#[derive(Debug, Default)]
pub(super) struct Slru {
    lists: Lists,
}

impl Slru {
    fn use_once(&mut self, key: KeyId) {
        self.lists.push_young(PROTECTED, key);
        if self.lists.len(PROTECTED) * 5 > self.len(Scope::All) * 4
            && let Some(demoted) = self.lists.pop_old(PROTECTED)
        {
            self.lists.push_young(PROBATION, demoted);
        }
    }
}

impl Policy for Slru {
    fn created(&mut self, keys: &[Placed]) {
        for placed in keys.iter().rev() {
            if self.remembers(placed.key) {
                self.use_once(placed.key);
            } else {
                self.lists.push_young(PROBATION, placed.key);
            }
        }
    }

    fn recovered(&mut self, keys: &[Placed]) {
        for placed in keys {
            if !self.remembers(placed.key) {
                self.lists.push_old(PROBATION, placed.key);
            }
        }
    }

    fn touched(&mut self, keys: &[KeyId]) {
        for key in keys.iter().rev() {
            if self.remembers(*key) {
                self.use_once(*key);
            }
        }
    }

    fn removed(&mut self, keys: &[KeyId]) {
        for key in keys {
            self.lists.remove(*key);
        }
    }

    fn select(&mut self, _: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        let order = self.lists.iter(PROBATION).chain(self.lists.iter(PROTECTED));
        propose(order, visit)
    }

    fn len(&self, _: Scope) -> usize {
        self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }

    fn remembers(&self, key: KeyId) -> bool {
        self.lists.list_of(key).is_some()
    }
}
