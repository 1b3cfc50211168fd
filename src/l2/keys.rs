//! Which keys are stored, page by page.

use serde::Serialize;

use super::adapter::L2Adapter;
use super::error::L2Error;
use super::index::KeyId;
use super::key::ObjectKey;

/// Most entries of a page.
pub const MAX_PAGE_SIZE: usize = 5000;
/// Rows looked at per hold of the lock.
const PER_STEP: u32 = 4096;

/// Some of the stored keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyPage {
    /// The keys, in no particular order.
    pub entries: Vec<KeyEntry>,
    /// Where the next page begins; `None` on the last one.
    pub next_page_token: Option<String>,
}

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyEntry {
    /// The key.
    pub key: ObjectKey,
    /// The object's size in bytes.
    pub size: u64,
}

impl L2Adapter {
    /// The keys of a model, or of all, as far as the adapter counts them; a page at a time.
    ///
    /// Begin without a cursor, then pass each page's token to get the next. A key that is stored all
    /// the while is listed exactly once; keys that come or go meanwhile may be listed or not. Nothing
    /// is asked of the store, except that the pool is listed first if that was never done: see
    /// [`recovered`](Self::recovered). What other writers did since the last listing is not known.
    ///
    /// A cursor is good for the adapter that gave it, and not beyond its end.
    ///
    /// # Errors
    ///
    /// [`L2Error::Page`] for a page size of 0 or above [`MAX_PAGE_SIZE`], or a cursor that no page of
    /// this adapter ended with. As [`recovered`](Self::recovered), if the pool must be listed first.
    pub async fn list_keys(
        &self,
        model_name: Option<&str>,
        page_size: usize,
        cursor: Option<&str>,
    ) -> Result<KeyPage, L2Error> {
        if page_size == 0 || page_size > MAX_PAGE_SIZE {
            return Err(L2Error::Page {
                reason: format!("a page has 1 to {MAX_PAGE_SIZE} keys, not {page_size}"),
            });
        }
        let mut at = match cursor {
            None => 0,
            Some(cursor) => self.read_cursor(cursor)?,
        };
        self.recovered().await?;
        let mut entries = Vec::new();
        loop {
            let (next, end) = self.collect(model_name, page_size, at, &mut entries);
            at = next;
            let next_page_token = (at < end).then(|| self.cursor(at));
            if entries.len() == page_size || next_page_token.is_none() {
                return Ok(KeyPage {
                    entries,
                    next_page_token,
                });
            }
            tokio::task::yield_now().await;
        }
    }

    /// Looks at some rows; returns where to go on, and where the end is.
    fn collect(
        &self,
        model_name: Option<&str>,
        page_size: usize,
        from: u32,
        entries: &mut Vec<KeyEntry>,
    ) -> (u32, u32) {
        let state = self.inner.state.lock();
        let end = state.index.end();
        let to = from.saturating_add(PER_STEP).min(end);
        let mut at = from;
        while at < to && entries.len() < page_size {
            let id = KeyId(at);
            at += 1;
            let Some(size) = state.index.size(id) else {
                continue;
            };
            let key = state.index.key(id);
            let wanted = key.filter(|key| model_name.is_none_or(|name| key.model_name() == name));
            entries.extend(wanted.map(|key| KeyEntry { key, size }));
        }
        (at, end)
    }

    fn cursor(&self, at: u32) -> String {
        format!("{:016x}-{at:x}", self.inner.instance)
    }

    fn read_cursor(&self, cursor: &str) -> Result<u32, L2Error> {
        let refuse = |reason: &str| L2Error::Page {
            reason: format!("the cursor '{}' {reason}", cursor.escape_debug()),
        };
        let malformed = "is not one that a page ended with";
        let (instance, at) = cursor.split_once('-').ok_or_else(|| refuse(malformed))?;
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| refuse(malformed));
        let at = u32::try_from(number(at)?).map_err(|_| refuse(malformed))?;
        if number(instance)? != self.inner.instance {
            return Err(refuse("is of another adapter: begin without a cursor"));
        }
        if self.cursor(at) != cursor {
            return Err(refuse(malformed));
        }
        Ok(at)
    }
}
