//! Counted locks on keys, local to one adapter: a locked key is neither deleted nor evicted.
//!
//! A lock is taken by a lookup and ends in one of two ways: its guard is dropped, or
//! [`unlock`](Locks::unlock) is called for the key. Often both happen (`unlock` first, the guard a
//! few lines later), and then the lock must be counted down once. Whose lock an `unlock` ends is
//! unknown, so it is noted as *early*: the next guard to be dropped ends the note instead of another
//! lookup's lock. The key stays locked as long as any lookup needs it, never less.

use std::collections::HashMap;

use super::key::ObjectKey;

#[derive(Debug, Default)]
struct Lock {
    /// Guards alive.
    guarded: usize,
    /// Of those, how many were unlocked by key already.
    early: usize,
    /// Locks whose guard was given up; only `unlock` ends them.
    detached: usize,
    /// A delete is on its way.
    deleting: bool,
}

impl Lock {
    fn held(&self) -> usize {
        self.detached + self.guarded.saturating_sub(self.early)
    }

    fn is_idle(&self) -> bool {
        self.guarded == 0 && self.detached == 0 && !self.deleting
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Locks {
    keys: HashMap<ObjectKey, Lock>,
    /// How many keys are held, so that status does not count them.
    held: usize,
}

impl Locks {
    /// Takes a lock that a guard will end; false if the key is being deleted.
    pub(super) fn acquire(&mut self, key: &ObjectKey) -> bool {
        self.change(key, |lock| {
            if !lock.deleting {
                lock.guarded += 1;
            }
            !lock.deleting
        })
    }

    /// Ends a lock whose guard is dropped.
    pub(super) fn release(&mut self, key: &ObjectKey) {
        self.change(key, |lock| {
            lock.guarded = lock.guarded.saturating_sub(1);
            lock.early = lock.early.saturating_sub(1);
        });
    }

    /// Gives up a guard and keeps its lock, unless that was unlocked already.
    pub(super) fn detach(&mut self, key: &ObjectKey) {
        self.change(key, |lock| {
            let Some(guarded) = lock.guarded.checked_sub(1) else {
                return;
            };
            lock.guarded = guarded;
            match lock.early.checked_sub(1) {
                Some(early) => lock.early = early,
                None => lock.detached += 1,
            }
        });
    }

    /// Ends one lock by key: one without a guard if there is any. True if there was a lock to end.
    pub(super) fn unlock(&mut self, key: &ObjectKey) -> bool {
        self.change(key, |lock| {
            if lock.detached > 0 {
                lock.detached -= 1;
            } else if lock.guarded > lock.early {
                lock.early += 1;
            } else {
                return false;
            }
            true
        })
    }

    /// Marks the key as being deleted; false if it is locked or being deleted already.
    pub(super) fn begin_delete(&mut self, key: &ObjectKey) -> bool {
        self.change(key, |lock| {
            if lock.held() > 0 || lock.deleting {
                return false;
            }
            lock.deleting = true;
            true
        })
    }

    /// Ends the mark.
    pub(super) fn end_delete(&mut self, key: &ObjectKey) {
        self.change(key, |lock| lock.deleting = false);
    }

    pub(super) fn is_free(&self, key: &ObjectKey) -> bool {
        self.keys
            .get(key)
            .is_none_or(|lock| lock.held() == 0 && !lock.deleting)
    }

    /// Keys locked at least once.
    pub(super) fn held_keys(&self) -> usize {
        self.held
    }

    fn change<T>(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Lock) -> T) -> T {
        let lock = match self.keys.get_mut(key) {
            Some(lock) => lock,
            None => self.keys.entry(key.clone()).or_default(),
        };
        let before = lock.held() > 0;
        let result = change(lock);
        let after = lock.held() > 0;
        if lock.is_idle() {
            self.keys.remove(key);
        }
        match (before, after) {
            (false, true) => self.held += 1,
            (true, false) => self.held = self.held.saturating_sub(1),
            _ => {}
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> ObjectKey {
        ObjectKey::new("m", 0, [1]).unwrap()
    }

    fn locked(locks: &Locks) -> bool {
        !locks.is_free(&key())
    }

    #[test]
    fn locks_are_counted() {
        let mut locks = Locks::default();
        assert!(locks.acquire(&key()));
        assert!(locks.acquire(&key()));
        locks.release(&key());
        assert!(locked(&locks));
        assert_eq!(locks.held_keys(), 1);
        locks.release(&key());
        assert!(!locked(&locks));
        assert_eq!(locks.held_keys(), 0);
        assert!(locks.keys.is_empty());
    }

    #[test]
    fn unlock_and_guard_end_one_lock_together() {
        let mut locks = Locks::default();
        locks.acquire(&key()); // A
        locks.acquire(&key()); // B
        assert!(locks.unlock(&key())); // A, by key
        locks.release(&key()); // A's guard
        assert!(locked(&locks), "B still needs it");
        assert!(locks.unlock(&key())); // B, by key
        assert!(!locked(&locks));
        locks.release(&key()); // B's guard
        assert!(locks.keys.is_empty());
    }

    #[test]
    fn unlocking_too_often_leaves_nothing_behind() {
        let mut locks = Locks::default();
        assert!(!locks.unlock(&key()));
        locks.acquire(&key());
        assert!(locks.unlock(&key()));
        assert!(!locks.unlock(&key()));
        locks.release(&key());
        assert!(locks.keys.is_empty());
        locks.acquire(&key());
        assert!(locked(&locks));
    }

    #[test]
    fn a_detached_lock_waits_for_unlock() {
        let mut locks = Locks::default();
        locks.acquire(&key());
        locks.detach(&key());
        assert!(locked(&locks));
        assert!(locks.unlock(&key()));
        assert!(locks.keys.is_empty());

        locks.acquire(&key());
        locks.unlock(&key());
        locks.detach(&key());
        assert!(locks.keys.is_empty(), "it was unlocked before");
    }

    #[test]
    fn locked_keys_are_not_deleted_nor_deleted_ones_locked() {
        let mut locks = Locks::default();
        locks.acquire(&key());
        assert!(!locks.begin_delete(&key()));
        locks.release(&key());
        assert!(locks.begin_delete(&key()));
        assert!(!locks.is_free(&key()));
        assert!(!locks.begin_delete(&key()));
        assert!(!locks.acquire(&key()));
        assert_eq!(locks.held_keys(), 0);
        locks.end_delete(&key());
        assert!(locks.acquire(&key()));
    }

    proptest! {
        /// Every lookup is either dropped, or unlocked and then dropped. Whatever the order, the key
        /// is locked while a lookup that was neither remains, and free when all are gone.
        #[test]
        fn no_lookup_loses_its_lock_to_another(steps in prop::collection::vec(0u8..3, 0..60)) {
            let mut locks = Locks::default();
            let (mut fresh, mut unlocked) = (0usize, 0usize);
            for step in steps {
                match step {
                    0 => {
                        prop_assert!(locks.acquire(&key()));
                        fresh += 1;
                    }
                    1 if fresh > 0 => {
                        prop_assert!(locks.unlock(&key()));
                        fresh -= 1;
                        unlocked += 1;
                    }
                    2 if unlocked > 0 => {
                        locks.release(&key());
                        unlocked -= 1;
                    }
                    2 if fresh > 0 => {
                        locks.release(&key());
                        fresh -= 1;
                    }
                    _ => {}
                }
                prop_assert_eq!(locked(&locks), fresh > 0);
            }
            for _ in 0..fresh + unlocked {
                locks.release(&key());
            }
            prop_assert!(locks.keys.is_empty());
        }
    }
}
