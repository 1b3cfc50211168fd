//! What the store was last known to hold, for a while.
//!
//! The cache asks no clock; the caller says what time it is. An entry serves while `now < expiry`, so
//! a lifetime of zero never serves.
//!
//! A question to the store takes time, and what it returns may be older than what a store or delete
//! of this adapter wrote meanwhile. So a question is announced with [`MetadataCache::begin`] and its
//! answer handed in with [`MetadataCache::finish`], which drops it if the key was written since.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use super::column::Column;
use super::index::{Index, KeyId, User};
use super::key::ObjectKey;
use super::lists::{ListId, Lists};

/// Expired entries dropped per write: more than one, so that the cache shrinks while it is used.
const PRUNED_PER_WRITE: usize = 2;

/// What is known of an object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) size: u64,
    /// The store's name for this content, if it has one.
    pub(super) version: Option<Version>,
}

/// A store's name for a content. Most are hashes, and lie within the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Version {
    /// 64 lower-case hexadecimal digits.
    Hash([u8; 32]),
    Text(Arc<str>),
}

impl From<String> for Version {
    fn from(text: String) -> Self {
        hash(text.as_bytes()).map_or_else(|| Self::Text(Arc::from(text)), Self::Hash)
    }
}

/// Only what is spelled the same again: no upper case.
fn hash(text: &[u8]) -> Option<[u8; 32]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let text: &[u8; 64] = text.try_into().ok()?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

impl Version {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Hash(bytes) => super::key::to_hex(bytes),
            Self::Text(text) => text.as_ref().to_owned(),
        }
    }
}

/// `None` is a miss.
type Fact = Option<Known>;

#[derive(Debug, Default)]
struct Entry {
    key: u32,
    fact: Fact,
    /// In nanoseconds of the cache's own age, half of what an instant takes.
    expiry: u64,
}

/// Both in the order of expiry: a write goes to the young end, and lifetimes are constant.
const HITS: ListId = 0;
const MISSES: ListId = 1;

/// Entries in places of their own, which keys point to: a key without an entry costs four bytes, and
/// nothing is ever moved or hashed.
#[derive(Debug, Default)]
struct Entries {
    /// By key, the place of its entry and one; 0 for none.
    places: Column<u32>,
    entries: Column<Entry>,
    /// Places by expiry.
    order: Lists,
    free: Vec<u32>,
    end: u32,
}

impl Entries {
    fn get(&self, key: KeyId) -> Option<&Entry> {
        self.entries.get(self.place(key)?)
    }

    fn place(&self, key: KeyId) -> Option<u32> {
        self.places.get(key.0)?.checked_sub(1)
    }

    fn insert(&mut self, list: ListId, entry: Entry) {
        let key = KeyId(entry.key);
        let place = self.place(key).or_else(|| self.free.pop());
        let place = place.unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        *self.places.entry(key.0) = place + 1;
        *self.entries.entry(place) = entry;
        self.order.push_young(list, KeyId(place));
    }

    fn remove(&mut self, key: KeyId) {
        if let Some(place) = self.place(key) {
            *self.places.entry(key.0) = 0;
            *self.entries.entry(place) = Entry::default();
            self.order.remove(KeyId(place));
            self.free.push(place);
        }
    }

    /// The entry of a list that expires first.
    fn first(&self, list: ListId) -> Option<&Entry> {
        self.entries.get(self.order.oldest(list)?.0)
    }

    fn len(&self) -> usize {
        self.order.len(HITS) + self.order.len(MISSES)
    }
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
    pub(super) key: KeyId,
    pub(super) generation: u64,
}

/// See the [module](self). Its entries and questions keep their keys in the [`Index`].
#[derive(Debug)]
pub(super) struct MetadataCache {
    hit_ttl: Duration,
    miss_ttl: Duration,
    born: Instant,
    entries: Entries,
    asking: HashMap<KeyId, Asking>,
}

impl MetadataCache {
    pub(super) fn new(hit_ttl: Duration, miss_ttl: Duration, now: Instant) -> Self {
        Self {
            hit_ttl,
            miss_ttl,
            born: now,
            entries: Entries::default(),
            asking: HashMap::new(),
        }
    }

    /// What is known of the key now; `None` if nothing is.
    pub(super) fn get(&self, key: KeyId, now: Instant) -> Option<Option<&Known>> {
        let entry = self.entries.get(key)?;
        (self.age(now) < entry.expiry).then_some(entry.fact.as_ref())
    }

    /// Records what this adapter itself did. Answers to earlier questions are stale from here on.
    pub(super) fn write(&mut self, index: &mut Index, key: KeyId, fact: Fact, now: Instant) {
        self.outdate(key);
        self.put(index, key, fact, now);
    }

    /// Forgets the key. Answers to earlier questions are stale from here on.
    pub(super) fn forget(&mut self, index: &mut Index, key: KeyId) {
        self.outdate(key);
        self.entries.remove(key);
        index.release(key, User::Cached);
    }

