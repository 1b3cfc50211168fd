//! What an adapter knows, behind one lock: cache, usage, locks and eviction order change together,
//! so nobody sees a key that is counted and not evictable, or evicted and still a hit.

use std::time::Duration;

use tokio::time::Instant;

use super::eviction::Policy;
use super::key::ObjectKey;
use super::locks::Locks;
use super::metadata_cache::{Known, MetadataCache, Question};
use super::usage::Ledger;

/// A miss is believed for at most this long, because another adapter may store the object at any
/// time and would be hidden meanwhile.
const MISS_TTL: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct State {
    pub(super) cache: MetadataCache,
    pub(super) ledger: Ledger,
    pub(super) locks: Locks,
    pub(super) policy: Box<dyn Policy<ObjectKey>>,
}

impl State {
    pub(super) fn new(ttl: Duration, policy: Box<dyn Policy<ObjectKey>>) -> Self {
        Self {
            cache: MetadataCache::new(ttl, ttl.min(MISS_TTL)),
            ledger: Ledger::default(),
            locks: Locks::default(),
            policy,
        }
    }

    /// The object is in the store, by our own doing; true if it was not tracked before.
    ///
    /// The policy hears of it with the whole batch, in [`created`](Self::created).
    pub(super) fn stored(&mut self, key: &ObjectKey, known: Known, now: Instant) -> bool {
        let size = known.size;
        self.cache.write(key, Some(known), now);
        self.ledger.set(key, size).is_none()
    }

    /// A batch is stored. Keys that were deleted since are left out.
    pub(super) fn created(&mut self, keys: &[ObjectKey]) {
        let tracked: Vec<ObjectKey> = keys
            .iter()
            .filter(|key| self.ledger.contains(key))
            .cloned()
            .collect();
        self.policy.created(&tracked);
    }

    /// The object is not in the store, by our own doing; returns the bytes that were counted.
    pub(super) fn removed(&mut self, key: &ObjectKey, now: Instant) -> u64 {
        self.cache.write(key, None, now);
        self.untrack(key)
    }

    /// The store answered a question. If nothing newer is known, the cache believes it, and a
    /// tracked key is corrected: others may write to the same pool.
    ///
    /// False if something newer is known.
    pub(super) fn answered(
        &mut self,
        key: &ObjectKey,
        question: Question,
        fact: Option<Known>,
        now: Instant,
    ) -> bool {
        let size = fact.as_ref().map(|known| known.size);
        if !self.cache.finish(key, question, fact, now) {
            return false;
        }
        match size {
            Some(size) if self.ledger.contains(key) => {
                self.ledger.set(key, size);
            }
            Some(_) => {}
            None => {
                self.untrack(key);
            }
        }
        true
    }

    /// Forgets what only matters to running operations; usage stays readable.
    pub(super) fn clear(&mut self) {
        self.cache.clear();
        self.locks = Locks::default();
    }

    fn untrack(&mut self, key: &ObjectKey) -> u64 {
        self.policy.removed(std::slice::from_ref(key));
        self.ledger.remove(key).unwrap_or(0)
    }
}
