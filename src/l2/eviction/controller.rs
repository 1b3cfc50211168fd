//! Starts an eviction the moment the cache is too full, and sees it through.
//!
//! One run at a time. A run takes one round after another, each the configured ratio of the keys,
//! until usage is below the watermark or no key can be picked. Keys that could not be deleted are
//! passed over; if a round deletes nothing, the run waits, longer each time, and gives up after a
//! few. Whatever makes room or keys free again (a store, an unlock) starts the next run.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::victim_count;
use crate::l2::adapter::{Inner, L2Adapter};
use crate::l2::config::EvictionConfig;
use crate::l2::delete::DeleteOutcome;
use crate::l2::error::L2Error;
use crate::l2::key::ObjectKey;
use crate::l2::state::State;
use crate::l2::usage::fraction;

/// Victims per delete: what one request of most stores takes.
const PER_DELETE: usize = 1000;
/// Waits after rounds that deleted nothing; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const PAUSES: u32 = 6;

/// When to evict and how much, and whether a run is under way.
#[derive(Debug)]
pub(in crate::l2) struct Controller {
    watermark: f64,
    ratio: f64,
    /// Changed only under the state's lock, so that no wake-up falls between a run's last look and
    /// its end.
    running: watch::Sender<bool>,
}

impl Controller {
    pub(in crate::l2) fn new(config: &EvictionConfig) -> Self {
        Self {
            watermark: config.trigger_watermark,
            ratio: config.eviction_ratio,
            running: watch::Sender::new(false),
        }
    }

    pub(in crate::l2) fn is_running(&self) -> bool {
        *self.running.borrow()
    }
}

impl L2Adapter {
    /// Waits until no eviction is running. Returns at once if none is.
    pub async fn eviction_idle(&self) {
        if let Some(controller) = &self.inner.controller {
            // The sender lives as long as the adapter.
            let _ = controller
                .running
                .subscribe()
                .wait_for(|running| !running)
                .await;
        }
    }
}

impl Inner {
    /// Starts a run if the cache is too full and none is under way.
    pub(in crate::l2) fn wake_eviction(self: &Arc<Self>) {
        let Some(controller) = &self.controller else {
            return;
        };
        {
            let state = self.state.lock();
            if !self.is_over(controller, &state) || controller.is_running() || self.is_closed() {
                return;
            }
            controller.running.send_replace(true);
        }
        let run = Run {
            inner: Arc::clone(self),
            skipped: HashSet::new(),
            ended: false,
        };
        self.spawn(run.finish());
    }

    fn is_over(&self, controller: &Controller, state: &State) -> bool {
        self.capacity > 0 && fraction(state.ledger.total(), self.capacity) >= controller.watermark
    }
}

struct Run {
    inner: Arc<Inner>,
    /// Keys that could not be deleted, until the next pause.
    skipped: HashSet<ObjectKey>,
    ended: bool,
}

/// What a run does next.
enum Next {
    Delete(Vec<ObjectKey>),
    Pause,
    End,
}

impl Run {
    async fn finish(mut self) {
        let mut pauses = 0;
        // What the current round has yet to delete.
        let mut left = 0;
        let mut last_error = None;
        let inner = Arc::clone(&self.inner);
        while let Some(controller) = &inner.controller {
            match self.next(controller, &mut left) {
                Next::End => return,
                Next::Delete(victims) => {
                    let (deleted, error) = self.delete(victims).await;
                    left = left.saturating_sub(deleted);
                    if deleted > 0 {
                        pauses = 0;
                    }
                    last_error = error.or(last_error);
                }
                Next::Pause if pauses < PAUSES => {
                    let pause = FIRST_PAUSE * 2u32.saturating_pow(pauses);
                    pauses += 1;
                    left = 0;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = inner.stop.cancelled() => {}
                    }
                    self.skipped.clear();
                }
                Next::Pause => {
                    let error = last_error.map(|error: L2Error| error.to_string());
                    tracing::warn!(error, "eviction gives up for now: keys cannot be deleted");
                    return;
                }
            }
        }
    }

    /// Decides under the lock, where also the end of the run is noted.
    fn next(&mut self, controller: &Controller, left: &mut usize) -> Next {
        let inner = Arc::clone(&self.inner);
        let mut state = inner.state.lock();
        if *left == 0 {
            if !inner.is_over(controller, &state) {
                return self.end(controller);
            }
            *left = victim_count(state.policy.len(), controller.ratio);
        }
        if inner.stop.is_cancelled() {
            return self.end(controller);
        }
        let State { policy, locks, .. } = &mut *state;
        let victims = policy.select((*left).min(PER_DELETE), &|key| {
            locks.is_free(key) && !self.skipped.contains(key)
        });
        match (victims.is_empty(), self.skipped.is_empty()) {
            (false, _) => Next::Delete(victims),
            (true, false) => Next::Pause,
            (true, true) => self.end(controller),
        }
    }

    fn end(&mut self, controller: &Controller) -> Next {
        self.ended = true;
        controller.running.send_replace(false);
        Next::End
    }

    /// Returns how many were deleted, and an error if there was one.
    async fn delete(&mut self, victims: Vec<ObjectKey>) -> (usize, Option<L2Error>) {
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
        let (mut deleted, mut last_error) = (0, None);
        for (key, outcome) in self.inner.remove(keys, turns).await {
            match outcome {
                DeleteOutcome::Deleted { .. } => deleted += 1,
                DeleteOutcome::Locked => {
                    self.skipped.insert(key);
                }
                DeleteOutcome::Failed(error) => {
                    self.skipped.insert(key);
                    last_error = Some(error);
                }
            }
        }
        tracing::debug!(deleted, "evicted");
        (deleted, last_error)
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
            controller.running.send_replace(false);
        }
    }
}
