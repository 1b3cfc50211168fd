//! Counted locks on keys, local to one adapter: a locked key is neither deleted nor evicted.
//!
//! A lock is taken by a lookup and ends in one of two ways: its guard is dropped, or
//! [`unlock`](Locks::unlock) is called for the key. Often both happen (`unlock` first, the guard a
//! few lines later), and then the lock must be counted down once. Whose lock an `unlock` ends is
//! unknown, so it is noted as *early*: the next guard to be dropped ends the note instead of another
//! lookup's lock. The key stays locked as long as any lookup needs it, never less.
//!
//! With a lease, the locks of a key lapse together when none was taken for that long: an unlock that
//! was lost pins nothing for ever. A guard of lapsed locks ends none that were taken later.

use std::time::Duration;

use hashbrown::HashMap;
use hashlink::LinkedHashMap;
use tokio::time::Instant;

use super::index::{Index, KeyId, User};
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
    /// Tells these locks from later ones of the same key.
    epoch: u64,
}

impl Lock {
    fn held(&self) -> usize {
        self.detached + self.guarded.saturating_sub(self.early)
    }

    fn is_idle(&self) -> bool {
        self.guarded == 0 && self.detached == 0 && !self.deleting
    }
}

/// A lock that was taken, for the one who ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    key: KeyId,
    epoch: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Locks {
    keys: HashMap<KeyId, Lock>,
    /// How many keys are held, so that status does not count them.
    held: usize,
    epochs: u64,
    lease: Option<Duration>,
    /// When the locks of a key lapse, the soonest first. Empty without a lease.
    lapses: LinkedHashMap<KeyId, Instant>,
}

impl Locks {
    pub(super) fn new(lease: Option<Duration>) -> Self {
        Self {
            lease,
            ..Self::default()
        }
    }

    /// Takes a lock that a guard will end; `None` if the key is being deleted.
    pub(super) fn acquire(
        &mut self,
        index: &mut Index,
        key: &ObjectKey,
        now: Instant,
    ) -> Option<Held> {
        let key = index.claim(key, User::Locked);
        let (taken, epoch) = self.change(index, key, |lock| {
            if !lock.deleting {
                lock.guarded += 1;
            }
            (!lock.deleting, lock.epoch)
        });
        if !taken {
            return None;
        }
        self.renew(key, now);
        Some(Held { key, epoch })
    }

    /// Ends a lock whose guard is dropped.
    pub(super) fn release(&mut self, index: &mut Index, held: Held) {
        self.change_held(index, held, |lock| {
            lock.guarded = lock.guarded.saturating_sub(1);
            lock.early = lock.early.saturating_sub(1);
        });
    }

