//! What the hub holds: buckets and their entries. Changes are data, so that they can be written to
//! disk before they are applied and answered.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// `<namespace>/<bucket>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct BucketName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl std::fmt::Display for BucketName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is known of a bucket besides its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BucketMeta {
    /// 24 hex digits; stays when the bucket moves.
    pub(super) id: String,
    pub(super) private: bool,
    pub(super) created_at: DateTime<Utc>,
    pub(super) updated_at: DateTime<Utc>,
    pub(super) region: String,
    pub(super) cdn: serde_json::Value,
}

impl BucketMeta {
    /// `updatedAt` moves on every change, also on two within one tick of the clock.
    pub(super) fn touch(&mut self, now: DateTime<Utc>) {
        let least = self.updated_at + TimeDelta::milliseconds(1);
        self.updated_at = now.max(least);
    }
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) xet_hash: String,
    pub(super) size: u64,
    pub(super) mtime_ms: Option<i64>,
    pub(super) uploaded_at: DateTime<Utc>,
    pub(super) content_type: Option<String>,
}

/// The objects of a bucket by path.
pub(super) type Entries = BTreeMap<String, Entry>;

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) meta: BucketMeta,
    /// In the order of their paths, as the Hub lists them.
    pub(super) entries: Entries,
}

impl Bucket {
    pub(super) fn size(&self) -> u64 {
        self.entries.values().map(|entry| entry.size).sum()
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) buckets: BTreeMap<BucketName, Bucket>,
}

/// One step from a state to the next.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A new bucket, or new metadata of one.
    Meta(BucketName, BucketMeta),
    Remove(BucketName),
    Move {
        from: BucketName,
        to: BucketName,
    },
    Put {
        bucket: BucketName,
        path: String,
        entry: Entry,
    },
    Delete {
        bucket: BucketName,
        path: String,
    },
}

impl State {
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Meta(name, meta) => match self.buckets.get_mut(&name) {
                Some(bucket) => bucket.meta = meta,
                None => {
                    let bucket = Bucket {
                        meta,
                        entries: BTreeMap::new(),
                    };
                    self.buckets.insert(name, bucket);
                }
            },
            Change::Remove(name) => {
                self.buckets.remove(&name);
            }
            Change::Move { from, to } => {
                if let Some(bucket) = self.buckets.remove(&from) {
                    self.buckets.insert(to, bucket);
                }
            }
            Change::Put {
                bucket,
                path,
                entry,
            } => {
                if let Some(bucket) = self.buckets.get_mut(&bucket) {
                    bucket.entries.insert(path, entry);
                }
            }
            Change::Delete { bucket, path } => {
                if let Some(bucket) = self.buckets.get_mut(&bucket) {
                    bucket.entries.remove(&path);
                }
            }
        }
    }
}
