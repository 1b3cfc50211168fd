//! What each kind of task results in.

use std::sync::Arc;

use super::lane::Promise;
use crate::l2::adapter::Inner;
use crate::l2::delete::DeleteReport;
use crate::l2::error::L2Error;
use crate::l2::load::Loaded;
use crate::l2::lookup::Lookup;
use crate::l2::store::StoreReport;

/// A load that is complete, and the buffers that it was given.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadCompletion<B = Vec<u8>> {
    /// What became of each position.
    pub loaded: Loaded,
    /// All of them, as submitted, whatever became of the load.
    pub buffers: Vec<B>,
}

/// A store of so many entries.
pub(super) struct Storing(pub(super) usize);

impl Promise for Storing {
    type Result = StoreReport;

    fn broken(&mut self, why: &L2Error) -> StoreReport {
        StoreReport::failed(self.0, why)
    }
}

/// A lookup of so many keys.
pub(super) struct LookingUp(pub(super) Arc<Inner>, pub(super) usize);

impl Promise for LookingUp {
    type Result = Lookup;

    fn broken(&mut self, why: &L2Error) -> Lookup {
        Lookup::failed(&self.0, self.1, why)
    }
}

/// A load of so many keys.
pub(super) struct Loading<B> {
    pub(super) keys: usize,
    pub(super) buffers: Vec<B>,
}

impl<B> Loading<B> {
    pub(super) fn end(&mut self, loaded: Loaded) -> LoadCompletion<B> {
        LoadCompletion {
            loaded,
            buffers: std::mem::take(&mut self.buffers),
        }
    }
}

impl<B> Promise for Loading<B> {
    type Result = LoadCompletion<B>;

    fn broken(&mut self, why: &L2Error) -> LoadCompletion<B> {
        self.end(Loaded::failed(self.keys, why))
    }
}

/// A delete of so many keys.
pub(super) struct Deleting(pub(super) usize);

impl Promise for Deleting {
    type Result = DeleteReport;

    fn broken(&mut self, why: &L2Error) -> DeleteReport {
        DeleteReport::failed(self.0, why)
    }
}