    /// Announces a question to the store.
    pub(super) fn begin(&mut self, index: &mut Index, key: &ObjectKey) -> Question {
        let key = index.claim(key, User::Asked);
        let asking = self.asking.entry(key).or_default();
        asking.questions += 1;
        Question {
            key,
            generation: asking.generation,
        }
    }

    /// Whether nothing was written since a question of this generation.
    pub(super) fn is_current(&self, key: KeyId, generation: u64) -> bool {
        self.asking
            .get(&key)
            .is_some_and(|asking| asking.generation == generation)
    }

    /// Records the store's answer, unless the key was written since the question: then it returns
    /// false, and what the cache says is newer.
    pub(super) fn finish(
        &mut self,
        index: &mut Index,
        question: Question,
        fact: Fact,
        now: Instant,
    ) -> bool {
        let current = self.is_current(question.key, question.generation);
        if current {
            self.put(index, question.key, fact, now);
        }
        self.abandon(index, question);
        current
    }

    /// Ends a question without an answer.
    pub(super) fn abandon(&mut self, index: &mut Index, question: Question) {
        let Some(asking) = self.asking.get_mut(&question.key) else {
            return;
        };
        asking.questions = asking.questions.saturating_sub(1);
        if asking.questions == 0 {
            self.asking.remove(&question.key);
            index.release(question.key, User::Asked);
        }
    }

    /// Drops everything but the questions under way.
    pub(super) fn clear(&mut self, index: &mut Index) {
        for list in [HITS, MISSES] {
            while let Some(key) = self.entries.first(list).map(|entry| KeyId(entry.key)) {
                self.entries.remove(key);
                index.release(key, User::Cached);
            }
        }
    }

    /// Entries, live or not yet dropped.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn outdate(&mut self, key: KeyId) {
        if let Some(asking) = self.asking.get_mut(&key) {
            asking.generation += 1;
        }
    }

    fn put(&mut self, index: &mut Index, key: KeyId, fact: Fact, now: Instant) {
        let age = self.age(now);
        // Before pruning, which ends the uses of what it drops: this key's row must stay.
        self.entries.remove(key);
        self.prune(index, age);
        let (list, ttl) = match fact {
            Some(_) => (HITS, self.hit_ttl),
            None => (MISSES, self.miss_ttl),
        };
        if ttl.is_zero() {
            index.release(key, User::Cached);
            return;
        }
        let expiry = age.saturating_add(nanoseconds(ttl));
        let entry = Entry {
            key: key.0,
            fact,
            expiry,
        };
        self.entries.insert(list, entry);
        index.keep(key, User::Cached);
    }

    fn prune(&mut self, index: &mut Index, age: u64) {
        for list in [HITS, MISSES] {
            for _ in 0..PRUNED_PER_WRITE {
                let first = self.entries.first(list);
                let Some(key) = first
                    .filter(|entry| entry.expiry <= age)
                    .map(|entry| KeyId(entry.key))
                else {
                    break;
                };
                self.entries.remove(key);
                index.release(key, User::Cached);
            }
        }
    }

    fn age(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.born))
    }
}

