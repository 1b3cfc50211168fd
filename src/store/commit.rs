//! Writes: concurrent puts, copies and deletes become one Xet commit and one `batch`.
//!
//! While one commit is on its way the next one gathers; when enough bytes have come together, it goes
//! beside the first, so that bytes flow while others are registered. A path is in one commit at a time,
//! and in that once, so operations on one path happen in the order in which they came; paths that
//! differ do not order each other.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use chrono::Utc;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::gather::{Abandoned, Job, Waiting};
use crate::hub::{self, BatchOp, BucketId, CreateBucket, HubClient};
use crate::xet::{self, Xet, XetFile};

/// Operations in one commit, as in one `batch` of other clients.
pub(super) const MAX_OPS: usize = 1000;
/// Payload bytes in one commit, unless a single object has more. hf-xet holds a compressed copy of them.
const MAX_BYTES: usize = 32 << 20;
/// Commits on their way at a time.
const MAX_COMMITS: usize = 3;
/// Payload bytes that are worth a commit of their own while others are on their way; below, requests
/// are dearer than time.
const SHARE: usize = 16 << 20;

/// One write.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) key: String,
    pub(super) kind: WriteKind,
}

#[derive(Debug)]
pub(super) enum WriteKind {
    /// Bytes that are not on the CAS yet.
    Put {
        parts: Vec<Bytes>,
        content_type: Option<String>,
    },
    /// Content that is on the CAS already: a finished multipart upload.
    Register {
        file: XetFile,
        content_type: Option<String>,
    },
    /// Content of another path.
    Copy {
        xet_hash: String,
        source: BucketId,
        content_type: Option<String>,
    },
    Delete,
}

impl WriteKind {
    fn payload_len(&self) -> usize {
        match self {
            Self::Put { parts, .. } => parts.iter().map(Bytes::len).sum(),
            _ => 0,
        }
    }
}

/// Why one write of a commit failed. Shared by all writes of a commit that failed as a whole.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Hub(#[from] hub::Error),
    #[error(transparent)]
    Xet(#[from] xet::Error),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

/// The content a put or register brought, `None` for copies and deletes.
pub(super) type Written = Result<Option<XetFile>, WriteError>;

pub(super) struct Commit {
    pub(super) hub: HubClient,
    pub(super) xet: Xet,
    pub(super) bucket: Arc<BucketState>,
    /// The paths of the commits on their way.
    pub(super) busy: Busy,
}

/// Paths that a commit is working on: what comes for one of them later has to wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<Mutex<HashSet<String>>>);

impl Busy {
    fn is_free(&self, key: &str) -> bool {
        !self.0.lock().contains(key)
    }

    fn take(&self, keys: &HashSet<String>) {
        self.0.lock().extend(keys.iter().cloned());
    }
}

/// Frees the paths of one commit, however it ends.
struct Working {
    busy: Busy,
    keys: Vec<String>,
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut busy = self.busy.0.lock();
        for key in &self.keys {
            busy.remove(key);
        }
    }
}

/// The bucket, and whether it is there.
#[derive(Debug)]
pub(super) struct BucketState {
    pub(super) id: BucketId,
    /// Set if the first write shall create the bucket.
    pub(super) create: Option<CreateBucket>,
    /// Set once it is known to be there; replaced when it turns out to be gone.
    pub(super) created: Mutex<Arc<OnceCell<()>>>,
}

impl BucketState {
    /// Somebody has deleted the bucket: the next write makes it anew.
    pub(super) fn is_gone(&self) {
        *self.created.lock() = Arc::default();
    }

    /// Creates the bucket once, before the first write; a failure is tried again by the next one.
    pub(super) async fn ensure(&self, hub: &HubClient) -> Result<(), hub::Error> {
        if let Some(options) = &self.create {
            let created = Arc::clone(&self.created.lock());
            created
                .get_or_try_init(|| async {
                    hub.create_bucket(&self.id, options).await.map(|_| ())
                })
                .await?;
        }
        Ok(())
    }
}

impl Job for Commit {
    type Request = Write;
    type Answer = Written;

    const AT_ONCE: usize = MAX_COMMITS;
    const WORTH: usize = SHARE;

    fn weight(write: &Write) -> usize {
        write.kind.payload_len()
    }

