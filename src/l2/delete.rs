//! Deleting: a caller's keys, or the victims of an eviction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::join_all;
use futures::{StreamExt, stream};
use object_store::path::Path;
use tokio::time::Instant;
use tracing::Instrument;

use super::adapter::{Entered, Inner, L2Adapter};
use super::error::L2Error;
use super::events::{EventEntry, EventKind};
use super::gates::Turn;
use super::key::ObjectKey;
use super::state::State;
use super::store::lost;

/// What became of each key of a delete.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeleteReport {
    /// By submitted position. Positions with the same key share their outcome.
    pub outcomes: Vec<DeleteOutcome>,
    /// Bytes that usage no longer counts, each distinct key once.
    pub bytes_freed: u64,
}

/// What became of one key of a delete.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DeleteOutcome {
    /// The object is gone, or never was.
    Deleted {
        /// Bytes that usage counted for it.
        bytes: u64,
    },
    /// The key is locked; nothing was done.
    Locked,
    /// The object may still be there, and is still counted.
    Failed(L2Error),
}

impl DeleteOutcome {
    /// Whether the object is gone.
    pub fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }
}

impl DeleteReport {
    /// Whether every object is gone.
    pub fn is_ok(&self) -> bool {
        self.outcomes.iter().all(DeleteOutcome::is_deleted)
    }

    /// The first failure, if any; locked keys are none.
    pub fn first_error(&self) -> Option<&L2Error> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            DeleteOutcome::Failed(error) => Some(error),
            _ => None,
        })
    }

    pub(super) fn failed(keys: usize, error: &L2Error) -> Self {
        Self {
            outcomes: vec![DeleteOutcome::Failed(error.clone()); keys],
            bytes_freed: 0,
        }
    }
}

impl L2Adapter {
    /// Deletes objects, except those that are locked.
    ///
    /// An object that is not there counts as deleted. If the store refuses a key, it is asked
    /// whether the object is still there; only what is proven gone is no longer counted. Waits for
    /// stores of the same keys to finish.
    pub async fn delete(&self, keys: &[ObjectKey]) -> DeleteReport {
        self.delete_entered(self.inner.enter(), keys).await
    }

    pub(super) async fn delete_entered(
        &self,
        entered: Entered,
        keys: &[ObjectKey],
    ) -> DeleteReport {
        let _work = match entered {
            Ok(work) => work,
            Err(error) => return DeleteReport::failed(keys.len(), &error),
        };
        let started = Instant::now();
        let distinct: HashSet<ObjectKey> = keys.iter().cloned().collect();
        let span = tracing::debug_span!("l2_delete", keys = distinct.len());
        let task = Arc::clone(&self.inner).delete_batch(distinct.into_iter().collect());
        let joined = self.inner.spawn(task.instrument(span)).await;
        self.inner.stats.took("delete", started);
        match joined.unwrap_or_else(|error| Err(lost(&error))) {
            Ok(outcomes) => DeleteReport {
                bytes_freed: outcomes.values().map(freed).sum(),
                outcomes: keys
                    .iter()
                    .filter_map(|key| outcomes.get(key).cloned())
                    .collect(),
            },
            Err(error) => DeleteReport::failed(keys.len(), &error),
        }
    }
}

fn freed(outcome: &DeleteOutcome) -> u64 {
    match outcome {
        DeleteOutcome::Deleted { bytes } => *bytes,
        _ => 0,
    }
}

/// Why keys are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Request,
    Eviction,
}

impl Cause {
    fn kind(self) -> EventKind {
        match self {
            Self::Request => EventKind::Deleted,
            Self::Eviction => EventKind::Evicted,
        }
    }
}

pub(super) type Outcomes = HashMap<ObjectKey, DeleteOutcome>;

impl Inner {
    async fn delete_batch(self: Arc<Self>, mut keys: Vec<ObjectKey>) -> Outcomes {
        // Everyone who waits for several turns waits in the same order, or two could wait for each
        // other.
        keys.sort_unstable();
        let mut turns = Vec::with_capacity(keys.len());
        for key in &keys {
            turns.push(self.gates.wait(key).await);
        }
        self.remove(keys, turns, Cause::Request).await
    }

    /// Deletes distinct keys whose turn it is.
    pub(super) async fn remove(
        self: &Arc<Self>,
        keys: Vec<ObjectKey>,
        turns: Vec<Turn>,
        cause: Cause,
    ) -> Outcomes {
        let mut outcomes = Outcomes::with_capacity(keys.len());
        let claim = Claim::new(self, keys, &mut outcomes);
        let verdicts = self.delete_paths(&claim.paths).await;
        let settled = claim.keys.iter().zip(verdicts);
        let now = Instant::now();
        let mut deleted = Vec::new();
        let mut failed = 0;
        {
            let mut state = self.state.lock();
            for (key, verdict) in settled {
                let outcome = match verdict {
                    Ok(()) => {
                        let bytes = state.removed(key, now);
                        deleted.push(EventEntry::new(key.clone(), bytes));
                        DeleteOutcome::Deleted { bytes }
                    }
                    Err(error) => {
                        state.forget(key);
                        failed += 1;
                        DeleteOutcome::Failed(error)
                    }
                };
                outcomes.insert(key.clone(), outcome);
            }
            state.events.publish(cause.kind(), || deleted.clone());
        }
        self.count_used();
        self.count_deleted(cause, &deleted, failed);
        drop(claim);
        drop(turns);
        outcomes
    }

