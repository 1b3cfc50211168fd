//! Questions to the store about single keys, shared by all who ask the same at the same time.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use hashbrown::HashMap;
use tokio::time::Instant;

use super::adapter::Inner;
use super::error::L2Error;
use super::index::KeyId;
use super::key::ObjectKey;
use super::metadata_cache::{Known, Question};
use super::state::State;

/// Whether a key is a hit, once the store has said so. Whoever waits drives it; when nobody does any
/// more, the question ends.
pub(super) type Answer = Shared<BoxFuture<'static, Result<bool, L2Error>>>;

/// The questions that others may join.
#[derive(Debug, Default)]
pub(super) struct Flights(HashMap<KeyId, Flight>);

#[derive(Debug)]
struct Flight {
    /// Of the question. After a write nobody may join: the answer may be older.
    generation: u64,
    answer: WeakShared<BoxFuture<'static, Result<bool, L2Error>>>,
}

impl Flights {
    fn join(&self, key: KeyId, is_current: impl Fn(u64) -> bool) -> Option<Answer> {
        let flight = self.0.get(&key)?;
        is_current(flight.generation).then(|| flight.answer.upgrade())?
    }

    fn end(&mut self, key: KeyId, generation: u64) {
        if self
            .0
            .get(&key)
            .is_some_and(|flight| flight.generation == generation)
        {
            self.0.remove(&key);
        }
    }
}

pub(super) fn is_hit(fact: Option<&Known>) -> bool {
    fact.is_some_and(|known| known.size > 0)
}

impl State {
    /// What the cache knows of a key.
    pub(super) fn known(&self, key: &ObjectKey, now: Instant) -> Option<Option<&Known>> {
        self.cache.get(self.index.find(key)?, now)
    }

    /// Announces a question about a key.
    pub(super) fn begin(&mut self, key: &ObjectKey) -> Question {
        self.cache.begin(&mut self.index, key)
    }
}

impl Inner {
    /// Asks the store about a key, or joins those who do already.
    pub(super) fn ask(self: &Arc<Self>, state: &mut State, key: &ObjectKey) -> Answer {
        if let Some(id) = state.index.find(key) {
            let is_current = |generation| state.cache.is_current(id, generation);
            if let Some(answer) = state.flights.join(id, is_current) {
                return answer;
            }
        }
        let question = state.begin(key);
        let (id, generation) = (question.key, question.generation);
        let answer = Asked::new(self, key, question).ask().boxed().shared();
        if let Some(weak) = answer.downgrade() {
            let flight = Flight {
                generation,
                answer: weak,
            };
            state.flights.0.insert(id, flight);
        }
        answer
    }
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

    async fn ask(self) -> Result<bool, L2Error> {
        let path = self.inner.namer.path(&self.key)?;
        match self.inner.unless_killed(self.inner.head(&path)).await? {
            Ok(fact) => Ok(self.answer(fact)),
            Err(error) => Err(self.inner.store_error("look up", &path, Arc::new(error))),
        }
    }

    /// Hands the answer in, and returns whether the key is a hit by the newest that is known.
    pub(super) fn answer(mut self, fact: Option<Known>) -> bool {
        let hit = is_hit(fact.as_ref());
        let Some(question) = self.question.take() else {
            return hit;
        };
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        state.flights.end(question.key, question.generation);
        if state.answered(question, fact, now) {
            return hit;
        }
        state.known(&self.key, now).map_or(hit, is_hit)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(question) = self.question.take() {
            let mut state = self.inner.state.lock();
            let state = &mut *state;
            state.flights.end(question.key, question.generation);
            state.cache.abandon(&mut state.index, question);
        }
    }
}
