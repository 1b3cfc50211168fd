//! Looking up a batch, and the locks on what was found.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;

use super::adapter::{Entered, Inner, L2Adapter};
use super::bitmap::Bitmap;
use super::error::L2Error;
use super::key::ObjectKey;
use super::metadata_cache::{Known, Question};

/// Which keys were found. They are locked until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it releases the locks"]
#[non_exhaustive]
pub struct Lookup {
    /// By submitted position: whether the object is there and not empty.
    pub bitmap: Bitmap,
    /// Positions that are misses because the store could not be asked, and why.
    pub errors: Vec<(usize, L2Error)>,
    /// The locks on the hits.
    pub guard: LockGuard,
}

impl Lookup {
    /// How many leading keys were found: what a prompt can take from the cache.
    pub fn prefix_hits(&self) -> usize {
        self.bitmap.leading_ones()
    }

    /// How many keys were found.
    pub fn hits(&self) -> usize {
        self.bitmap.count_ones()
    }

    /// The locks alone.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    pub(super) fn failed(inner: &Arc<Inner>, keys: usize, error: &L2Error) -> Self {
        Self {
            bitmap: std::iter::repeat_n(false, keys).collect(),
            errors: (0..keys)
                .map(|position| (position, error.clone()))
                .collect(),
            guard: LockGuard::new(inner),
        }
    }
}

/// Locks on keys, one per occurrence in the lookup; dropping releases them.
///
/// [`L2Adapter::unlock`] and the guard go together: a lock that was unlocked by key is not released
/// a second time by its guard, and no other lookup loses its lock to it.
#[must_use = "dropping it releases the locks"]
pub struct LockGuard {
    inner: Arc<Inner>,
    keys: Vec<ObjectKey>,
}

impl LockGuard {
    fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            keys: Vec::new(),
        }
    }

    /// The locked keys, duplicates as often as they were looked up.
    pub fn keys(&self) -> &[ObjectKey] {
        &self.keys
    }

    /// Releases the locks now.
    pub fn release(self) {}

    /// Gives the guard up and keeps the locks; only [`L2Adapter::unlock`] ends them. For callers
    /// that cannot hold a value from lookup to unlock.
    pub fn detach(mut self) {
        let mut state = self.inner.state.lock();
        for key in std::mem::take(&mut self.keys) {
            state.locks.detach(&key);
        }
    }

    /// Releases the locks on keys that turned out to be misses.
    fn keep(&mut self, hit: impl Fn(&ObjectKey) -> bool) {
        let before = self.keys.len();
        {
            let mut state = self.inner.state.lock();
            self.keys.retain(|key| {
                let keep = hit(key);
                if !keep {
                    state.locks.release(key);
                }
                keep
            });
        }
        if self.keys.len() < before {
            self.inner.wake_eviction();
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        {
            let mut state = self.inner.state.lock();
            for key in &self.keys {
                state.locks.release(key);
            }
        }
        // A full cache may have waited for these.
        self.inner.wake_eviction();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys)
            .finish()
    }
}

impl L2Adapter {
    /// Finds out which keys are stored, and locks those that are: nothing of this adapter deletes or
    /// evicts them until the lock ends.
    ///
    /// What the cache knows is answered at once; the other distinct keys are asked for concurrently.
    /// Empty objects are misses, and so are keys that are being deleted. If the store cannot be
    /// asked, a key is a miss, [`Lookup::errors`] says why, and nothing is remembered.
    ///
    /// Each hit counts as used, in the order given. Locks are local to this adapter and never
    /// expire; an adapter of another process can still delete the object.
    pub async fn lookup_and_lock(&self, keys: &[ObjectKey]) -> Lookup {
        self.lookup_entered(self.inner.enter(), keys).await
    }

