//! Storing a batch.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::time::Instant;
use tracing::Instrument;

use super::adapter::{Entered, Inner, L2Adapter};
use super::admission::Room;
use super::error::{L2Error, refuses_name};
use super::events::{EventEntry, EventKind};
use super::key::ObjectKey;
use super::metadata_cache::{Known, Version};
use super::stats::StoreSums;

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

    pub(super) fn failed(entries: usize, error: &L2Error) -> Self {
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
    /// run concurrently, 16 per [`num_workers`](super::L2Config::num_workers) at a time, and take
    /// turns with other stores and deletes of the same key.
    ///
    /// If an upload fails, the store is asked what it holds: with the size that was sent, the entry
    /// counts as stored ([`Stored::reconciled`]; an older object of the same size is taken for the
    /// new one, as the same hash names the same content). Otherwise the entry fails, and usage says
    /// what was found. If the store does not answer either, nothing is recorded.
    ///
    /// An empty object can be stored, but a lookup calls it a miss.
    ///
    /// With `"admission": "hard"` an entry that would exceed the capacity, counting what other
    /// stores are about to add, fails with [`L2Error::Full`] before anything is sent. Room is made
    /// meanwhile, so a later attempt may succeed.
    pub async fn store(&self, entries: Vec<(ObjectKey, Bytes)>) -> StoreReport {
        self.store_entered(self.inner.enter(), entries).await
    }

    pub(super) async fn store_entered(
        &self,
        entered: Entered,
        entries: Vec<(ObjectKey, Bytes)>,
    ) -> StoreReport {
        let count = entries.len();
        let _work = match entered {
            Ok(work) => work,
            Err(error) => return StoreReport::failed(count, &error),
        };
        let batch = Batch::new(entries);
        let span = tracing::debug_span!(
            "l2_store",
            keys = batch.entries.len(),
            bytes = batch.bytes()
        );
        let task = Arc::clone(&self.inner).store_batch(batch).instrument(span);
        // Not ended by a close: it collects what became of its uploads, which are.
        match self.inner.spawn_unkilled(task).await {
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

impl Batch {
    fn bytes(&self) -> usize {
        self.entries.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// A distinct key of a batch that was sent.
struct Sent {
    key: ObjectKey,
    result: Result<Stored, L2Error>,
    /// Bytes counted before, if the key was tracked.
    before: Option<u64>,
}

impl Inner {
    async fn store_batch(self: Arc<Self>, batch: Batch) -> StoreReport {
        let started = Instant::now();
        let keys: Vec<ObjectKey> = batch.entries.iter().map(|(key, _)| key.clone()).collect();
        let uploads = batch.entries.into_iter().map(|(key, bytes)| {
            self.spawn(Arc::clone(&self).store_one(key, bytes).in_current_span())
        });
        let uploads: Vec<_> = uploads.collect();
        let sent: Vec<Sent> = join_all(uploads)
            .await
            .into_iter()
            .zip(keys)
            .map(|(joined, key)| {
                let joined = joined.unwrap_or_else(|error| Err(lost(&error)));
                joined.unwrap_or_else(|error| Sent::failed(key, error))
            })
            .collect();
        {
            // All at once, since the order within a batch decides who is evicted first. What a
            // failed upload left behind is tracked, and so evictable, too.
            let mut state = self.state.lock();
            state.created(&batch.keys);
            state.events.publish(EventKind::Stored, || entries(&sent));
        }
        self.count_used();
        self.stats.stored(&sums(&sent), started);
        self.wake_eviction();
        let results: Vec<_> = sent.into_iter().map(|sent| sent.result).collect();
        StoreReport::new(&results, &batch.positions)
    }

    async fn store_one(self: Arc<Self>, key: ObjectKey, bytes: Bytes) -> Sent {
        let path = match self.namer.path(&key) {
            Ok(path) => path,
            Err(error) => return Sent::failed(key, error.into()),
        };
        let _turn = self.gates.wait(&key).await;
        let size = bytes.len() as u64;
        let room = match self.admit(&key, &path, size) {
            Ok(room) => room,
            Err(error) => return Sent::failed(key, error),
        };
        let put = {
            // The semaphore is never closed.
            let _permit = self.uploads.acquire().await.ok();
            self.store.put(&path, bytes.into()).await
        };
        match put {
            Ok(result) => {
                let known = Known {
                    size,
                    version: result.version.map(Version::from),
                };
                let before = {
                    let mut state = self.state.lock();
                    room.fill(&mut state);
                    state.stored(&key, known, Instant::now())
                };
                Sent {
                    key,
                    result: Ok(Stored {
                        bytes: size,
                        newly: before.is_none(),
                        reconciled: false,
                    }),
                    before,
                }
            }
            Err(error) => {
                let error = self.write_error(&path, error);
                self.reconcile(key, &path, room, (size, error)).await
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
        key: ObjectKey,
        path: &Path,
        room: Room,
        (size, error): (u64, L2Error),
    ) -> Sent {
        let found = self.head(path).await;
        let mut state = self.state.lock();
        room.fill(&mut state);
        let now = Instant::now();
        match found {
            Ok(Some(known)) => {
                let there = known.size;
                let before = state.stored(&key, known, now);
                let result = if there == size {
                    tracing::debug!(%path, size, "an upload failed, and its object is in the store");
                    Ok(Stored {
                        bytes: size,
                        newly: before.is_none(),
                        reconciled: true,
                    })
                } else {
                    Err(error)
                };
                Sent {
                    key,
                    result,
                    before,
                }
            }
            Ok(None) => {
                state.removed(&key, now);
                Sent::failed(key, error)
            }
            Err(unknown) => {
                tracing::debug!(%path, error = %unknown, "no answer after a failed upload");
                // The upload may yet have happened: only the store can tell.
                state.forget(&key);
                Sent::failed(key, error)
            }
        }
    }
}

impl Sent {
    fn failed(key: ObjectKey, error: L2Error) -> Self {
        Self {
            key,
            result: Err(error),
            before: None,
        }
    }
}

fn entries(sent: &[Sent]) -> Vec<EventEntry> {
    let stored = |sent: &Sent| {
        let bytes = sent.result.as_ref().ok()?.bytes;
        Some(EventEntry {
            replaced_bytes: sent.before,
            ..EventEntry::new(sent.key.clone(), bytes)
        })
    };
    sent.iter().filter_map(stored).collect()
}

fn sums(sent: &[Sent]) -> StoreSums {
    let mut sums = StoreSums::default();
    for sent in sent {
        match &sent.result {
            Ok(stored) => {
                sums.keys += 1;
                sums.bytes = sums.bytes.saturating_add(stored.bytes);
                sums.reconciled += u64::from(stored.reconciled);
            }
            Err(L2Error::Full { .. }) => sums.refused += 1,
            Err(_) => sums.failed += 1,
        }
    }
    sums
}