    fn select(&self, waiting: &mut VecDeque<Waiting<Self>>, others: usize) -> Vec<Waiting<Self>> {
        let max_bytes = if others > 0 { SHARE } else { MAX_BYTES };
        select(waiting, &self.busy, max_bytes)
    }

    async fn run(&self, writes: Vec<Write>) -> Vec<Written> {
        let _working = Working {
            busy: self.busy.clone(),
            keys: writes.iter().map(|write| write.key.clone()).collect(),
        };
        let only_deletes = writes
            .iter()
            .all(|write| matches!(write.kind, WriteKind::Delete));
        if !only_deletes && let Err(error) = self.bucket.ensure(&self.hub).await {
            return writes.iter().map(|_| Err(error.clone().into())).collect();
        }
        let mut outcomes: Vec<Option<Written>> = writes.iter().map(|_| None).collect();
        let files = self.upload(&writes, &mut outcomes).await;
        self.register(&writes, &files, &mut outcomes).await;
        if outcomes.iter().any(is_bucket_missing) {
            self.bucket.is_gone();
        }
        outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(Err(WriteError::Abandoned(Abandoned))))
            .collect()
    }
}

impl Commit {
    /// Brings the bytes of all puts to the CAS; the files stand at the places of their writes.
    async fn upload(
        &self,
        writes: &[Write],
        outcomes: &mut [Option<Written>],
    ) -> Vec<Option<XetFile>> {
        let mut files: Vec<Option<XetFile>> = writes
            .iter()
            .map(|write| match &write.kind {
                WriteKind::Register { file, .. } => Some(file.clone()),
                _ => None,
            })
            .collect();
        let (places, payloads): (Vec<_>, Vec<_>) = writes
            .iter()
            .enumerate()
            .filter_map(|(place, write)| match &write.kind {
                WriteKind::Put { parts, .. } => Some((place, parts.clone())),
                _ => None,
            })
            .unzip();
        if places.is_empty() {
            return files;
        }
        match self.xet.upload_all(&payloads).await {
            Ok(uploaded) => {
                for (place, file) in places.into_iter().zip(uploaded) {
                    files[place] = Some(file);
                }
            }
            Err(error) => {
                for place in places {
                    outcomes[place] = Some(Err(error.clone().into()));
                }
            }
        }
        files
    }

    /// Registers what has arrived, and copies and deletes, in one batch settled per path.
    async fn register(
        &self,
        writes: &[Write],
        files: &[Option<XetFile>],
        outcomes: &mut [Option<Written>],
    ) {
        let mtime_ms = Some(Utc::now().timestamp_millis());
        let (places, ops): (Vec<_>, Vec<_>) = (0..writes.len())
            .filter(|&place| outcomes[place].is_none())
            .filter_map(|place| {
                let op = batch_op(&writes[place], files[place].as_ref(), mtime_ms)?;
                Some((place, op))
            })
            .unzip();
        if ops.is_empty() {
            return;
        }
        match self.hub.batch(&self.bucket.id, ops).await {
            Ok(settled) => {
                for (place, settled) in places.into_iter().zip(settled) {
                    outcomes[place] = Some(match settled {
                        Ok(()) => Ok(files[place].clone()),
                        Err(error) => Err(error.into()),
                    });
                }
            }
            Err(error) => {
                for place in places {
                    outcomes[place] = Some(Err(error.clone().into()));
                }
            }
        }
    }
}

/// What goes into the next commit: each path once, from the front of the queue, within the limits.
/// Its paths are busy from now on.
fn select(
    waiting: &mut VecDeque<Waiting<Commit>>,
    busy: &Busy,
    max_bytes: usize,
) -> Vec<Waiting<Commit>> {
    let mut keys = HashSet::new();
    let mut bytes = 0;
    let mut selected = Vec::new();
    let mut later = VecDeque::new();
    while let Some(next) = waiting.pop_front() {
        // A path that is taken keeps its later operations for a later commit, in their order.
        if keys.contains(&next.request.key) || !busy.is_free(&next.request.key) {
            later.push_back(next);
            continue;
        }
        let len = next.request.kind.payload_len();
        let full = selected.len() == MAX_OPS
            || (!selected.is_empty() && len > 0 && bytes + len > max_bytes);
        if full {
            later.push_back(next);
            break;
        }
        keys.insert(next.request.key.clone());
        bytes += len;
        selected.push(next);
    }
    later.append(waiting);
    *waiting = later;
    busy.take(&keys);
    selected
}

