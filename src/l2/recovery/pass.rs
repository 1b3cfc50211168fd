//! One listing of the pool.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use object_store::ObjectMeta;
use tokio::time::Instant;

use super::{Recovery, RecoveryPhase};
use crate::l2::adapter::Inner;
use crate::l2::error::L2Error;
use crate::l2::events::{EventEntry, EventKind};
use crate::l2::index::KeyId;
use crate::l2::key::ObjectKey;
use crate::l2::listing::Listed;

/// Objects that are taken over at a time; between, others get the lock and the runtime.
const PER_STEP: usize = 1000;

/// A key that was not tracked, and when its object was uploaded (milliseconds).
type Found = (i64, KeyId);

impl Inner {
    /// Whether the pool was listed to its end since the adapter was opened.
    pub(in crate::l2) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Lists the pool; with `once`, only if that has not been done yet when it is our turn.
    pub(super) async fn list_pool(self: &Arc<Self>, once: bool) -> Result<Recovery, L2Error> {
        let _turn = self.listing_turn.lock().await;
        if once && self.is_listed() {
            return Ok(self.recovery.borrow().clone());
        }
        let mark = self.change_mark().await;
        let mut pass = Pass::begin(self);
        let listed = pass.list().await;
        let ordered = pass.order().await;
        if let Err(error) = listed.and(ordered) {
            pass.fail(&error);
            return Err(error);
        }
        pass.sweep().await;
        *self.last_mark.lock() = mark;
        self.listed.store(true, Ordering::Release);
        Ok(pass.finish())
    }

    /// What the store says of changes; `None` if it does not.
    pub(super) async fn change_mark(&self) -> Option<String> {
        match self.mark.as_ref()?.change_mark().await {
            Ok(mark) => mark,
            Err(error) => {
                tracing::debug!(%error, "the store does not say whether it changed");
                None
            }
        }
    }
}

/// A listing under way; it ends when this is dropped.
struct Pass<'a> {
    inner: &'a Arc<Inner>,
    /// The first one: what it finds is older than all that is known.
    first: bool,
    started: Instant,
    progress: Recovery,
    found: Vec<Found>,
}

impl<'a> Pass<'a> {
    fn begin(inner: &'a Arc<Inner>) -> Self {
        let first = !inner.is_listed();
        {
            let mut state = inner.state.lock();
            state.begin_listing();
            state.listing.unordered = first;
        }
        let pass = Self {
            inner,
            first,
            started: Instant::now(),
            progress: Recovery {
                phase: RecoveryPhase::Listing,
                ..Recovery::default()
            },
            found: Vec::new(),
        };
        pass.show();
        pass
    }

