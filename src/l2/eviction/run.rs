//! One eviction, from too full to below the watermark.
//!
//! A run takes one round after another, each the configured ratio, until nothing is too full or no
//! key can be picked. Keys that could not be deleted are passed over; if nothing else is left, or
//! very many failed in a row, the run waits, longer each time, and gives up after a few waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::controller::Controller;
use super::need::Need;
use super::{Scope, Selection, Visit};
use crate::l2::adapter::Inner;
use crate::l2::delete::{Cause, DeleteOutcome};
use crate::l2::error::L2Error;
use crate::l2::index::KeyId;
use crate::l2::key::ObjectKey;
use crate::l2::state::State;

/// Victims per delete: what one request of most stores takes.
const PER_DELETE: usize = 1000;
/// Keys that one selection passes over at most, so that the lock is soon free again.
const MOST_PASSED: usize = 4096;
/// Keys that could not be deleted, of which a run remembers so many before it waits.
const MOST_SKIPPED: usize = 4 * PER_DELETE;
/// Keys that fail in a row before a run waits.
const MOST_FAILED: usize = PER_DELETE;
/// Waits after deletes that failed; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const PAUSES: u32 = 6;

pub(super) struct Run {
    inner: Arc<Inner>,
    /// Keys that could not be deleted, until the next pause.
    skipped: HashSet<ObjectKey>,
    /// Where nothing can be picked, until the next pause.
    stuck: HashSet<Scope>,
    round: Option<Need>,
    /// Keys passed over since one was picked.
    passed: usize,
    /// Keys that could not be deleted since one was.
    failed: usize,
    ended: bool,
}

/// What a run does next.
enum Next {
    Delete(Vec<ObjectKey>),
    /// Others may want the lock.
    LookAgain,
    Pause,
    End,
}

/// What became of a delete.
#[derive(Default)]
struct Deleted {
    keys: usize,
    bytes: u64,
    failed: usize,
    error: Option<L2Error>,
}

impl Run {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            skipped: HashSet::new(),
            stuck: HashSet::new(),
            round: None,
            passed: 0,
            failed: 0,
            ended: false,
        }
    }

    pub(super) async fn finish(mut self) {
        let mut pauses = 0;
        let mut last_error = None;
        let inner = Arc::clone(&self.inner);
        while let Some(controller) = &inner.controller {
            let mut pause = false;
            match self.next(controller) {
                Next::End => return,
                Next::LookAgain => tokio::task::yield_now().await,
                Next::Delete(victims) => {
                    let deleted = self.delete(victims).await;
                    if let Some(round) = &mut self.round {
                        round.budget.spend(deleted.keys, deleted.bytes);
                    }
                    self.failed += deleted.failed;
                    if deleted.keys > 0 {
                        (pauses, self.failed) = (0, 0);
                    }
                    pause = self.failed >= MOST_FAILED;
                    last_error = deleted.error.or(last_error);
                }
                Next::Pause => {
                    self.skipped.clear();
                    pause = true;
                }
            }
            if pause && pauses == PAUSES {
                let error = last_error.map(|error: L2Error| error.to_string());
                tracing::warn!(error, "eviction gives up for now: keys cannot be deleted");
                return;
            }
            if pause {
                self.pause(FIRST_PAUSE * 2u32.saturating_pow(pauses)).await;
                pauses += 1;
            }
        }
    }

    /// Waits, and looks everywhere again. Keys that failed are still passed over as long as there are
    /// others, or a few of them at the old end would be all that is ever tried.
    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.inner.stop.cancelled() => {}
        }
        if self.skipped.len() > MOST_SKIPPED {
            self.skipped.clear();
        }
        self.stuck.clear();
        (self.round, self.failed) = (None, 0);
    }

    /// Decides under the lock, where also the end of the run is noted.
    fn next(&mut self, controller: &Controller) -> Next {
        let inner = Arc::clone(&self.inner);
        let mut state = inner.state.lock();
        loop {
            if inner.stop.is_cancelled() {
                return self.end(controller);
            }
            if self.round.is_none_or(|round| round.budget.is_spent()) {
                self.round = controller.need(&state, &self.stuck);
            }
            let Some(need) = self.round else {
                return match self.skipped.is_empty() {
                    true => self.end(controller),
                    false if controller.is_over(&state) => Next::Pause,
                    false => self.end(controller),
                };
            };
            let selection = self.select(&mut state, need);
            if !selection.victims.is_empty() {
                self.passed = 0;
                let keys = selection.victims.iter();
                return Next::Delete(keys.filter_map(|id| state.index.key(*id)).collect());
            }
            // All keys of the scope were passed over, be it in several looks.
            if selection.exhausted || self.passed >= state.policy.len(need.scope) {
                self.stuck.insert(need.scope);
                (self.round, self.passed) = (None, 0);
                continue;
            }
            return Next::LookAgain;
        }
    }

    /// Picks victims for one delete. Keys in use that are in the way move to the young end, which is
    /// where use puts them, so that the next look need not pass over them again.
    fn select(&mut self, state: &mut State, need: Need) -> Selection {
        let mut budget = need.budget;
        let mut in_use = Vec::new();
        let (mut taken, mut passed) = (0, 0);
        let State {
            policy,
            locks,
            index,
            ..
        } = state;
        let skipped = &self.skipped;
        let is_skipped = |id: KeyId| {
            !skipped.is_empty() && index.key(id).is_some_and(|key| skipped.contains(&key))
        };
        let selection = policy.select(need.scope, &mut |id| {
            if budget.is_spent() || taken == PER_DELETE || passed == MOST_PASSED {
                return Visit::Stop;
            }
            if locks.is_free(id) && !is_skipped(id) {
                budget.spend(1, index.size(id).unwrap_or(0));
                taken += 1;
                return Visit::Take;
            }
            passed += 1;
            if locks.is_held(id) {
                in_use.push(id);
            }
            Visit::Pass
        });
        // Taken back to front, as all uses: the first passed over stays the oldest of them.
        in_use.reverse();
        policy.touched(&in_use);
        self.passed += passed;
        selection
    }

    fn end(&mut self, controller: &Controller) -> Next {
        self.ended = true;
        controller.set_running(false);
        Next::End
    }

    async fn delete(&mut self, victims: Vec<ObjectKey>) -> Deleted {
        let mut keys = Vec::with_capacity(victims.len());
        let mut turns = Vec::with_capacity(victims.len());
        for key in victims {
            match self.inner.gates.try_now(&key) {
                Some(turn) => {
                    turns.push(turn);
                    keys.push(key);
                }
                // Being stored or deleted at this moment.
                None => {
                    self.skipped.insert(key);
                }
            }
        }
        let mut deleted = Deleted::default();
        for (key, outcome) in self.inner.remove(keys, turns, Cause::Eviction).await {
            match outcome {
                DeleteOutcome::Deleted { bytes } => {
                    deleted.keys += 1;
                    deleted.bytes = deleted.bytes.saturating_add(bytes);
                }
                DeleteOutcome::Locked => {
                    self.skipped.insert(key);
                }
                DeleteOutcome::Failed(error) => {
                    self.skipped.insert(key);
                    deleted.failed += 1;
                    deleted.error = Some(error);
                }
            }
        }
        tracing::debug!(
            keys = deleted.keys,
            bytes = deleted.bytes,
            failed = deleted.failed,
            "evicted"
        );
        deleted
    }
}

impl Drop for Run {
    /// However the run ends, the next one can start.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Some(controller) = &self.inner.controller {
            let _state = self.inner.state.lock();
            controller.set_running(false);
        }
    }
}
