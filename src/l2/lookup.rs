//! Looking up a batch.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use tracing::Instrument;

use super::adapter::{Entered, Inner, L2Adapter};
use super::bitmap::Bitmap;
use super::error::L2Error;
use super::events::{EventEntry, EventKind};
use super::guard::LockGuard;
use super::key::ObjectKey;
use super::question::{Answer, is_hit};

/// Keys of a prefix that are asked for first, and how much more each further question asks for.
const FIRST_WINDOW: usize = 64;
const WINDOW_GROWTH: usize = 4;

/// Which keys were found. They are locked until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it releases the locks"]
#[non_exhaustive]
pub struct Lookup {
    /// By submitted position: whether the object is there and not empty, and locked.
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

impl L2Adapter {
    /// Finds out which keys are stored, and locks those that are: nothing of this adapter deletes or
    /// evicts them until the lock ends.
    ///
    /// What the cache knows is answered at once; the other distinct keys are asked for concurrently,
    /// and lookups that ask for the same key at the same time share one question. Empty objects are
    /// misses, and so are keys that are being deleted. If the store cannot be asked, a key is a miss,
    /// [`Lookup::errors`] says why, and nothing is remembered.
    ///
    /// Each hit counts as used, in the order given. Locks are local to this adapter and do not expire
    /// unless [`lock_ttl_secs`](super::L2Config::lock_ttl_secs) is set; an adapter of another process
    /// can still delete the object.
    pub async fn lookup_and_lock(&self, keys: &[ObjectKey]) -> Lookup {
        let lookup = self
            .lookup_entered(self.inner.enter(), keys, Mode::All)
            .await;
        self.inner.accessed(&lookup).tell(&self.inner);
        lookup
    }

    /// The same, but stops at the first miss: what a prompt can take from the cache is a prefix of
    /// its chunks, and what lies beyond a missing one is of no use.
    ///
    /// Positions after the first miss are reported as misses and not locked, whatever is stored.
    /// Long prompts are asked for in a few growing windows, so that a miss near the start saves the
    /// questions about the rest.
    pub async fn lookup_prefix_and_lock(&self, keys: &[ObjectKey]) -> Lookup {
        let lookup = self
            .lookup_entered(self.inner.enter(), keys, Mode::Prefix)
            .await;
        self.inner.accessed(&lookup).tell(&self.inner);
        lookup
    }

    /// Ends one lock per occurrence of each key; keys without a lock are ignored.
    pub fn unlock(&self, keys: &[ObjectKey]) {
        let mut ended = false;
        {
            let mut state = self.inner.state.lock();
            let state = &mut *state;
            for key in keys {
                ended |= state.locks.unlock(&mut state.index, key);
            }
        }
        if ended {
            self.inner.wake_eviction();
        }
    }
}

/// Which keys of a lookup are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    All,
    /// Those before the first miss.
    Prefix,
}

/// What is found out about each position of a lookup.
type Found = Vec<Result<bool, L2Error>>;

/// The hits of a lookup, for listeners. Told by itself, because a task has something to do before.
pub(super) struct Accessed(Vec<EventEntry>);

impl Accessed {
    pub(super) fn tell(self, inner: &Inner) {
        let state = inner.state.lock();
        state.events.publish(EventKind::Accessed, || self.0);
    }
}

impl L2Adapter {
    /// A lookup that tells nobody of its hits yet.
    pub(super) async fn lookup_entered(
        &self,
        entered: Entered,
        keys: &[ObjectKey],
        mode: Mode,
    ) -> Lookup {
        let inner = &self.inner;
        let _work = match entered {
            Ok(work) => work,
            Err(error) => return Lookup::failed(inner, keys.len(), &error),
        };
        let started = Instant::now();
        let span = tracing::debug_span!("l2_lookup", keys = keys.len());
        let mut guard = LockGuard::new(inner);
        let found = match mode {
            Mode::All => inner.find(keys, &mut guard).instrument(span).await,
            Mode::Prefix => inner.find_prefix(keys, &mut guard).instrument(span).await,
        };
        let lookup = Lookup {
            bitmap: found
                .iter()
                .map(|found| matches!(found, Ok(true)))
                .collect(),
            errors: found
                .into_iter()
                .enumerate()
                .filter_map(|(position, found)| Some((position, found.err()?)))
                .collect(),
            guard,
        };
        inner.state.lock().touched(lookup.guard.keys());
        inner.stats.looked_up(keys.len(), lookup.hits(), started);
        lookup
    }
}

