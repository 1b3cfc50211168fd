//! The locks on what a lookup found.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::adapter::Inner;
use super::key::ObjectKey;
use super::locks::Held;

/// Locks on keys, one per occurrence in the lookup; dropping releases them.
///
/// [`L2Adapter::unlock`](super::L2Adapter::unlock) and the guard go together: a lock that was
/// unlocked by key is not released a second time by its guard, and no other lookup loses its lock to
/// it.
#[must_use = "dropping it releases the locks"]
pub struct LockGuard {
    inner: Arc<Inner>,
    keys: Vec<ObjectKey>,
    /// By position of the key.
    held: Vec<Held>,
}

impl LockGuard {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            keys: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The locked keys, duplicates as often as they were looked up.
    pub fn keys(&self) -> &[ObjectKey] {
        &self.keys
    }

    /// Releases the locks now.
    pub fn release(self) {}

    /// Gives the guard up and keeps the locks; only [`L2Adapter::unlock`](super::L2Adapter::unlock)
    /// ends them, or their lease. For callers that cannot hold a value from lookup to unlock.
    pub fn detach(mut self) {
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        self.keys.clear();
        for held in self.held.drain(..) {
            state.locks.detach(&mut state.index, held);
        }
    }

    /// Begins the leases anew, for work that takes longer than
    /// [`lock_ttl_secs`](super::L2Config::lock_ttl_secs). False if a lease was over already: that
    /// key may be gone. Without leases nothing happens, and it is true.
    pub fn renew(&self) -> bool {
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        state.locks.lapse(&mut state.index, now);
        let mut alive = true;
        for held in &self.held {
            alive &= state.locks.keep(*held, now);
        }
        alive
    }

    pub(super) fn push(&mut self, key: ObjectKey, held: Held) {
        self.keys.push(key);
        self.held.push(held);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.keys.append(&mut other.keys);
        self.held.append(&mut other.held);
    }

    /// Releases the locks on keys that turned out to be misses.
    pub(super) fn keep(&mut self, hit: impl Fn(&ObjectKey) -> bool) {
        let keys = std::mem::take(&mut self.keys);
        let held = std::mem::take(&mut self.held);
        let mut misses = Vec::new();
        for (key, held) in keys.into_iter().zip(held) {
            if hit(&key) {
                self.push(key, held);
            } else {
                misses.push(held);
            }
        }
        self.end(misses);
    }

    /// Releases all but the first locks.
    pub(super) fn truncate(&mut self, len: usize) {
        self.keys.truncate(len);
        let rest = self.held.split_off(len.min(self.held.len()));
        self.end(rest);
    }

    fn end(&self, held: Vec<Held>) {
        if held.is_empty() {
            return;
        }
        {
            let mut state = self.inner.state.lock();
            let state = &mut *state;
            for held in held {
                state.locks.release(&mut state.index, held);
            }
        }
        // A full cache may have waited for these.
        self.inner.wake_eviction();
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.end(held);
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
