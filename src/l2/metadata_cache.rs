//! What the store was last known to hold, for a while.
//!
//! The cache asks no clock; the caller says what time it is. An entry serves while `now < expiry`, so
//! a lifetime of zero never serves.
//!
//! A question to the store takes time, and what it returns may be older than what a store or delete
//! of this adapter wrote meanwhile. So a question is announced with [`MetadataCache::begin`] and its
//! answer handed in with [`MetadataCache::finish`], which drops it if the key was written since.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hashlink::LinkedHashMap;
use tokio::time::Instant;

use super::key::ObjectKey;

/// Expired entries dropped per write: more than one, so that the cache shrinks while it is used.
const PRUNED_PER_WRITE: usize = 2;

/// What is known of an object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) size: u64,
    /// The store's name for this content, if it has one.
    pub(super) version: Option<Arc<str>>,
}

/// `None` is a miss.
type Fact = Option<Known>;

#[derive(Debug)]
struct Entry {
    fact: Fact,
    expiry: Instant,
}

/// Questions under way for one key.
#[derive(Debug, Default)]
struct Asking {
    questions: usize,
    /// Grows with every write while questions are under way.
    generation: u64,
}

/// A question under way. Hand it back to [`MetadataCache::finish`] or
/// [`MetadataCache::abandon`], or the cache remembers it for ever.
#[derive(Debug)]
#[must_use]
pub(super) struct Question {
    generation: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct MetadataCache {
    hit_ttl: Duration,
    miss_ttl: Duration,
    /// Both in the order of expiry: a write goes to the back, and lifetimes are constant.
    hits: LinkedHashMap<ObjectKey, Entry>,
    misses: LinkedHashMap<ObjectKey, Entry>,
    asking: HashMap<ObjectKey, Asking>,
}

impl MetadataCache {
    pub(super) fn new(hit_ttl: Duration, miss_ttl: Duration) -> Self {
        Self {
            hit_ttl,
            miss_ttl,
            hits: LinkedHashMap::new(),
            misses: LinkedHashMap::new(),
            asking: HashMap::new(),
        }
    }

    /// What is known of the key now; `None` if nothing is.
    pub(super) fn get(&self, key: &ObjectKey, now: Instant) -> Option<Option<&Known>> {
        let entry = self.hits.get(key).or_else(|| self.misses.get(key))?;
        (now < entry.expiry).then_some(entry.fact.as_ref())
    }

    /// Records what this adapter itself did. Answers to earlier questions are stale from here on.
    pub(super) fn write(&mut self, key: &ObjectKey, fact: Fact, now: Instant) {
        self.outdate(key);
        self.put(key, fact, now);
    }

    /// Forgets the key. Answers to earlier questions are stale from here on.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.outdate(key);
        self.hits.remove(key);
        self.misses.remove(key);
    }

    /// Announces a question to the store.
    pub(super) fn begin(&mut self, key: &ObjectKey) -> Question {
        let asking = self.asking.entry(key.clone()).or_default();
        asking.questions += 1;
        Question {
            generation: asking.generation,
        }
    }

    /// Records the store's answer, unless the key was written since the question: then it returns
    /// false, and what the cache says is newer.
    pub(super) fn finish(
        &mut self,
        key: &ObjectKey,
        question: Question,
        fact: Fact,
        now: Instant,
    ) -> bool {
        let current = self.abandon(key, question);
        if current {
            self.put(key, fact, now);
        }
        current
    }

    /// Ends a question without an answer. True if the key was not written since.
    pub(super) fn abandon(&mut self, key: &ObjectKey, question: Question) -> bool {
        let Some(asking) = self.asking.get_mut(key) else {
            return false;
        };
        let current = asking.generation == question.generation;
        asking.questions = asking.questions.saturating_sub(1);
        if asking.questions == 0 {
            self.asking.remove(key);
        }
        current
    }

    /// Drops everything but the questions under way.
    pub(super) fn clear(&mut self) {
        self.hits.clear();
        self.misses.clear();
    }

    fn outdate(&mut self, key: &ObjectKey) {
        if let Some(asking) = self.asking.get_mut(key) {
            asking.generation += 1;
        }
    }