impl Inner {
    /// What to tell listeners of a lookup; nothing if there are none.
    pub(super) fn accessed(&self, lookup: &Lookup) -> Accessed {
        let state = self.state.lock();
        if !state.events.is_heard() {
            return Accessed(Vec::new());
        }
        let entry = |key: &ObjectKey| {
            let size = state.index.find(key).and_then(|id| state.index.size(id));
            EventEntry::new(key.clone(), size.unwrap_or(0))
        };
        Accessed(lookup.guard.keys().iter().map(entry).collect())
    }

    /// Looks all keys up and locks the hits.
    async fn find(self: &Arc<Self>, keys: &[ObjectKey], guard: &mut LockGuard) -> Found {
        let (mut answers, asked) = self.plan(keys, guard);
        let asked = asked
            .into_iter()
            .map(async |(key, answer)| (key, answer.await));
        for (key, answer) in join_all(asked).await {
            answers.insert(key.clone(), answer);
        }
        guard.keep(|key| matches!(answers.get(key), Some(Ok(true))));
        keys.iter()
            .map(|key| answers.get(key).cloned().unwrap_or(Ok(false)))
            .collect()
    }

    /// Looks keys up until one is missing, and locks those before.
    async fn find_prefix(self: &Arc<Self>, keys: &[ObjectKey], guard: &mut LockGuard) -> Found {
        let mut found = Found::with_capacity(keys.len());
        let mut window = FIRST_WINDOW;
        while let Some(rest) = keys.get(found.len()..).filter(|rest| !rest.is_empty()) {
            let asked = rest.get(..window).unwrap_or(rest);
            let mut locks = LockGuard::new(self);
            let answers = self.find(asked, &mut locks).await;
            let hits = answers
                .iter()
                .take_while(|found| matches!(found, Ok(true)))
                .count();
            locks.truncate(hits);
            guard.append(locks);
            found.extend(answers.into_iter().take(hits + 1));
            if hits < asked.len() {
                break;
            }
            window = window.saturating_mul(WINDOW_GROWTH);
        }
        found.resize(keys.len(), Ok(false));
        found
    }

    /// Locks every occurrence of every key that may be locked, answers what the cache knows, and
    /// returns the questions for the rest. Locks come first: a key that is confirmed afterwards
    /// cannot be deleted in between.
    fn plan<'a>(
        self: &Arc<Self>,
        keys: &'a [ObjectKey],
        guard: &mut LockGuard,
    ) -> (Answers, HashMap<&'a ObjectKey, Answer>) {
        let now = Instant::now();
        let mut answers = Answers::with_capacity(keys.len());
        let mut asked = HashMap::new();
        let mut state = self.state.lock();
        let state = &mut *state;
        for key in keys {
            match state.locks.acquire(&mut state.index, key, now) {
                Some(held) => guard.push(key.clone(), held),
                None => {
                    answers.insert(key.clone(), Ok(false));
                }
            }
            if answers.contains_key(key) || asked.contains_key(key) {
                continue;
            }
            match state.known(key, now) {
                Some(fact) => {
                    answers.insert(key.clone(), Ok(is_hit(fact)));
                }
                None => {
                    asked.insert(key, self.ask(state, key));
                }
            }
        }
        self.locked.notify_one();
        (answers, asked)
    }
}

type Answers = HashMap<ObjectKey, Result<bool, L2Error>>;