fn is_bucket_missing(outcome: &Option<Written>) -> bool {
    match outcome {
        Some(Err(WriteError::Hub(error))) => error.kind() == hub::ErrorKind::BucketNotFound,
        Some(Err(WriteError::Xet(error))) => error.is_bucket_missing(),
        _ => false,
    }
}

fn batch_op(write: &Write, file: Option<&XetFile>, mtime_ms: Option<i64>) -> Option<BatchOp> {
    let path = write.key.clone();
    Some(match &write.kind {
        WriteKind::Put { content_type, .. } | WriteKind::Register { content_type, .. } => {
            BatchOp::Add {
                path,
                xet_hash: file?.hash.clone(),
                mtime_ms,
                content_type: content_type.clone(),
            }
        }
        WriteKind::Copy {
            xet_hash,
            source,
            content_type,
        } => BatchOp::Copy {
            path,
            xet_hash: xet_hash.clone(),
            source: source.clone(),
            mtime_ms,
            content_type: content_type.clone(),
        },
        WriteKind::Delete => BatchOp::Delete { path },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(writes: &[(&str, usize)]) -> VecDeque<Waiting<Commit>> {
        writes
            .iter()
            .map(|&(key, len)| {
                let kind = match len {
                    0 => WriteKind::Delete,
                    len => WriteKind::Put {
                        parts: vec![Bytes::from(vec![0; len])],
                        content_type: None,
                    },
                };
                Waiting::unwatched(Write {
                    key: key.to_owned(),
                    kind,
                })
            })
            .collect()
    }

    fn keys<'a>(writes: impl IntoIterator<Item = &'a Waiting<Commit>>) -> Vec<String> {
        writes
            .into_iter()
            .map(|write| format!("{}{}", write.request.key, write.request.kind.payload_len()))
            .collect()
    }

    #[test]
    fn a_commit_holds_a_path_once_and_keeps_its_order() {
        let mut waiting = queue(&[("a", 1), ("b", 1), ("a", 0), ("c", 0), ("a", 2), ("b", 0)]);
        assert_eq!(keys(&select_alone(&mut waiting)), ["a1", "b1", "c0"]);
        assert_eq!(keys(&waiting), ["a0", "a2", "b0"]);
        assert_eq!(keys(&select_alone(&mut waiting)), ["a0", "b0"]);
        assert_eq!(keys(&select_alone(&mut waiting)), ["a2"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_path_is_in_one_commit_at_a_time() {
        let busy = Busy::default();
        let mut waiting = queue(&[("a", 1), ("b", 1), ("a", 0), ("c", 1), ("b", 0)]);
        let first = select(&mut waiting, &busy, 2);
        assert_eq!(keys(&first), ["a1", "b1"]);
        assert_eq!(keys(&select(&mut waiting, &busy, MAX_BYTES)), ["c1"]);
        // What is left waits for the first commit.
        assert!(select(&mut waiting, &busy, MAX_BYTES).is_empty());
        assert_eq!(keys(&waiting), ["a0", "b0"]);
        drop(Working {
            busy: busy.clone(),
            keys: vec!["a".into(), "b".into()],
        });
        assert_eq!(keys(&select(&mut waiting, &busy, MAX_BYTES)), ["a0", "b0"]);
    }

    fn select_alone(waiting: &mut VecDeque<Waiting<Commit>>) -> Vec<Waiting<Commit>> {
        select(waiting, &Busy::default(), MAX_BYTES)
    }

    #[test]
    fn a_commit_is_bounded_but_never_empty() {
        let mut waiting = queue(&[("a", MAX_BYTES + 1), ("b", MAX_BYTES), ("c", 1), ("d", 0)]);
        assert_eq!(select_alone(&mut waiting).len(), 1);
        assert_eq!(select_alone(&mut waiting).len(), 1);
        assert_eq!(select_alone(&mut waiting).len(), 2);
        let names: Vec<String> = (0..2500).map(|n| n.to_string()).collect();
        let deletes: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
        let mut waiting = queue(&deletes);
        let sizes: Vec<_> = (0..3).map(|_| select_alone(&mut waiting).len()).collect();
        assert_eq!(sizes, [1000, 1000, 500]);
    }
}
