//! Whether a store may add to what is there.

use std::sync::Arc;

use object_store::path::Path;

use super::adapter::Inner;
use super::config::Admission;
use super::error::L2Error;
use super::key::ObjectKey;
use super::state::State;

/// Room that a store under way may fill. Given back when its object is counted, or when dropped.
pub(super) struct Room {
    inner: Arc<Inner>,
    bytes: u64,
}

impl Room {
    /// Gives it back under the lock under which the object is counted, so that nobody sees the object
    /// twice.
    pub(super) fn fill(mut self, state: &mut State) {
        state.reserved = state
            .reserved
            .saturating_sub(std::mem::take(&mut self.bytes));
    }
}

impl Inner {
    /// Sets room aside for an object, with hard admission and a capacity.
    pub(super) fn admit(
        self: &Arc<Self>,
        key: &ObjectKey,
        path: &Path,
        size: u64,
    ) -> Result<Room, L2Error> {
        let mut room = Room {
            inner: Arc::clone(self),
            bytes: 0,
        };
        if self.config.admission() == Admission::Soft || self.capacity == 0 {
            return Ok(room);
        }
        let mut state = self.state.lock();
        let before = state.index.find(key).and_then(|id| state.index.size(id));
        let growth = size.saturating_sub(before.unwrap_or(0));
        let used = state.ledger.total();
        if used.saturating_add(state.reserved).saturating_add(growth) > self.capacity {
            let error = L2Error::Full {
                path: path.to_string(),
                bytes: size,
                used,
                reserved: state.reserved,
                capacity: self.capacity,
            };
            drop(state);
            self.wake_eviction();
            return Err(error);
        }
        state.reserved += growth;
        room.bytes = growth;
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut state = self.inner.state.lock();
        state.reserved = state.reserved.saturating_sub(self.bytes);
    }
}
