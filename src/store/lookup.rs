//! Metadata: concurrent heads become one `paths-info` of up to 1000 paths.

use std::collections::{HashMap, VecDeque};

use chrono::{DateTime, Utc};

use super::gather::{Job, Waiting};
use crate::hub::{self, BucketId, HubClient, ItemKind, TreeItem};

/// Paths in one request (`paths-info` takes 2000; clients send at most 1000).
const MAX_PATHS: usize = 1000;

/// What the Hub says of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) size: u64,
    /// Absent for files that were never moved to Xet; they are read through `resolve`.
    pub(crate) xet_hash: Option<String>,
    pub(crate) uploaded_at: DateTime<Utc>,
    pub(crate) content_type: Option<String>,
}

impl Entry {
    /// The path and entry of a file, `None` for what is no file. A file without a size, which the wire
    /// allows, is an error: taken for an empty one it would be lost by whoever copies it.
    pub(super) fn of(
        bucket: &BucketId,
        item: TreeItem,
    ) -> Option<(String, Result<Self, hub::Error>)> {
        if item.kind != ItemKind::File {
            return None;
        }
        let Some(size) = item.size else {
            let error = hub::Error::no_size(bucket, &item.path);
            return Some((item.path, Err(error)));
        };
        let entry = Self {
            size,
            xet_hash: item.xet_hash,
            // Always present in answers of the Hub; without it the object counts as old.
            uploaded_at: item.uploaded_at.or(item.mtime).unwrap_or_default(),
            content_type: item.content_type,
        };
        Some((item.path, Ok(entry)))
    }
}

/// The job: keys in, entries out, `None` for a key that does not exist.
pub(super) struct Lookup {
    pub(super) hub: HubClient,
    pub(super) bucket: BucketId,
}

impl Job for Lookup {
    type Request = String;
    type Answer = Result<Option<Entry>, hub::Error>;

    fn select(&self, waiting: &mut VecDeque<Waiting<Self>>, _: usize) -> Vec<Waiting<Self>> {
        let count = waiting.len().min(MAX_PATHS);
        waiting.drain(..count).collect()
    }

    async fn run(&self, keys: Vec<String>) -> Vec<Self::Answer> {
        let mut unique = keys.clone();
        unique.sort_unstable();
        unique.dedup();
        match self.hub.paths_info(&self.bucket, &unique).await {
            Ok(items) => {
                let found: HashMap<_, _> = items
                    .into_iter()
                    .filter_map(|item| Entry::of(&self.bucket, item))
                    .collect();
                keys.iter()
                    .map(|key| found.get(key).cloned().transpose())
                    .collect()
            }
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}