    pub(super) async fn lookup_entered(&self, entered: Entered, keys: &[ObjectKey]) -> Lookup {
        let _work = match entered {
            Ok(work) => work,
            Err(error) => return Lookup::failed(&self.inner, keys.len(), &error),
        };
        let mut guard = LockGuard::new(&self.inner);
        let (mut answers, asked) = self.inner.plan(keys, &mut guard);
        for (key, answer) in join_all(asked.into_iter().map(Asked::ask)).await {
            answers.insert(key, answer);
        }
        let is_hit = |key: &ObjectKey| matches!(answers.get(key), Some(Ok(true)));
        guard.keep(is_hit);
        let hits: Vec<ObjectKey> = keys.iter().filter(|key| is_hit(key)).cloned().collect();
        self.inner.state.lock().policy.touched(&hits);
        Lookup {
            bitmap: keys.iter().map(is_hit).collect(),
            errors: keys
                .iter()
                .enumerate()
                .filter_map(|(position, key)| match answers.get(key) {
                    Some(Err(error)) => Some((position, error.clone())),
                    _ => None,
                })
                .collect(),
            guard,
        }
    }

    /// Ends one lock per occurrence of each key; keys without a lock are ignored.
    pub fn unlock(&self, keys: &[ObjectKey]) {
        let mut ended = false;
        {
            let mut state = self.inner.state.lock();
            for key in keys {
                ended |= state.locks.unlock(key);
            }
        }
        if ended {
            self.inner.wake_eviction();
        }
    }
}

type Answers = HashMap<ObjectKey, Result<bool, L2Error>>;

impl Inner {
    /// Locks every occurrence of every key that may be locked, answers what the cache knows, and
    /// returns the questions for the rest. Locks come first: a key that is confirmed afterwards
    /// cannot be deleted in between.
    fn plan(self: &Arc<Self>, keys: &[ObjectKey], guard: &mut LockGuard) -> (Answers, Vec<Asked>) {
        let now = Instant::now();
        let mut answers = Answers::with_capacity(keys.len());
        let mut asked: HashMap<&ObjectKey, Asked> = HashMap::new();
        let mut state = self.state.lock();
        for key in keys {
            if state.locks.acquire(key) {
                guard.keys.push(key.clone());
            } else {
                answers.insert(key.clone(), Ok(false));
            }
            if answers.contains_key(key) || asked.contains_key(key) {
                continue;
            }
            match state.cache.get(key, now) {
                Some(fact) => {
                    answers.insert(key.clone(), Ok(is_hit(fact)));
                }
                None => {
                    let question = state.cache.begin(key);
                    asked.insert(key, Asked::new(self, key, question));
                }
            }
        }
        drop(state);
        (answers, asked.into_values().collect())
    }
}

fn is_hit(fact: Option<&Known>) -> bool {
    fact.is_some_and(|known| known.size > 0)
}

/// A question under way, which ends also if nobody waits for the answer any more.
pub(super) struct Asked {
    inner: Arc<Inner>,
    key: ObjectKey,
    question: Option<Question>,
}

impl Asked {
    pub(super) fn new(inner: &Arc<Inner>, key: &ObjectKey, question: Question) -> Self {
        Self {
            inner: Arc::clone(inner),
            key: key.clone(),
            question: Some(question),
        }
    }

    async fn ask(self) -> (ObjectKey, Result<bool, L2Error>) {
        let key = self.key.clone();
        let path = match self.inner.namer.path(&key) {
            Ok(path) => path,
            Err(error) => return (key, Err(error.into())),
        };
        let answer = match self.inner.unless_killed(self.inner.head(&path)).await {
            Ok(Ok(fact)) => Ok(self.answer(fact)),
            Ok(Err(error)) => Err(self.inner.store_error("look up", &path, Arc::new(error))),
            Err(closed) => Err(closed),
        };
        (key, answer)
    }

    /// Hands the answer in, and returns whether the key is a hit by the newest that is known.
    pub(super) fn answer(mut self, fact: Option<Known>) -> bool {
        let hit = is_hit(fact.as_ref());
        let Some(question) = self.question.take() else {
            return hit;
        };
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        if state.answered(&self.key, question, fact, now) {
            return hit;
        }
        state.cache.get(&self.key, now).map_or(hit, is_hit)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(question) = self.question.take() {
            self.inner.state.lock().cache.abandon(&self.key, question);
        }
    }
}
