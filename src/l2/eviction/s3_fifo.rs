//! Three queues: new keys wait in a small one, and only those that are used there move on to the
//! main one, so that a scan passes through without displacing what is used.
//!
//! After Yang et al., *FIFO queues are all you need for cache eviction*, SOSP 2023. The order of
//! `Main` is a clock: a key at its old end that was used since it came there goes round once more.

use std::collections::HashSet;

use super::{Placed, Policy, Scope, Selection, Visit};
use crate::l2::column::Column;
use crate::l2::index::KeyId;
use crate::l2::lists::{ListId, Lists};

const SMALL: ListId = 0;
const MAIN: ListId = 1;
/// Keys that were evicted from `SMALL`: if they return, they start in `MAIN`.
const GHOST: ListId = 2;

/// `SMALL` has one of so many keys.
const SMALL_SHARE: usize = 10;
/// Uses are counted up to this.
const MOST_USES: u8 = 3;
/// With so many uses a key moves from `SMALL` to `MAIN`. One is enough here: a chunk is looked up
/// once per prompt, not many times in a row.
const USES_TO_STAY: u8 = 1;
/// Keys that one selection moves at most; the next one goes on.
const MOST_MOVES: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::l2) struct S3Fifo {
    lists: Lists,
    uses: Column<u8>,
    /// Selected out of `SMALL`, and not yet reported as removed: these leave ghosts.
    pending: HashSet<KeyId>,
    forgotten: Vec<KeyId>,
}

impl S3Fifo {
    fn resident(&self) -> usize {
        self.lists.len(SMALL) + self.lists.len(MAIN)
    }

    fn is_resident(&self, key: KeyId) -> bool {
        matches!(self.lists.list_of(key), Some(SMALL | MAIN))
    }

    fn use_once(&mut self, key: KeyId) {
        let uses = self.uses.entry(key.0);
        *uses = (*uses + 1).min(MOST_USES);
    }

    fn create(&mut self, key: KeyId) {
        self.pending.remove(&key);
        let list = match self.lists.list_of(key) {
            Some(GHOST) => MAIN,
            Some(_) => return self.use_once(key),
            None => SMALL,
        };
        *self.uses.entry(key.0) = 0;
        self.lists.push_young(list, key);
    }

    fn remove(&mut self, key: KeyId) {
        let pending = self.pending.remove(&key);
        match self.lists.remove(key) {
            Some(SMALL) if pending => {
                self.lists.push_young(GHOST, key);
                // As many ghosts as there are keys in the main queue.
                while self.lists.len(GHOST) > self.lists.len(MAIN).max(1) {
                    self.forgotten.extend(self.lists.pop_old(GHOST));
                }
            }
            Some(GHOST) => self.forgotten.push(key),
            _ => {}
        }
    }
}

/// Walks both queues from their old ends, without taking victims out.
struct Walk {
    small: Option<KeyId>,
    main: Option<KeyId>,
    /// Keys of `SMALL` that no victim was made of yet.
    left: usize,
    /// Keys that may yet move, so that a walk ends soon.
    moves: usize,
}

impl Policy for S3Fifo {
    fn created(&mut self, keys: &[Placed]) {
        for placed in keys.iter().rev() {
            self.create(placed.key);
        }
    }

    fn recovered(&mut self, keys: &[Placed]) {
        for placed in keys {
            if !self.is_resident(placed.key) {
                *self.uses.entry(placed.key.0) = 0;
                // What survived until now has passed its probation.
                self.lists.push_old(MAIN, placed.key);
            }
        }
    }

    fn touched(&mut self, keys: &[KeyId]) {
        for key in keys {
            if self.is_resident(*key) {
                self.use_once(*key);
            }
        }
    }

    fn removed(&mut self, keys: &[KeyId]) {
        for key in keys {
            self.remove(*key);
        }
    }

    fn select(&mut self, _: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        let mut selection = Selection::default();
        let mut walk = Walk {
            small: self.lists.oldest(SMALL),
            main: self.lists.oldest(MAIN),
            left: self.lists.len(SMALL),
            moves: MOST_MOVES,
        };
        let small_target = self.resident() / SMALL_SHARE;
        loop {
            let from_small =
                walk.small.is_some() && (walk.left > small_target || walk.main.is_none());
            let next = if from_small { walk.small } else { walk.main };
            let Some(key) = next else {
                selection.exhausted = true;
                break;
            };
            // Before the key moves.
            let younger = self.lists.younger(key);
            let uses = self.uses.get(key.0).copied().unwrap_or_default();
            let stays_from = if from_small { USES_TO_STAY } else { 1 };
            if uses >= stays_from {
                if walk.moves == 0 {
                    break;
                }
                walk.moves -= 1;
                *self.uses.entry(key.0) = if from_small { 0 } else { uses - 1 };
                self.lists.push_young(MAIN, key);
            }
            if from_small {
                walk.small = younger;
            } else {
                walk.main = younger;
            }
            if uses >= stays_from {
                walk.left -= usize::from(from_small);
                walk.main = walk.main.or(Some(key));
                continue;
            }
            match visit(key) {
                Visit::Take => {
                    selection.victims.push(key);
                    if from_small {
                        walk.left = walk.left.saturating_sub(1);
                        self.pending.insert(key);
                    }
                }
                Visit::Pass => {}
                Visit::Stop => break,
            }
        }
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
