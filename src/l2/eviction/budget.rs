//! How much one round of an eviction takes.

use crate::l2::config::EvictionUnit;

/// What a round has yet to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    unit: EvictionUnit,
    left: u64,
}

impl Budget {
    pub(super) fn new(unit: EvictionUnit, left: u64) -> Self {
        Self { unit, left }
    }

    /// Takes keys with so many bytes in all off the rest.
    pub(super) fn spend(&mut self, keys: usize, bytes: u64) {
        let spent = match self.unit {
            EvictionUnit::Keys => keys as u64,
            EvictionUnit::Bytes => bytes,
        };
        self.left = self.left.saturating_sub(spent);
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}
