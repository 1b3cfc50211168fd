//! One bucket, below the level of prefixes and traits: what every face of the store calls.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{Error as StoreError, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::commit::{BucketState, Busy, Commit, Write, WriteKind};
use super::error::{self, Error};
use super::gather::{Abandoned, Gather};
use super::lookup::{Entry, Lookup};
use super::versions::{Version, Versions};
use crate::hub::{BucketId, CreateBucket, HubClient};
use crate::location::key_fault;
use crate::xet::{Upload, Xet, XetFile};

/// How the bytes of an object are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownloadMode {
    /// From the content-addressed store, through `hf-xet`: parallel, ranged, deduplicated.
    #[default]
    Xet,
    /// From the signed URL behind the Hub's `resolve` route: one HTTP request per read, which
    /// counts against the plan's limit for resolvers.
    Http,
}

pub(crate) struct Core {
    pub(super) hub: HubClient,
    pub(super) xet: Xet,
    pub(super) bucket: Arc<BucketId>,
    pub(super) mode: DownloadMode,
    /// `HF_HUB_DISABLE_XET`: reads go through `resolve`, writes are refused.
    without_xet: bool,
    state: Arc<BucketState>,
    lookup: Gather<Lookup>,
    commit: Gather<Commit>,
    versions: Versions,
}

/// What a core is made of.
pub(super) struct CoreParts {
    pub(super) hub: HubClient,
    pub(super) xet: Xet,
    pub(super) bucket: BucketId,
    pub(super) mode: DownloadMode,
    pub(super) without_xet: bool,
    pub(super) create: Option<CreateBucket>,
}

impl Core {
    pub(super) fn new(parts: CoreParts) -> Self {
        let state = Arc::new(BucketState {
            id: parts.bucket.clone(),
            create: parts.create,
            created: Mutex::default(),
        });
        Self {
            lookup: Gather::new(Lookup {
                hub: parts.hub.clone(),
                bucket: parts.bucket.clone(),
            }),
            commit: Gather::new(Commit {
                hub: parts.hub.clone(),
                xet: parts.xet.clone(),
                bucket: Arc::clone(&state),
                busy: Busy::default(),
            }),
            hub: parts.hub,
            xet: parts.xet,
            bucket: Arc::new(parts.bucket),
            mode: parts.mode,
            without_xet: parts.without_xet,
            state,
            versions: Versions::new(),
        }
    }

    /// Whether nothing may go through Xet.
    pub(super) fn without_xet(&self) -> bool {
        self.without_xet
    }

    /// Whether the first write creates the bucket, which until then may be missing.
    pub(super) fn creates_bucket(&self) -> bool {
        self.state.create.is_some()
    }

    /// The object at `key`; an error if there is none.
    pub(super) async fn head(&self, key: &str) -> Result<Entry> {
        check_key(key)?;
        let asked = Instant::now();
        let entry = self
            .lookup
            .submit(key.to_owned())
            .await
            .map_err(|e| error::from_abandoned(&self.bucket, key, e))?
            .map_err(|e| error::from_hub(key, e))?
            .ok_or_else(|| error::no_object(&self.bucket, key))?;
        self.remember(key, &entry, asked);
        Ok(entry)
    }

    pub(super) async fn put(
        &self,
        key: &str,
        parts: Vec<Bytes>,
        content_type: Option<String>,
    ) -> Result<XetFile> {
        self.check_write(key)?;
        self.write_file(
            key,
            WriteKind::Put {
                parts,
                content_type,
            },
        )
        .await
    }

    /// Starts an object that arrives in parts; [`register`](Self::register) makes it appear.
    pub(super) async fn start_upload(&self, key: &str) -> Result<Upload> {
        self.check_write(key)?;
        let ensure = async || {
            let ensured = self.state.ensure(&self.hub).await;
            ensured.map_err(|e| error::from_hub(key, e))
        };
        ensure().await?;
        let started = match self.xet.start_upload().await {
            // Deleted since this store made it.
            Err(e) if e.is_bucket_missing() && self.creates_bucket() => {
                self.state.is_gone();
                ensure().await?;
                self.xet.start_upload().await
            }
            started => started,
        };
        started.map_err(|e| error::from_xet(&self.bucket, key, e))
    }