    /// Gives up a guard and keeps its lock, unless that was unlocked already.
    pub(super) fn detach(&mut self, index: &mut Index, held: Held) {
        self.change_held(index, held, |lock| {
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

    /// Begins the lease of a lock anew; false if it has lapsed.
    pub(super) fn keep(&mut self, held: Held, now: Instant) -> bool {
        let alive = self.is_alive(held);
        if alive {
            self.renew(held.key, now);
        }
        alive
    }

    /// Ends one lock by key: one without a guard if there is any. True if there was a lock to end.
    pub(super) fn unlock(&mut self, index: &mut Index, key: &ObjectKey) -> bool {
        let Some(key) = index.find(key).filter(|key| self.keys.contains_key(key)) else {
            return false;
        };
        self.change(index, key, |lock| {
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
    pub(super) fn begin_delete(&mut self, index: &mut Index, key: &ObjectKey) -> bool {
        let key = index.claim(key, User::Locked);
        self.change(index, key, |lock| {
            if lock.held() > 0 || lock.deleting {
                return false;
            }
            lock.deleting = true;
            true
        })
    }

    /// Ends the mark.
    pub(super) fn end_delete(&mut self, index: &mut Index, key: &ObjectKey) {
        if let Some(key) = index.find(key) {
            self.change(index, key, |lock| lock.deleting = false);
        }
    }

    /// Neither locked nor being deleted.
    pub(super) fn is_free(&self, key: KeyId) -> bool {
        self.keys
            .get(&key)
            .is_none_or(|lock| lock.held() == 0 && !lock.deleting)
    }

    /// Locked at least once.
    pub(super) fn is_held(&self, key: KeyId) -> bool {
        self.keys.get(&key).is_some_and(|lock| lock.held() > 0)
    }

    /// Keys locked at least once.
    pub(super) fn held_keys(&self) -> usize {
        self.held
    }

    /// Ends the locks whose lease is over, and says how many keys had any.
    pub(super) fn lapse(&mut self, index: &mut Index, now: Instant) -> usize {
        let mut lapsed = 0;
        while let Some((key, at)) = self.lapses.front()
            && *at <= now
        {
            let key = *key;
            self.lapses.pop_front();
            lapsed += 1;
            self.change(index, key, |lock| {
                (lock.guarded, lock.early, lock.detached) = (0, 0, 0);
            });
        }
        lapsed
    }

    /// When the next lease ends.
    pub(super) fn next_lapse(&self) -> Option<Instant> {
        self.lapses.front().map(|(_, at)| *at)
    }

    /// Ends all locks.
    pub(super) fn clear(&mut self, index: &mut Index) {
        for (key, _) in self.keys.drain() {
            index.release(key, User::Locked);
        }
        self.lapses.clear();
        self.held = 0;
    }

    fn renew(&mut self, key: KeyId, now: Instant) {
        // Beyond what a clock can count is for ever.
        if let Some(at) = self.lease.and_then(|lease| now.checked_add(lease)) {
            self.lapses.insert(key, at);
        }
    }

    fn is_alive(&self, held: Held) -> bool {
        self.keys
            .get(&held.key)
            .is_some_and(|lock| lock.epoch == held.epoch)
    }

    fn change_held(&mut self, index: &mut Index, held: Held, change: impl FnOnce(&mut Lock)) {
        if self.is_alive(held) {
            self.change(index, held.key, change);
        }
    }

    fn change<T>(
        &mut self,
        index: &mut Index,
        key: KeyId,
        change: impl FnOnce(&mut Lock) -> T,
    ) -> T {
        let epochs = &mut self.epochs;
        let lock = self.keys.entry(key).or_insert_with(|| {
            *epochs += 1;
            Lock {
                epoch: *epochs,
                ..Lock::default()
            }
        });
        let before = lock.held() > 0;
        let result = change(lock);
        let after = lock.held() > 0;
        if lock.is_idle() {
            self.keys.remove(&key);
            self.lapses.remove(&key);
            index.release(key, User::Locked);
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

    const LEASE: Duration = Duration::from_secs(60);

    /// Locks on one key.
    struct Fixture {
        index: Index,
        locks: Locks,
        now: Instant,
    }

    impl Fixture {
        fn new(lease: Option<Duration>) -> Self {
            Self {
                index: Index::default(),
                locks: Locks::new(lease),
                now: Instant::now(),
            }
        }

        fn acquire(&mut self) -> Option<Held> {
            self.locks.acquire(&mut self.index, &key(), self.now)
        }

        fn release(&mut self, held: Option<Held>) {
            self.locks.release(&mut self.index, held.unwrap());
        }

        fn unlock(&mut self) -> bool {
            self.locks.unlock(&mut self.index, &key())
        }

        fn begin_delete(&mut self) -> bool {
            self.locks.begin_delete(&mut self.index, &key())
        }

        fn lapse(&mut self, after: Duration) -> usize {
            self.now += after;
            self.locks.lapse(&mut self.index, self.now)
        }

        fn is_locked(&self) -> bool {
            let key = self.index.find(&key());
            key.is_some_and(|key| !self.locks.is_free(key))
        }

        fn is_forgotten(&self) -> bool {
            self.locks.keys.is_empty()
                && self.locks.lapses.is_empty()
                && self.index.find(&key()).is_none()
        }
    }

    fn key() -> ObjectKey {
        ObjectKey::new("m", 0, [1]).unwrap()
    }

    #[test]
    fn locks_are_counted() {
        let mut fixture = Fixture::new(None);
        let (first, second) = (fixture.acquire(), fixture.acquire());
        fixture.release(first);
        assert!(fixture.is_locked());
        assert_eq!(fixture.locks.held_keys(), 1);
        fixture.release(second);
        assert!(!fixture.is_locked());
        assert_eq!(fixture.locks.held_keys(), 0);
        assert!(fixture.is_forgotten());
    }

    #[test]
    fn unlock_and_guard_end_one_lock_together() {
        let mut fixture = Fixture::new(None);
        let (a, b) = (fixture.acquire(), fixture.acquire());
        assert!(fixture.unlock()); // A, by key
        fixture.release(a);
        assert!(fixture.is_locked(), "B still needs it");
        assert!(fixture.unlock()); // B, by key
        assert!(!fixture.is_locked());
        fixture.release(b);
        assert!(fixture.is_forgotten());
    }

    #[test]
    fn unlocking_too_often_leaves_nothing_behind() {
        let mut fixture = Fixture::new(None);
        assert!(!fixture.unlock());
        let held = fixture.acquire();
        assert!(fixture.unlock());
        assert!(!fixture.unlock());
        fixture.release(held);
        assert!(fixture.is_forgotten());
        fixture.acquire();
        assert!(fixture.is_locked());
    }

    #[test]
    fn a_detached_lock_waits_for_unlock() {
        let mut fixture = Fixture::new(None);
        let held = fixture.acquire().unwrap();
        fixture.locks.detach(&mut fixture.index, held);
        assert!(fixture.is_locked());
        assert!(fixture.unlock());
        assert!(fixture.is_forgotten());

        let held = fixture.acquire().unwrap();
        fixture.unlock();
        fixture.locks.detach(&mut fixture.index, held);
        assert!(fixture.is_forgotten(), "it was unlocked before");
    }

    #[test]
    fn locked_keys_are_not_deleted_nor_deleted_ones_locked() {
        let mut fixture = Fixture::new(None);
        let held = fixture.acquire();
        assert!(!fixture.begin_delete());
        fixture.release(held);
        assert!(fixture.begin_delete());
        assert!(fixture.is_locked());
        assert!(!fixture.begin_delete());
        assert!(fixture.acquire().is_none());
        assert_eq!(fixture.locks.held_keys(), 0);
        fixture.locks.end_delete(&mut fixture.index, &key());
        assert!(fixture.is_forgotten());
        assert!(fixture.acquire().is_some());
    }

    #[test]
    fn locks_lapse_together_after_the_last_was_taken() {
        let mut fixture = Fixture::new(Some(LEASE));
        let first = fixture.acquire();
        assert_eq!(fixture.lapse(LEASE / 2), 0);
        let second = fixture.acquire().unwrap();
        fixture.locks.detach(&mut fixture.index, second);
        assert_eq!(fixture.lapse(LEASE / 2), 0, "the second began it anew");
        assert_eq!(fixture.locks.next_lapse(), Some(fixture.now + LEASE / 2));
        assert_eq!(fixture.lapse(LEASE / 2), 1);
        assert!(!fixture.is_locked());
        assert!(fixture.is_forgotten());
        assert_eq!(fixture.locks.held_keys(), 0);

        // The old guard ends no newer lock.
        let newer = fixture.acquire();
        fixture.release(first);
        assert!(fixture.is_locked());
        assert!(!fixture.locks.keep(first.unwrap(), fixture.now));
        assert!(fixture.locks.keep(newer.unwrap(), fixture.now));
        fixture.release(newer);
        assert!(fixture.is_forgotten());
    }

    #[test]
    fn a_lease_can_be_kept() {
        let mut fixture = Fixture::new(Some(LEASE));
        let held = fixture.acquire();
        for _ in 0..5 {
            assert_eq!(fixture.lapse(LEASE * 2 / 3), 0);
            assert!(fixture.locks.keep(held.unwrap(), fixture.now));
        }
        assert_eq!(fixture.lapse(LEASE), 1);
    }

    proptest! {
        /// Every lookup is either dropped, or unlocked and then dropped. Whatever the order, the key
        /// is locked while a lookup that was neither remains, and free when all are gone.
        #[test]
        fn no_lookup_loses_its_lock_to_another(steps in prop::collection::vec(0u8..3, 0..60)) {
            let mut fixture = Fixture::new(None);
            let mut guards = Vec::new();
            let (mut fresh, mut unlocked) = (0usize, 0usize);
            for step in steps {
                match step {
                    0 => {
                        guards.push(fixture.acquire());
                        fresh += 1;
                    }
                    1 if fresh > 0 => {
                        prop_assert!(fixture.unlock());
                        fresh -= 1;
                        unlocked += 1;
                    }
                    2 if unlocked > 0 => {
                        fixture.release(guards.pop().unwrap());
                        unlocked -= 1;
                    }
                    2 if fresh > 0 => {
                        fixture.release(guards.pop().unwrap());
                        fresh -= 1;
                    }
                    _ => {}
                }
                prop_assert_eq!(fixture.is_locked(), fresh > 0);
            }
            for held in guards {
                fixture.release(held);
            }
            prop_assert!(fixture.is_forgotten());
        }
    }
}