    fn count_deleted(&self, cause: Cause, deleted: &[EventEntry], failed: usize) {
        match cause {
            Cause::Request => self.stats.deleted(deleted.len(), failed),
            Cause::Eviction => {
                let bytes = deleted.iter().map(|entry| entry.bytes).sum();
                self.stats.evicted(deleted.len(), bytes, failed);
            }
        }
    }

    /// Deletes, and returns for each path whether its object is proven gone.
    async fn delete_paths(&self, paths: &[Path]) -> Vec<Result<(), L2Error>> {
        if paths.is_empty() {
            return Vec::new();
        }
        let locations: Vec<_> = paths.iter().cloned().map(Ok).collect();
        let results: Vec<_> = self
            .store
            .delete_stream(stream::iter(locations).boxed())
            .collect()
            .await;
        let verdicts = read_results(paths, results);
        join_all(
            paths
                .iter()
                .zip(verdicts)
                .map(|(path, verdict)| async move {
                    match verdict {
                        Verdict::Gone => Ok(()),
                        Verdict::Unsettled(error) => self.settle(path, error).await,
                    }
                }),
        )
        .await
    }

    /// A refused delete may have happened, or its object may never have been.
    async fn settle(&self, path: &Path, error: Arc<object_store::Error>) -> Result<(), L2Error> {
        match self.head(path).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(self.store_error("delete", path, error)),
            Err(unknown) => {
                tracing::debug!(%path, error = %unknown, "no answer after a failed delete");
                Err(self.store_error("delete", path, error))
            }
        }
    }
}

#[derive(Debug)]
enum Verdict {
    Gone,
    Unsettled(Arc<object_store::Error>),
}

/// Assigns a delete's results to its paths. Results come in the order of the paths, but a request
/// that failed as a whole yields one error for many paths, and may end the stream.
fn read_results(paths: &[Path], results: Vec<object_store::Result<Path>>) -> Vec<Verdict> {
    let gone = |result: &object_store::Result<Path>| {
        matches!(result, Ok(_) | Err(object_store::Error::NotFound { .. }))
    };
    if results.len() == paths.len() {
        return results
            .into_iter()
            .map(|result| match result {
                result if gone(&result) => Verdict::Gone,
                Ok(_) => Verdict::Gone,
                Err(error) => Verdict::Unsettled(Arc::new(error)),
            })
            .collect();
    }
    let mut deleted = HashSet::new();
    let mut first_error = None;
    for result in results {
        match result {
            Ok(path) => {
                deleted.insert(path);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    let error = Arc::new(first_error.unwrap_or_else(|| object_store::Error::Generic {
        store: "delete_stream",
        source: "fewer results than paths".into(),
    }));
    paths
        .iter()
        .map(|path| match deleted.contains(path) {
            true => Verdict::Gone,
            false => Verdict::Unsettled(Arc::clone(&error)),
        })
        .collect()
}

/// Keys marked as being deleted: lookups call them misses. Unmarked when dropped.
struct Claim {
    inner: Arc<Inner>,
    keys: Vec<ObjectKey>,
    paths: Vec<Path>,
}

impl Claim {
    /// Claims the keys that are neither locked nor without a name; the others' outcomes are noted.
    fn new(inner: &Arc<Inner>, keys: Vec<ObjectKey>, outcomes: &mut Outcomes) -> Self {
        let mut claim = Self {
            inner: Arc::clone(inner),
            keys: Vec::with_capacity(keys.len()),
            paths: Vec::with_capacity(keys.len()),
        };
        let mut state = inner.state.lock();
        let State { locks, index, .. } = &mut *state;
        for key in keys {
            match inner.namer.path(&key) {
                Err(error) => {
                    outcomes.insert(key, DeleteOutcome::Failed(error.into()));
                }
                Ok(_) if !locks.begin_delete(index, &key) => {
                    outcomes.insert(key, DeleteOutcome::Locked);
                }
                Ok(path) => {
                    claim.keys.push(key);
                    claim.paths.push(path);
                }
            }
        }
        drop(state);
        claim
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        let State { locks, index, .. } = &mut *state;
        for key in &self.keys {
            locks.end_delete(index, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Vec<Path> {
        ["a", "b", "c"]
            .iter()
            .map(|path| Path::parse(path).unwrap())
            .collect()
    }

    fn refused() -> object_store::Error {
        object_store::Error::Generic {
            store: "test",
            source: "refused".into(),
        }
    }

    fn gone(results: Vec<object_store::Result<Path>>) -> Vec<bool> {
        read_results(&paths(), results)
            .iter()
            .map(|verdict| matches!(verdict, Verdict::Gone))
            .collect()
    }

    #[test]
    fn results_are_read_by_position() {
        let missing = object_store::Error::NotFound {
            path: "/elsewhere/b".to_owned(),
            source: "gone".into(),
        };
        let results = vec![Ok(paths()[0].clone()), Err(missing), Err(refused())];
        assert_eq!(gone(results), [true, true, false]);
    }

    #[test]
    fn one_error_for_many_paths_leaves_all_but_the_named_open() {
        assert_eq!(gone(vec![Err(refused())]), [false; 3]);
        assert_eq!(
            gone(vec![Ok(paths()[1].clone()), Err(refused())]),
            [false, true, false]
        );
        assert_eq!(gone(Vec::new()), [false; 3]);
    }
}