/// What no counter holds is for ever, as good as.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: Duration = Duration::from_secs(30);
    const MISS: Duration = Duration::from_secs(2);

    /// A cache, the index below it, and the time when both began.
    struct Fixture {
        index: Index,
        cache: MetadataCache,
        now: Instant,
    }

    impl Fixture {
        fn new(hit: Duration, miss: Duration) -> Self {
            let now = Instant::now();
            Self {
                index: Index::default(),
                cache: MetadataCache::new(hit, miss, now),
                now,
            }
        }

        fn begin(&mut self, n: u64) -> Question {
            self.cache.begin(&mut self.index, &key(n))
        }

        /// Writes as a store does, which tracks the key.
        fn write(&mut self, n: u64, size: Option<u64>, now: Instant) {
            let id = self.index.claim(&key(n), User::Tracked);
            self.cache.write(&mut self.index, id, size.map(known), now);
            self.index.release(id, User::Tracked);
        }

        fn finish(&mut self, question: Question, size: Option<u64>) -> bool {
            let fact = size.map(known);
            self.cache.finish(&mut self.index, question, fact, self.now)
        }

        fn size(&self, n: u64, now: Instant) -> Option<Option<u64>> {
            let id = self.index.find(&key(n))?;
            let fact = self.cache.get(id, now)?;
            Some(fact.map(|known| known.size))
        }
    }

    fn key(n: u64) -> ObjectKey {
        ObjectKey::new("m", n, []).unwrap()
    }

    fn known(size: u64) -> Known {
        Known {
            size,
            version: None,
        }
    }

    #[test]
    fn entries_serve_until_their_expiry() {
        let mut fixture = Fixture::new(HIT, MISS);
        let now = fixture.now;
        fixture.write(1, Some(5), now);
        fixture.write(2, None, now);
        let almost = Duration::from_nanos(1);
        assert_eq!(fixture.size(1, now + HIT - almost), Some(Some(5)));
        assert_eq!(fixture.size(1, now + HIT), None);
        assert_eq!(fixture.size(2, now + MISS - almost), Some(None));
        assert_eq!(fixture.size(2, now + MISS), None);
    }

    #[test]
    fn no_lifetime_never_serves() {
        let mut fixture = Fixture::new(Duration::ZERO, Duration::ZERO);
        fixture.write(1, Some(5), fixture.now);
        assert_eq!(fixture.size(1, fixture.now), None);
        assert_eq!(fixture.cache.len(), 0);
        assert_eq!(fixture.index.find(&key(1)), None);
    }

    #[test]
    fn an_endless_lifetime_is_one() {
        let mut fixture = Fixture::new(Duration::MAX, Duration::MAX);
        fixture.write(1, Some(5), fixture.now);
        assert_eq!(fixture.size(1, fixture.now + HIT), Some(Some(5)));
    }

    #[test]
    fn an_answer_never_overwrites_a_later_write() {
        let mut fixture = Fixture::new(HIT, MISS);
        let now = fixture.now;
        let question = fixture.begin(1);
        fixture.write(1, Some(5), now);
        assert!(!fixture.finish(question, None));
        assert_eq!(fixture.size(1, now), Some(Some(5)));

        let question = fixture.begin(1);
        let id = question.key;
        fixture.cache.forget(&mut fixture.index, id);
        assert!(!fixture.finish(question, Some(5)));
        assert_eq!(fixture.index.find(&key(1)), None);
    }

    #[test]
    fn a_write_outdates_all_questions_and_none_after_it() {
        let mut fixture = Fixture::new(HIT, MISS);
        let now = fixture.now;
        let early = fixture.begin(1);
        fixture.write(1, None, now);
        let late = fixture.begin(1);
        assert!(fixture.finish(late, Some(7)));
        assert!(!fixture.finish(early, Some(5)));
        assert_eq!(fixture.size(1, now), Some(Some(7)));
        assert!(fixture.cache.asking.is_empty());
    }

    #[test]
    fn a_write_of_another_key_leaves_questions_alone() {
        let mut fixture = Fixture::new(HIT, MISS);
        let question = fixture.begin(1);
        fixture.write(2, Some(1), fixture.now);
        assert!(fixture.finish(question, Some(5)));
    }

    #[test]
    fn a_question_without_an_answer_leaves_no_key() {
        let mut fixture = Fixture::new(HIT, MISS);
        let question = fixture.begin(1);
        fixture.cache.abandon(&mut fixture.index, question);
        assert_eq!(fixture.index.find(&key(1)), None);
    }

    #[test]
    fn writes_prune_what_has_expired_a_little_at_a_time() {
        let mut fixture = Fixture::new(HIT, MISS);
        for n in 0..100 {
            fixture.write(n, Some(1), fixture.now);
        }
        assert_eq!(fixture.cache.len(), 100);
        let later = fixture.now + HIT;
        fixture.write(200, Some(1), later);
        assert_eq!(fixture.cache.len(), 100 - PRUNED_PER_WRITE + 1);
        assert_eq!(fixture.index.find(&key(0)), None, "its row went too");
        for n in 0..100 {
            fixture.write(201, Some(n), later);
        }
        assert_eq!(fixture.cache.len(), 2);
    }

    #[test]
    fn a_write_keeps_the_row_whose_old_entry_has_expired() {
        let mut fixture = Fixture::new(HIT, MISS);
        fixture.write(1, Some(5), fixture.now);
        let later = fixture.now + HIT;
        // Nothing but the cache uses the row.
        let id = fixture.index.claim(&key(1), User::Cached);
        fixture.cache.write(&mut fixture.index, id, None, later);
        assert_eq!(fixture.index.find(&key(1)), Some(id));
        assert_eq!(fixture.size(1, later), Some(None));
    }

    #[test]
    fn a_key_is_a_hit_or_a_miss_not_both() {
        let mut fixture = Fixture::new(HIT, MISS);
        let now = fixture.now;
        fixture.write(1, None, now);
        fixture.write(1, Some(3), now);
        assert_eq!(fixture.size(1, now), Some(Some(3)));
        fixture.write(1, None, now);
        assert_eq!(fixture.size(1, now), Some(None));
        assert_eq!(fixture.cache.len(), 1);
        fixture.cache.clear(&mut fixture.index);
        assert_eq!(fixture.index.find(&key(1)), None);
    }

    #[test]
    fn versions_are_kept_to_the_letter() {
        assert_eq!(size_of::<Option<Version>>(), 40);
        let hash = "0f".repeat(32);
        for text in [hash.as_str(), &hash.to_uppercase(), "", "v1", "0f"] {
            let version = Version::from(text.to_owned());
            assert_eq!(version.text(), text);
            assert_eq!(matches!(version, Version::Hash(_)), text == hash);
        }
    }
}
