//! Sizes and times of contents seen lately, so that a read by version asks the Hub nothing.

use chrono::{DateTime, Utc};
use hashlink::LruCache;
use parking_lot::Mutex;

/// Contents remembered per store (about 150 bytes each).
const CAPACITY: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    /// Bytes. A content never changes, so neither does this.
    pub(super) size: u64,
    /// When a path with this content was last seen to be uploaded.
    pub(super) uploaded_at: DateTime<Utc>,
}

pub(super) struct Versions(Mutex<LruCache<String, Version>>);

impl Versions {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CAPACITY)))
    }

    pub(super) fn remember(&self, hash: &str, version: Version) {
        self.0.lock().insert(hash.to_owned(), version);
    }

    pub(super) fn get(&self, hash: &str) -> Option<Version> {
        self.0.lock().get(hash).copied()
    }
}
