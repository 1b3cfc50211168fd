//! Names and numbers of tasks.

use std::fmt;

/// The number of a task, unique within its [`Tasks`](super::Tasks): counted from 0 in the order of
/// submission, over all kinds.
///
/// Converts from and to `u64`, for callers that cannot hold the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

impl From<u64> for TaskId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl From<TaskId> for u64 {
    fn from(id: TaskId) -> Self {
        id.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a task does. Each kind has its own completions and its own event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskKind {
    /// [`submit_store`](super::Tasks::submit_store)
    Store,
    /// [`submit_lookup_and_lock`](super::Tasks::submit_lookup_and_lock)
    Lookup,
    /// [`submit_load`](super::Tasks::submit_load)
    Load,
    /// [`submit_delete`](super::Tasks::submit_delete)
    Delete,
}

impl TaskKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lookup => "lookup",
            Self::Load => "load",
            Self::Delete => "delete",
        }
    }
}

/// Tasks that are not complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pending {
    /// Stores.
    pub stores: usize,
    /// Lookups.
    pub lookups: usize,
    /// Loads.
    pub loads: usize,
    /// Deletes.
    pub deletes: usize,
}

impl Pending {
    /// Of all kinds.
    pub fn total(&self) -> usize {
        self.stores + self.lookups + self.loads + self.deletes
    }
}
