//! What an adapter knows, behind one lock: cache, usage, locks and eviction order change together,
//! so nobody sees a key that is counted and not evictable, or evicted and still a hit.

use std::time::Duration;

use tokio::time::Instant;

use super::events::{EventEntry, EventKind, Publisher};
use super::eviction::quotas::Quotas;
use super::eviction::{Placed, Policy};
use super::index::{Index, KeyId, SaltId, User};
use super::key::ObjectKey;
use super::listing::Listing;
use super::locks::Locks;
use super::metadata_cache::{Known, MetadataCache, Question};
use super::question::Flights;
use super::usage::{Ledger, Usage};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct State {
    pub(super) index: Index,
    pub(super) cache: MetadataCache,
    pub(super) flights: Flights,
    pub(super) ledger: Ledger,
    pub(super) locks: Locks,
    pub(super) policy: Box<dyn Policy>,
    pub(super) quotas: Option<Quotas>,
    pub(super) listing: Listing,
    pub(super) events: Publisher,
    /// Bytes that stores under way may add, with hard admission.
    pub(super) reserved: u64,
}

/// What a [`State`] is made of.
pub(super) struct Parts {
    pub(super) hit_ttl: Duration,
    pub(super) miss_ttl: Duration,
    pub(super) lease: Option<Duration>,
    pub(super) policy: Box<dyn Policy>,
    pub(super) quotas: Option<Quotas>,
}

impl State {
    pub(super) fn new(parts: Parts, now: Instant) -> Self {
        Self {
            index: Index::default(),
            cache: MetadataCache::new(parts.hit_ttl, parts.miss_ttl, now),
            flights: Flights::default(),
            ledger: Ledger::default(),
            locks: Locks::new(parts.lease),
            policy: parts.policy,
            quotas: parts.quotas,
            listing: Listing::default(),
            events: Publisher::default(),
            reserved: 0,
        }
    }

    /// The object is in the store, by our own doing; returns the bytes that were counted before if
    /// the key was tracked.
    ///
    /// The policy hears of it with the whole batch, in [`created`](Self::created).
    pub(super) fn stored(&mut self, key: &ObjectKey, known: Known, now: Instant) -> Option<u64> {
        let size = known.size;
        let (id, before) = self.index.track(key);
        self.cache.write(&mut self.index, id, Some(known), now);
        self.count(id, before, size);
        before
    }

    /// A batch is stored. Keys that were deleted since are left out.
    pub(super) fn created(&mut self, keys: &[ObjectKey]) {
        let ids = keys.iter().filter_map(|key| self.index.find(key));
        let placed: Vec<Placed> = ids.filter_map(|id| self.placed(id)).collect();
        self.policy.created(&placed);
        self.no_ghosts(&placed);
    }

    /// Keys were found by a listing, the young end first if `older` than all that is known, else
    /// oldest first.
    pub(super) fn found(&mut self, ids: &[KeyId], older: bool) {
        let placed: Vec<Placed> = ids
            .iter()
            .filter_map(|id| self.placed(*id))
            // Stored since, or a number that went to another key.
            .filter(|placed| !self.policy.remembers(placed.key) || self.is_ghost(placed.key))
            .collect();
        if older {
            self.policy.recovered(&placed);
        } else {
            for one in &placed {
                self.policy.created(&[*one]);
            }
        }
        self.no_ghosts(&placed);
    }

    /// Keys were used, in this order.
    pub(super) fn touched(&mut self, keys: &[ObjectKey]) {
        let ids: Vec<KeyId> = keys.iter().filter_map(|key| self.index.find(key)).collect();
        self.policy.touched(&ids);
    }

    /// The object is not in the store, by our own doing; returns the bytes that were counted.
    pub(super) fn removed(&mut self, key: &ObjectKey, now: Instant) -> u64 {
        let id = self.index.claim(key, User::Cached);
        self.cache.write(&mut self.index, id, None, now);
        self.listing.gone(key);
        self.untrack(id).unwrap_or(0)
    }

    /// The store answered a question. If nothing newer is known, the cache believes it, and a
    /// tracked key is corrected: others may write to the same pool.
    ///
    /// False if something newer is known.
    pub(super) fn answered(
        &mut self,
        question: Question,
        fact: Option<Known>,
        now: Instant,
    ) -> bool {
        let id = question.key;
        let size = fact.as_ref().map(|known| known.size);
        let key = self.index.key(id);
        if !self.cache.finish(&mut self.index, question, fact, now) {
            return false;
        }
        match (size, self.index.size(id)) {
            (Some(size), Some(before)) => self.count(id, Some(before), size),
            (None, Some(_)) => {
                if let Some(key) = key {
                    self.vanished(&key, id);
                }
            }
            (_, None) => {}
        }
        true
    }