    async fn list(&mut self) -> Result<(), L2Error> {
        let prefix = self.inner.namer.prefix();
        let below = Some(prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let mut objects = self.inner.store.list(below);
        let mut step = Vec::with_capacity(PER_STEP);
        loop {
            let next = objects.next().await;
            match next {
                Some(Ok(object)) => step.push(object),
                None => break,
                // A pool that nobody has stored anything in yet.
                Some(Err(object_store::Error::NotFound { .. })) if self.is_empty(&step) => break,
                Some(Err(error)) => {
                    self.take(&mut step);
                    return Err(self.inner.store_error("list", prefix, Arc::new(error)));
                }
            }
            if step.len() == PER_STEP {
                self.take(&mut step);
                tokio::task::yield_now().await;
            }
        }
        self.take(&mut step);
        Ok(())
    }

    fn is_empty(&self, step: &[ObjectMeta]) -> bool {
        step.is_empty() && self.progress.listed_objects == 0
    }

    /// Counts what the store listed.
    fn take(&mut self, objects: &mut Vec<ObjectMeta>) {
        let keys: Vec<(ObjectKey, ObjectMeta)> = objects
            .drain(..)
            .filter_map(|object| match self.inner.namer.key(&object.location) {
                Some(key) => Some((key, object)),
                None => {
                    self.progress.foreign_objects += 1;
                    self.progress.listed_objects += 1;
                    None
                }
            })
            .collect();
        let mut state = self.inner.state.lock();
        let mut recovered = Vec::new();
        for (key, object) in keys {
            self.progress.listed_objects += 1;
            self.progress.listed_bytes = self.progress.listed_bytes.saturating_add(object.size);
            let busy = self.inner.gates.is_busy(&key);
            if let Listed::New(id) = state.listed(&key, object.size, busy) {
                let uploaded = object.last_modified.timestamp_millis();
                self.found.push((uploaded, id));
                self.progress.recovered_keys += 1;
                recovered.push((key, object.size));
            }
        }
        state.events.publish(EventKind::Recovered, || {
            let recovered = recovered.into_iter();
            recovered
                .map(|(key, size)| EventEntry::new(key, size))
                .collect()
        });
        drop(state);
        self.show();
    }

    /// Tells the policy of the keys found, in the order of their uploads.
    async fn order(&mut self) -> Result<(), L2Error> {
        self.progress.phase = RecoveryPhase::Ordering;
        self.show();
        let found = std::mem::take(&mut self.found);
        let first = self.first;
        // Millions are sorted in a fraction of a second, which is too long for the runtime.
        let sorted = tokio::task::spawn_blocking(move || sort(found, first));
        let found = sorted.await.map_err(|error| super::lost(&error))?;
        for step in found.chunks(PER_STEP) {
            let ids: Vec<KeyId> = step.iter().map(|(_, id)| *id).collect();
            self.inner.state.lock().found(&ids, first);
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Forgets the tracked keys that were not listed.
    async fn sweep(&mut self) {
        let mut from = 0;
        while let Some(to) = self.sweep_step(from) {
            from = to;
            tokio::task::yield_now().await;
        }
    }

    /// The same for some rows; returns where to go on.
    fn sweep_step(&mut self, from: u32) -> Option<u32> {
        let gates = &self.inner.gates;
        let mut state = self.inner.state.lock();
        let end = state.index.end();
        let to = from.saturating_add(PER_STEP as u32).min(end);
        let vanished = state.sweep(from, to, &|key| gates.is_busy(key));
        self.progress.vanished_keys += vanished as u64;
        (to < end).then_some(to)
    }

    fn finish(mut self) -> Recovery {
        self.progress.phase = RecoveryPhase::Done;
        self.show();
        let Recovery {
            listed_objects,
            foreign_objects,
            recovered_keys,
            vanished_keys,
            ..
        } = self.progress;
        tracing::info!(
            listed_objects,
            foreign_objects,
            recovered_keys,
            vanished_keys,
            elapsed = ?self.progress.elapsed,
            "listed the pool"
        );
        self.progress.clone()
    }

    fn fail(&mut self, error: &L2Error) {
        tracing::warn!(%error, "the pool could not be listed");
        self.progress.phase = RecoveryPhase::Failed;
        self.progress.error = Some(error.to_string());
        self.show();
    }

    fn show(&self) {
        let shown = Recovery {
            elapsed: self.started.elapsed(),
            ..self.progress.clone()
        };
        self.inner.recovery.send_replace(shown);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.inner.state.lock();
            state.end_listing();
            // Done, or as good as it gets: from here on eviction may choose.
            state.listing.unordered = false;
        }
        self.inner.count_used();
        if self.inner.recovery.borrow().is_running() {
            self.progress.phase = RecoveryPhase::Failed;
            self.progress.error = Some(L2Error::Closed.to_string());
            self.show();
        }
        self.inner.wake_eviction();
        // After the wake-up: who waits for it and for the eviction misses neither.
        self.inner.ordered.send_replace(true);
    }
}

/// For the first listing newest first, since each goes below the last; later oldest first.
fn sort(mut found: Vec<Found>, newest_first: bool) -> Vec<Found> {
    if newest_first {
        found.sort_unstable_by_key(|(uploaded, id)| Reverse((*uploaded, *id)));
    } else {
        found.sort_unstable();
    }
    found
}
