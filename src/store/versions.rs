//! What was seen lately: sizes and times of contents, so that a read by version asks the Hub nothing,
//! and what the Hub last showed at a path, so that a read of just that does not ask again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hashlink::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::lookup::Entry;

/// Contents remembered per store (about 150 bytes each).
const CONTENTS: usize = 65_536;

/// Paths remembered per store (about 400 bytes each).
const PATHS: usize = 16_384;

/// How long what the Hub has shown at a path counts as what is there, for a read that names it.
pub(super) const SHOWN_FOR: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    /// Bytes. A content never changes, so neither does this.
    pub(super) size: u64,
    /// When a path with this content was last seen to be uploaded.
    pub(super) uploaded_at: DateTime<Utc>,
}

pub(super) struct Versions {
    contents: Mutex<LruCache<String, Version>>,
    paths: Mutex<LruCache<String, Shown>>,
}

struct Shown {
    /// `None` after a write by this store, which makes older answers worthless.
    entry: Option<Entry>,
    /// When the question was asked, or the write was done.
    at: Instant,
}

impl Versions {
    pub(super) fn new() -> Self {
        Self {
            contents: Mutex::new(LruCache::new(CONTENTS)),
            paths: Mutex::new(LruCache::new(PATHS)),
        }
    }

    pub(super) fn remember(&self, hash: &str, version: Version) {
        self.contents.lock().insert(hash.to_owned(), version);
    }

    pub(super) fn get(&self, hash: &str) -> Option<Version> {
        self.contents.lock().get(hash).copied()
    }

    /// The Hub has shown `entry` at `key`, asked at `at`.
    pub(super) fn shown(&self, key: &str, entry: &Entry, at: Instant) {
        let mut paths = self.paths.lock();
        let is_older = |shown: &Shown| shown.at >= at;
        if !paths.peek(key).is_some_and(is_older) {
            let entry = Some(entry.clone());
            paths.insert(key.to_owned(), Shown { entry, at });
        }
    }

    /// This store has written or deleted `key`.
    pub(super) fn written(&self, key: &str) {
        let at = Instant::now();
        let shown = Shown { entry: None, at };
        self.paths.lock().insert(key.to_owned(), shown);
    }

    /// What the Hub has just shown at `key`, if it was the content `hash`.
    pub(super) fn just_shown(&self, key: &str, hash: &str) -> Option<Entry> {
        let mut paths = self.paths.lock();
        let shown = paths.get(key)?;
        let entry = shown.entry.as_ref()?;
        let is_it = entry.xet_hash.as_deref() == Some(hash) && shown.at.elapsed() < SHOWN_FOR;
        is_it.then(|| entry.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn entry(hash: &str) -> Entry {
        Entry {
            size: 1,
            xet_hash: Some(hash.to_owned()),
            uploaded_at: DateTime::UNIX_EPOCH,
            content_type: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_shown_counts_for_a_while() {
        let versions = Versions::new();
        versions.shown("a", &entry("1"), Instant::now());
        assert_eq!(versions.just_shown("a", "1"), Some(entry("1")));
        assert_eq!(versions.just_shown("a", "2"), None);
        assert_eq!(versions.just_shown("b", "1"), None);
        advance(SHOWN_FOR).await;
        assert_eq!(versions.just_shown("a", "1"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_earlier_question_is_worth_nothing_after_a_write() {
        let versions = Versions::new();
        let asked = Instant::now();
        versions.shown("a", &entry("1"), asked);
        advance(Duration::from_millis(1)).await;
        versions.written("a");
        assert_eq!(versions.just_shown("a", "1"), None);
        versions.shown("a", &entry("1"), asked);
        assert_eq!(versions.just_shown("a", "1"), None);
        advance(Duration::from_millis(1)).await;
        versions.shown("a", &entry("2"), Instant::now());
        assert_eq!(versions.just_shown("a", "2"), Some(entry("2")));
    }
}
