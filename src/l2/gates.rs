//! One writer per key: stores and deletes of the same key take turns.
//!
//! Without turns nobody could say whether an object exists after a store and a delete of it ran at
//! once, since a store need not answer in the order in which it acted.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::key::ObjectKey;

type Turns = Arc<Mutex<HashMap<ObjectKey, Arc<AsyncMutex<()>>>>>;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gates {
    turns: Turns,
}

/// A turn; ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    key: ObjectKey,
    /// `None` only while it is dropped.
    guard: Option<OwnedMutexGuard<()>>,
    turns: Turns,
}

impl Gates {
    /// Waits for a turn, first come, first served.
    pub(super) async fn wait(&self, key: &ObjectKey) -> Turn {
        let mut turn = self.queue(key);
        let queued = self.entry(key);
        turn.guard = Some(queued.lock_owned().await);
        turn
    }

    /// A turn, if nobody has one.
    pub(super) fn try_now(&self, key: &ObjectKey) -> Option<Turn> {
        let mut turn = self.queue(key);
        turn.guard = Some(self.entry(key).try_lock_owned().ok()?);
        Some(turn)
    }

    /// Whether someone has a turn or waits for one.
    pub(super) fn is_busy(&self, key: &ObjectKey) -> bool {
        self.turns.lock().contains_key(key)
    }

    /// Made before the wait, so that a cancelled wait cleans up too.
    fn queue(&self, key: &ObjectKey) -> Turn {
        Turn {
            key: key.clone(),
            guard: None,
            turns: Arc::clone(&self.turns),
        }
    }

    fn entry(&self, key: &ObjectKey) -> Arc<AsyncMutex<()>> {
        let mut turns = self.turns.lock();
        Arc::clone(turns.entry(key.clone()).or_default())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        self.guard = None;
        // Clones are made under this lock only, so a count of one stays one.
        if let Some(turn) = turns.get(&self.key)
            && Arc::strong_count(turn) == 1
        {
            turns.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn key(n: u8) -> ObjectKey {
        ObjectKey::new("m", 0, [n]).unwrap()
    }

    #[tokio::test]
    async fn turns_are_per_key_and_leave_nothing_behind() {
        let gates = Gates::default();
        let one = key(1);
        let first = gates.wait(&one).await;
        assert!(gates.try_now(&one).is_none());
        assert!(gates.try_now(&key(2)).is_some());

        let mut second = Box::pin(gates.wait(&one));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        assert!(gates.try_now(&one).is_none());
        drop(second);
        assert!(gates.turns.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let gates = Gates::default();
        let one = key(1);
        let first = gates.wait(&one).await;
        let mut waiting = Box::pin(gates.wait(&one));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        drop(waiting);
        assert!(gates.turns.lock().is_empty());
    }
}
