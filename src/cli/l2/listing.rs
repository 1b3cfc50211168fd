//! The store's own listing, for what the adapter does not tell: when objects were uploaded, and which
//! objects are no keys.

use std::cell::Cell;

use futures::{Stream, StreamExt, TryStreamExt};
use hfbucket::l2::{L2Adapter, ObjectKey};
use object_store::ObjectMeta;

use super::super::Stop;
use super::super::output::Output;
use super::super::size::Size;
use super::pool;

/// An object that has a key. Millions of them are sorted, so the key stays in its short form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    /// Milliseconds; first, because the oldest come first.
    pub(super) uploaded: i64,
    name: Box<str>,
    pub(super) size: u64,
}

impl Object {
    /// Its key, in the layout in which it was listed.
    pub(super) fn key(&self, adapter: &L2Adapter) -> Result<ObjectKey, Stop> {
        let layout = adapter.config().key_layout();
        Ok(ObjectKey::from_encoded_name(&self.name, layout)?)
    }
}

/// Lists the pool and keeps what is chosen, with all bytes that keys have.
pub(super) async fn list(
    adapter: &L2Adapter,
    output: &Output,
    wanted: impl Fn(&ObjectKey) -> bool,
) -> Result<(Vec<Object>, u64), Stop> {
    let seen = Cell::new((0_u64, 0_u64));
    let text = || {
        let (objects, bytes) = seen.get();
        format!("listing: {objects} objects, {}", Size(bytes))
    };
    let collect = async {
        let mut chosen = Vec::new();
        let mut all = objects(adapter)?;
        while let Some((meta, found)) = all.try_next().await? {
            let (objects, bytes) = seen.get();
            let Some((name, key)) = found else {
                continue;
            };
            seen.set((objects + 1, bytes.saturating_add(meta.size)));
            if wanted(&key) {
                chosen.push(Object {
                    uploaded: meta.last_modified.timestamp_millis(),
                    name,
                    size: meta.size,
                });
            }
        }
        Ok((chosen, seen.get().1))
    };
    pool::watched(&output.spinner(), text, collect).await
}

/// The paths of the first objects that are no keys.
pub(super) async fn foreign(adapter: &L2Adapter, most: usize) -> Result<Vec<ObjectMeta>, Stop> {
    let foreign =
        objects(adapter)?.try_filter_map(async |(meta, found)| Ok(found.is_none().then_some(meta)));
    Box::pin(foreign.take(most)).try_collect().await
}

type Found = (ObjectMeta, Option<(Box<str>, ObjectKey)>);

fn objects(
    adapter: &L2Adapter,
) -> Result<impl Stream<Item = Result<Found, Stop>> + Unpin + use<>, Stop> {
    let prefix = pool::prefix(adapter)?;
    let layout = adapter.config().key_layout();
    let store = adapter.object_store().to_string();
    let below = Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty());
    let listed = adapter.object_store().list(below);
    Ok(listed.map(move |meta| {
        let meta = meta.map_err(|error| format!("could not list {store}: {error}"))?;
        let found = meta.location.prefix_match(&prefix).and_then(|mut rest| {
            let (name, None) = (rest.next()?, rest.next()) else {
                return None;
            };
            let key = ObjectKey::from_encoded_name(name.as_ref(), layout).ok()?;
            Some((Box::from(name.as_ref()), key))
        });
        Ok((meta, found))
    }))
}