    /// Nobody knows whether the object exists.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if let Some(id) = self.index.find(key) {
            self.cache.forget(&mut self.index, id);
        }
    }

    /// A tracked key is gone, by someone else's doing.
    pub(super) fn vanished(&mut self, key: &ObjectKey, id: KeyId) {
        self.listing.gone(key);
        if let Some(bytes) = self.untrack(id) {
            let entry = EventEntry::new(key.clone(), bytes);
            self.events.publish(EventKind::Vanished, || vec![entry]);
        }
    }

    /// Counts a key whose row says that it is tracked, and had the size `before` if it was already.
    pub(super) fn count(&mut self, id: KeyId, before: Option<u64>, size: u64) {
        self.index.set(id, size, self.listing.stamp());
        let salt = self.index.salt_of(id);
        self.ledger.change(salt, before, Some(size));
        self.note_quota(salt);
    }

    /// Counts a key no longer; returns the bytes that were counted, `None` if it was not tracked.
    pub(super) fn untrack(&mut self, id: KeyId) -> Option<u64> {
        let size = self.index.size(id)?;
        let salt = self.index.salt_of(id);
        self.ledger.change(salt, Some(size), None);
        self.note_quota(salt);
        self.policy.removed(&[id]);
        if self.policy.remembers(id) {
            self.index.keep(id, User::Ghost);
        }
        self.forget_ghosts();
        self.index.release(id, User::Tracked);
        Some(size)
    }

    /// How full the cache is.
    pub(super) fn usage(&self, capacity: u64) -> Usage {
        self.ledger.usage(&self.index, capacity)
    }

    /// Gives a salt a quota in bytes, or takes it away.
    pub(super) fn set_quota(&mut self, salt: &str, bytes: Option<u64>) {
        if let Some(quotas) = &mut self.quotas {
            quotas.set(salt, bytes);
        }
        if let Some(salt) = self.index.find_salt(salt) {
            self.note_quota(salt);
        }
    }

    /// Forgets what only matters to running operations; usage stays readable.
    pub(super) fn clear(&mut self) {
        self.cache.clear(&mut self.index);
        self.locks.clear(&mut self.index);
        self.events.end();
    }

    fn placed(&self, key: KeyId) -> Option<Placed> {
        self.index.is(key, User::Tracked).then(|| Placed {
            key,
            salt: self.index.salt_of(key),
        })
    }

    fn is_ghost(&self, key: KeyId) -> bool {
        self.index.is(key, User::Ghost)
    }

    fn no_ghosts(&mut self, placed: &[Placed]) {
        for placed in placed {
            self.index.release(placed.key, User::Ghost);
        }
        self.forget_ghosts();
    }

    fn forget_ghosts(&mut self) {
        for id in self.policy.forgotten() {
            self.index.release(id, User::Ghost);
        }
    }

    fn note_quota(&mut self, salt: SaltId) {
        if let (Some(quotas), Some(name)) = (&mut self.quotas, self.index.salt(salt)) {
            quotas.note(salt, name, self.ledger.of_salt(salt));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::l2::config::PolicyName;
    use crate::l2::eviction::{Scope, Visit};
    use crate::l2::listing::Listed;
    use crate::l2::open;

    fn key(n: u8) -> ObjectKey {
        let salt = ["", "a", "b"][usize::from(n % 3)];
        ObjectKey::new("m", 0, [n])
            .unwrap()
            .with_cache_salt(salt)
            .unwrap()
    }

    fn state(policy: PolicyName, now: Instant) -> State {
        let parts = Parts {
            hit_ttl: Duration::from_secs(30),
            miss_ttl: Duration::from_secs(2),
            lease: None,
            policy: open::policy(policy),
            quotas: None,
        };
        State::new(parts, now)
    }

    fn known(size: u64) -> Known {
        Known {
            size,
            version: None,
        }
    }

    #[test]
    fn an_overwrite_replaces_the_old_size() {
        let now = Instant::now();
        let mut state = state(PolicyName::Lru, now);
        assert_eq!(state.stored(&key(0), known(3), now), None);
        assert_eq!(state.stored(&key(1), known(5), now), None);
        assert_eq!(state.stored(&key(0), known(100), now), Some(3));
        let usage = state.usage(210);
        assert_eq!((usage.total_bytes_used, usage.usage_fraction), (105, 0.5));
        assert_eq!(state.removed(&key(0), now), 100);
        assert_eq!(state.removed(&key(0), now), 0);
        let usage = state.usage(0);
        assert_eq!((usage.total_bytes_used, usage.usage_fraction), (5, -1.0));
        assert_eq!(usage.bytes_by_cache_salt["a"], 5);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Store(Vec<(u8, u64)>),
        Remove(u8),
        Touch(Vec<u8>),
        Lock(u8),
        Miss(u8),
        Evict(usize),
        List(Vec<(u8, u64)>),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let sized = || prop::collection::vec((0u8..12, 0u64..1000), 0..6);
        prop_oneof![
            4 => sized().prop_map(Step::Store),
            2 => (0u8..12).prop_map(Step::Remove),
            2 => prop::collection::vec(0u8..12, 0..6).prop_map(Step::Touch),
            1 => (0u8..12).prop_map(Step::Lock),
            1 => (0u8..12).prop_map(Step::Miss),
            2 => (0usize..4).prop_map(Step::Evict),
            1 => sized().prop_map(Step::List),
            1 => (1u64..40).prop_map(Step::Wait),
        ]
    }

    fn policy() -> impl Strategy<Value = PolicyName> {
        prop_oneof![
            Just(PolicyName::Lru),
            Just(PolicyName::Arc),
            Just(PolicyName::S3Fifo),
            Just(PolicyName::IsolatedLru),
            Just(PolicyName::Noop),
        ]
    }

    fn evict(state: &mut State, count: usize) -> Vec<ObjectKey> {
        let scopes = [Scope::All, Scope::Salt(SaltId(0)), Scope::Salt(SaltId(1))];
        let mut victims = Vec::new();
        for scope in scopes {
            let mut left = count;
            let selection = state.policy.select(scope, &mut |_| {
                let take = left > 0;
                left = left.saturating_sub(1);
                if take { Visit::Take } else { Visit::Stop }
            });
            for id in selection.victims {
                victims.extend(state.index.key(id));
                state.untrack(id);
            }
        }
        victims
    }

    proptest! {
        /// Sums are those of a plain map, and no row lives for nothing.
        #[test]
        fn books_are_right_and_leak_nothing(
            policy in policy(),
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let mut now = Instant::now();
            let mut state = state(policy, now);
            let mut model: BTreeMap<ObjectKey, u64> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Store(entries) => {
                        for (n, size) in &entries {
                            let before = state.stored(&key(*n), known(*size), now);
                            prop_assert_eq!(before, model.insert(key(*n), *size));
                        }
                        let keys: Vec<_> = entries.iter().map(|(n, _)| key(*n)).collect();
                        state.created(&keys);
                    }
                    Step::Remove(n) => {
                        let bytes = state.removed(&key(n), now);
                        prop_assert_eq!(bytes, model.remove(&key(n)).unwrap_or(0));
                    }
                    Step::Touch(keys) => {
                        let keys: Vec<_> = keys.into_iter().map(key).collect();
                        state.touched(&keys);
                    }
                    Step::Lock(n) => {
                        let held = state.locks.acquire(&mut state.index, &key(n), now).unwrap();
                        state.locks.release(&mut state.index, held);
                    }
                    Step::Miss(n) => {
                        let question = state.begin(&key(n));
                        prop_assert!(state.answered(question, None, now));
                        model.remove(&key(n));
                    }
                    Step::Evict(count) => {
                        for victim in evict(&mut state, count) {
                            prop_assert!(model.remove(&victim).is_some());
                        }
                    }
                    Step::List(objects) => {
                        state.begin_listing();
                        let objects: BTreeMap<_, _> =
                            objects.into_iter().map(|(n, size)| (key(n), size)).collect();
                        let mut found = Vec::new();
                        for (key, size) in &objects {
                            if let Listed::New(id) = state.listed(key, *size, false) {
                                found.push(id);
                            }
                        }
                        state.found(&found, true);
                        state.sweep(0, state.index.end(), &|_| false);
                        state.end_listing();
                        model = objects;
                    }
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                }
                let usage = state.usage(0);
                prop_assert_eq!(usage.total_bytes_used, model.values().sum::<u64>());
                let mut by_salt = BTreeMap::new();
                for (key, size) in model.iter().filter(|(_, size)| **size > 0) {
                    *by_salt.entry(key.cache_salt().to_owned()).or_insert(0) += size;
                }
                prop_assert_eq!(usage.bytes_by_cache_salt, by_salt);
                prop_assert_eq!(state.ledger.len(), model.len());
                if policy != PolicyName::Noop && policy != PolicyName::IsolatedLru {
                    prop_assert_eq!(state.policy.len(Scope::All), model.len());
                }
            }
            // Without objects, ghosts and cache nothing is left.
            for n in 0..12 {
                state.removed(&key(n), now);
                // What is not pending leaves no ghost, and loses the one that it has.
                let id = state.index.claim(&key(n), User::Locked);
                state.policy.removed(&[id]);
                state.forget_ghosts();
                state.index.release(id, User::Locked);
            }
            state.clear();
            prop_assert_eq!(state.index.rows_in_use(), 0);
        }
    }
}
