//! What happens to keys while the pool is being listed.
//!
//! A listing takes time, and what it says of a key may be older than what this adapter did meanwhile.
//! So each listing has a number, rows are stamped with it when their key is seen or written, and keys
//! that went are remembered until it ends.

use std::collections::HashSet;

use super::index::{KeyId, User};
use super::key::ObjectKey;
use super::state::State;

/// The listing under way, if any.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Grows with every listing; what was seen or written in an earlier one has another stamp.
    stamp: u16,
    /// Keys that were deleted since the listing began.
    gone: Option<HashSet<ObjectKey>>,
    /// The first listing has not put its keys in order yet: nobody knows which are the oldest.
    pub(super) unordered: bool,
}

impl Listing {
    pub(super) fn stamp(&self) -> u16 {
        self.stamp
    }

    pub(super) fn gone(&mut self, key: &ObjectKey) {
        if let Some(gone) = &mut self.gone {
            gone.insert(key.clone());
        }
    }
}

/// What a listed object means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// The key was not tracked; it is counted now, and has no place in the eviction order yet.
    New(KeyId),
    /// The key was tracked, and has the listed size now.
    Known,
    /// Something newer is known.
    Outdated,
}

impl State {
    pub(super) fn begin_listing(&mut self) {
        self.listing.stamp = self.listing.stamp.wrapping_add(1);
        self.listing.gone = Some(HashSet::new());
    }

    pub(super) fn end_listing(&mut self) {
        self.listing.gone = None;
    }

    /// The listing shows an object. With `busy`, a store or delete of the key is under way, which
    /// will settle it.
    pub(super) fn listed(&mut self, key: &ObjectKey, size: u64, busy: bool) -> Listed {
        let is_gone = |gone: &HashSet<ObjectKey>| gone.contains(key);
        if self.listing.gone.as_ref().is_some_and(is_gone) {
            return Listed::Outdated;
        }
        let found = self.index.find(key);
        let tracked = found.and_then(|id| Some((id, self.index.size(id)?)));
        match tracked {
            Some((id, _)) if self.index.stamp(id) == self.listing.stamp => Listed::Outdated,
            Some((id, before)) if busy => {
                self.index.set(id, before, self.listing.stamp);
                Listed::Outdated
            }
            Some((id, before)) => {
                if before != size {
                    self.cache.forget(&mut self.index, id);
                }
                self.count(id, Some(before), size);
                Listed::Known
            }
            None if busy => Listed::Outdated,
            None => {
                let (id, _) = self.index.track(key);
                // Perhaps a miss, or a question whose answer may be older.
                self.cache.forget(&mut self.index, id);
                self.count(id, None, size);
                Listed::New(id)
            }
        }
    }

    /// Of the rows `from..to`, forgets the tracked keys that the listing, now at its end, did not
    /// show; returns how many. Keys that are `busy` stay.
    pub(super) fn sweep(&mut self, from: u32, to: u32, busy: &dyn Fn(&ObjectKey) -> bool) -> usize {
        let mut vanished = 0;
        for id in (from..to).map(KeyId) {
            if !self.index.is(id, User::Tracked) || self.index.stamp(id) == self.listing.stamp {
                continue;
            }
            let Some(key) = self.index.key(id) else {
                continue;
            };
            if busy(&key) {
                continue;
            }
            self.cache.forget(&mut self.index, id);
            self.vanished(&key, id);
            vanished += 1;
        }
        vanished
    }
}