    pub(super) async fn register(
        &self,
        key: &str,
        file: XetFile,
        content_type: Option<String>,
    ) -> Result<XetFile> {
        self.write_file(key, WriteKind::Register { file, content_type })
            .await
    }

    /// Gives `to` the content of `from`, which is `entry`.
    pub(super) async fn copy(&self, from: &str, entry: Entry, to: &str) -> Result<()> {
        self.check_write(to)?;
        let xet_hash = entry
            .xet_hash
            .ok_or_else(|| error::generic(Error::NotXet { path: from.into() }))?;
        let kind = WriteKind::Copy {
            xet_hash,
            source: BucketId::clone(&self.bucket),
            content_type: entry.content_type,
        };
        self.write(to, kind).await.map(|_| ())
    }

    /// Deletes the keys, which may be missing, in as few batches as they fit into. One answer per key,
    /// in order.
    pub(super) async fn delete(&self, keys: Vec<String>) -> Vec<Result<()>> {
        let (wrong, right): (Vec<_>, Vec<_>) = keys.iter().partition(|key| check_key(key).is_err());
        let writes = right
            .into_iter()
            .map(|key| Write {
                key: key.clone(),
                kind: WriteKind::Delete,
            })
            .collect();
        let mut answers = self.commit.submit_all(writes).await.into_iter();
        for key in &keys {
            self.versions.written(key);
        }
        keys.iter()
            .map(|key| {
                if wrong.contains(&key) {
                    return check_key(key);
                }
                match answers.next() {
                    Some(Ok(Ok(_))) => Ok(()),
                    Some(Ok(Err(e))) => Err(error::from_write(&self.bucket, key, e)),
                    Some(Err(e)) => Err(error::from_abandoned(&self.bucket, key, e)),
                    None => Err(error::from_abandoned(&self.bucket, key, Abandoned)),
                }
            })
            .collect()
    }

    /// Size and time of a content, if it was seen lately.
    pub(super) fn version(&self, hash: &str) -> Option<Version> {
        self.versions.get(hash)
    }

    /// What the Hub has just shown at `key`, if it was the content `hash`.
    pub(super) fn just_shown(&self, key: &str, hash: &str) -> Option<Entry> {
        self.versions.just_shown(key, hash)
    }

    /// The Hub has shown `entry` at `key`, asked at `asked`.
    pub(super) fn remember(&self, key: &str, entry: &Entry, asked: Instant) {
        self.versions.shown(key, entry, asked);
        if let Some(hash) = &entry.xet_hash {
            self.versions.remember(
                hash,
                Version {
                    size: entry.size,
                    uploaded_at: entry.uploaded_at,
                },
            );
        }
    }

    async fn write_file(&self, key: &str, kind: WriteKind) -> Result<XetFile> {
        let file = self
            .write(key, kind)
            .await?
            .ok_or_else(|| error::from_abandoned(&self.bucket, key, Abandoned))?;
        self.versions.remember(
            &file.hash,
            Version {
                size: file.size,
                uploaded_at: chrono::Utc::now(),
            },
        );
        Ok(file)
    }

    async fn write(&self, key: &str, kind: WriteKind) -> Result<Option<XetFile>> {
        let write = Write {
            key: key.to_owned(),
            kind,
        };
        let answer = self.commit.submit(write).await;
        // Also after an error: it may have been done.
        self.versions.written(key);
        answer
            .map_err(|e| error::from_abandoned(&self.bucket, key, e))?
            .map_err(|e| error::from_write(&self.bucket, key, e))
    }

    fn check_write(&self, key: &str) -> Result<()> {
        check_key(key)?;
        if self.without_xet {
            return Err(StoreError::NotSupported {
                source: Box::new(Error::WriteWithoutXet { path: key.into() }),
            });
        }
        Ok(())
    }
}

/// Refuses what the Hub would refuse, before any request.
pub(super) fn check_key(key: &str) -> Result<()> {
    match key_fault(key) {
        None => Ok(()),
        Some(reason) => Err(error::generic(Error::Key {
            path: key.to_owned(),
            reason,
        })),
    }
}