    fn put(&mut self, key: &ObjectKey, fact: Fact, now: Instant) {
        self.prune(now);
        let (list, other, ttl) = match fact {
            Some(_) => (&mut self.hits, &mut self.misses, self.hit_ttl),
            None => (&mut self.misses, &mut self.hits, self.miss_ttl),
        };
        other.remove(key);
        if ttl.is_zero() {
            list.remove(key);
            return;
        }
        // A lifetime beyond what a clock can count is for ever, as good as.
        let expiry = now
            .checked_add(ttl)
            .unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()));
        list.insert(key.clone(), Entry { fact, expiry });
    }

    fn prune(&mut self, now: Instant) {
        for list in [&mut self.hits, &mut self.misses] {
            for _ in 0..PRUNED_PER_WRITE {
                match list.front() {
                    Some((_, entry)) if entry.expiry <= now => list.pop_front(),
                    _ => break,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: Duration = Duration::from_secs(30);
    const MISS: Duration = Duration::from_secs(2);

    fn key(n: u8) -> ObjectKey {
        ObjectKey::new("m", 0, [n]).unwrap()
    }

    fn known(size: u64) -> Fact {
        Some(Known {
            size,
            version: None,
        })
    }

    fn size(cache: &MetadataCache, n: u8, now: Instant) -> Option<Option<u64>> {
        cache
            .get(&key(n), now)
            .map(|fact| fact.map(|known| known.size))
    }

    #[test]
    fn entries_serve_until_their_expiry() {
        let mut cache = MetadataCache::new(HIT, MISS);
        let now = Instant::now();
        cache.write(&key(1), known(5), now);
        cache.write(&key(2), None, now);
        let almost = Duration::from_nanos(1);
        assert_eq!(size(&cache, 1, now + HIT - almost), Some(Some(5)));
        assert_eq!(size(&cache, 1, now + HIT), None);
        assert_eq!(size(&cache, 2, now + MISS - almost), Some(None));
        assert_eq!(size(&cache, 2, now + MISS), None);
    }

    #[test]
    fn no_lifetime_never_serves() {
        let mut cache = MetadataCache::new(Duration::ZERO, Duration::ZERO);
        let now = Instant::now();
        cache.write(&key(1), known(5), now);
        assert_eq!(size(&cache, 1, now), None);
        assert_eq!(cache.hits.len(), 0);
    }

    #[test]
    fn an_endless_lifetime_is_one() {
        let mut cache = MetadataCache::new(Duration::MAX, Duration::MAX);
        let now = Instant::now();
        cache.write(&key(1), known(5), now);
        assert_eq!(size(&cache, 1, now + HIT), Some(Some(5)));
    }

    #[test]
    fn an_answer_never_overwrites_a_later_write() {
        let mut cache = MetadataCache::new(HIT, MISS);
        let now = Instant::now();
        let question = cache.begin(&key(1));
        cache.write(&key(1), known(5), now);
        assert!(!cache.finish(&key(1), question, None, now));
        assert_eq!(size(&cache, 1, now), Some(Some(5)));

        let question = cache.begin(&key(1));
        cache.forget(&key(1));
        assert!(!cache.finish(&key(1), question, known(5), now));
        assert_eq!(size(&cache, 1, now), None);
    }

    #[test]
    fn a_write_outdates_all_questions_and_none_after_it() {
        let mut cache = MetadataCache::new(HIT, MISS);
        let now = Instant::now();
        let early = cache.begin(&key(1));
        cache.write(&key(1), None, now);
        let late = cache.begin(&key(1));
        assert!(cache.finish(&key(1), late, known(7), now));
        assert!(!cache.finish(&key(1), early, known(5), now));
        assert_eq!(size(&cache, 1, now), Some(Some(7)));
        assert!(cache.asking.is_empty());
    }

    #[test]
    fn a_write_of_another_key_leaves_questions_alone() {
        let mut cache = MetadataCache::new(HIT, MISS);
        let now = Instant::now();
        let question = cache.begin(&key(1));
        cache.write(&key(2), known(1), now);
        assert!(cache.finish(&key(1), question, known(5), now));
    }

    #[test]
    fn writes_prune_what_has_expired_a_little_at_a_time() {
        let mut cache = MetadataCache::new(HIT, MISS);
        let now = Instant::now();
        for n in 0..100 {
            cache.write(&key(n), known(1), now);
        }
        assert_eq!(cache.hits.len(), 100);
        let later = now + HIT;
        cache.write(&key(200), known(1), later);
        assert_eq!(cache.hits.len(), 100 - PRUNED_PER_WRITE + 1);
        for n in 0..100 {
            cache.write(&key(201), known(n), later);
        }
        assert_eq!(cache.hits.len(), 2);
    }

    #[test]
    fn a_key_is_a_hit_or_a_miss_not_both() {
        let mut cache = MetadataCache::new(HIT, MISS);
        let now = Instant::now();
        cache.write(&key(1), None, now);
        cache.write(&key(1), known(3), now);
        assert_eq!(size(&cache, 1, now), Some(Some(3)));
        cache.write(&key(1), None, now);
        assert_eq!(size(&cache, 1, now), Some(None));
        assert_eq!((cache.hits.len(), cache.misses.len()), (0, 1));
    }
}
