//! Storing a batch.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::time::Instant;

use super::adapter::{Inner, L2Adapter};
use super::error::{L2Error, refuses_name};
use super::key::ObjectKey;
use super::metadata_cache::Known;

/// What became of each entry of a batch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreReport {
    /// By submitted position. Positions with the same key share their result.
    pub results: Vec<Result<Stored, L2Error>>,
    /// Bytes of keys that were not tracked before, which is what LMCache reports for a store:
    /// storing a known key again counts nothing here.
    pub bytes_newly_stored: u64,
    /// Bytes that were sent and are in the store now, each distinct key once.
    pub bytes_transferred: u64,
}

/// An object that is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Its size.
    pub bytes: u64,
    /// Whether the adapter did not track the key before.
    pub newly: bool,
    /// Whether the upload failed and the object was found in the store nevertheless, with the right
    /// size: its acknowledgement was lost.
    pub reconciled: bool,
}

impl StoreReport {
    /// Whether every entry was stored.
    pub fn is_ok(&self) -> bool {
        self.results.iter().all(Result::is_ok)
    }

    /// The first failure, if any.
    pub fn first_error(&self) -> Option<&L2Error> {
        self.results.iter().find_map(|result| result.as_ref().err())
    }

    fn new(distinct: &[Result<Stored, L2Error>], positions: &[usize]) -> Self {
        let stored = || distinct.iter().filter_map(|result| result.as_ref().ok());
        Self {
            bytes_newly_stored: stored().filter(|one| one.newly).map(|one| one.bytes).sum(),
            bytes_transferred: stored().map(|one| one.bytes).sum(),
            results: positions
                .iter()
                .map(|position| {
                    distinct.get(*position).cloned().unwrap_or_else(|| {
                        Err(L2Error::Lost {
                            reason: "a result is missing".to_owned(),
                        })
                    })
                })
                .collect(),
        }
    }

    fn failed(entries: usize, error: &L2Error) -> Self {
        Self {
            results: vec![Err(error.clone()); entries],
            bytes_newly_stored: 0,
            bytes_transferred: 0,
        }
    }
}

impl L2Adapter {
    /// Stores a batch, replacing what is there.
    ///
    /// Each distinct key is uploaded once; of entries with the same key the last one wins. Uploads
    /// run concurrently, at most [`num_workers`](super::L2Config::num_workers) at a time, and take
    /// turns with other stores and deletes of the same key.
    ///
    /// If an upload fails, the store is asked what it holds: with the size that was sent, the entry
    /// counts as stored ([`Stored::reconciled`]; an older object of the same size is taken for the
    /// new one, as the same hash names the same content). Otherwise the entry fails, and usage says
    /// what was found. If the store does not answer either, nothing is recorded.
    ///
    /// An empty object can be stored, but a lookup calls it a miss.
    pub async fn store(&self, entries: Vec<(ObjectKey, Bytes)>) -> StoreReport {
        let count = entries.len();
        let _work = match self.inner.enter() {
            Ok(work) => work,
            Err(error) => return StoreReport::failed(count, &error),
        };
        let batch = Batch::new(entries);
        let task = Arc::clone(&self.inner).store_batch(batch);
        match self.inner.tracker.spawn(task).await {
            Ok(report) => report,
            Err(error) => StoreReport::failed(count, &lost(&error)),
        }
    }
}

pub(super) fn lost(error: &tokio::task::JoinError) -> L2Error {
    L2Error::Lost {
        reason: error.to_string(),
    }
}

/// A batch without duplicates.
struct Batch {
    /// As submitted, for the order of eviction.
    keys: Vec<ObjectKey>,
    /// For each submitted position, its entry.
    positions: Vec<usize>,
    entries: Vec<(ObjectKey, Bytes)>,
}

impl Batch {
    fn new(submitted: Vec<(ObjectKey, Bytes)>) -> Self {
        let mut index = HashMap::with_capacity(submitted.len());
        let mut batch = Self {
            keys: Vec::with_capacity(submitted.len()),
            positions: Vec::with_capacity(submitted.len()),
            entries: Vec::with_capacity(submitted.len()),
        };
        for (key, bytes) in submitted {
            let position = *index.entry(key.clone()).or_insert(batch.entries.len());
            batch.keys.push(key.clone());
            batch.positions.push(position);
            match batch.entries.get_mut(position) {
                Some(entry) => entry.1 = bytes,
                None => batch.entries.push((key, bytes)),
            }
        }
        batch
    }
}

impl Inner {
    async fn store_batch(self: Arc<Self>, batch: Batch) -> StoreReport {
        let uploads = batch
            .entries
            .into_iter()
            .map(|(key, bytes)| self.tracker.spawn(Arc::clone(&self).store_one(key, bytes)));
        let uploads: Vec<_> = uploads.collect();
        let results: Vec<_> = join_all(uploads)
            .await
            .into_iter()
            .map(|joined| joined.unwrap_or_else(|error| Err(lost(&error))))
            .collect();
        // All at once, since the order within a batch decides who is evicted first. What a failed
        // upload left behind is tracked, and so evictable, too.
        self.state.lock().created(&batch.keys);
        self.wake_eviction();
        StoreReport::new(&results, &batch.positions)
    }

    async fn store_one(self: Arc<Self>, key: ObjectKey, bytes: Bytes) -> Result<Stored, L2Error> {
        let path = self.namer.path(&key)?;
        let _turn = self.gates.wait(&key).await;
        let size = bytes.len() as u64;
        let put = {
            // The semaphore is never closed.
            let _permit = self.uploads.acquire().await.ok();
            self.store.put(&path, bytes.into()).await
        };
        match put {
            Ok(result) => {
                let known = Known {
                    size,
                    version: result.version.map(Arc::from),
                };
                let newly = self.state.lock().stored(&key, known, Instant::now());
                Ok(Stored {
                    bytes: size,
                    newly,
                    reconciled: false,
                })
            }
            Err(error) => {
                let error = self.write_error(&path, error);
                self.reconcile(&key, &path, size, error).await
            }
        }
    }

    fn write_error(&self, path: &Path, error: object_store::Error) -> L2Error {
        if !refuses_name(&error) {
            return self.store_error("store", path, Arc::new(error));
        }
        L2Error::NameTooLong {
            path: path.to_string(),
            store: self.store.to_string(),
            bytes: path.filename().unwrap_or_default().len(),
            source: Arc::new(error),
        }
    }

    /// Finds out what a failed upload left in the store.
    async fn reconcile(
        &self,
        key: &ObjectKey,
        path: &Path,
        size: u64,
        error: L2Error,
    ) -> Result<Stored, L2Error> {
        let found = self.head(path).await;
        let mut state = self.state.lock();
        let now = Instant::now();
        match found {
            Ok(Some(known)) => {
                let there = known.size;
                let newly = state.stored(key, known, now);
                if there != size {
                    return Err(error);
                }
                tracing::debug!(%path, size, "an upload failed, and its object is in the store");
                Ok(Stored {
                    bytes: size,
                    newly,
                    reconciled: true,
                })
            }
            Ok(None) => {
                state.removed(key, now);
                Err(error)
            }
            Err(unknown) => {
                tracing::debug!(%path, error = %unknown, "no answer after a failed upload");
                // The upload may yet have happened: only the store can tell.
                state.cache.forget(key);
                Err(error)
            }
        }
    }
}
