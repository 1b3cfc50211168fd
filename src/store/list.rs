//! Listings. The Hub matches prefixes as strings, so `logs` also finds `logs_old/x`; what does not
//! lie below the prefix, segment by segment, is dropped here.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Extensions, ListResult, ObjectMeta, Result};
use tokio::time::Instant;

use super::HfBucket;
use super::core::Core;
use super::error;
use super::get::object_meta;
use super::lookup::Entry;
use crate::hub::{ErrorKind, ItemKind, TreeItem};

/// All objects below `prefix`, page by page as the stream is polled.
pub(super) fn list(
    store: &HfBucket,
    prefix: Option<&Path>,
    offset: Option<Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let (store, directory) = (store.clone(), store.directory(prefix));
    pages(&store.core, &directory, true)
        .map_ok(move |(asked, items)| {
            let (store, directory, offset) = (store.clone(), directory.clone(), offset.clone());
            let metas = items
                .into_iter()
                .filter_map(move |item| meta_below(&store, &directory, item, asked).transpose())
                .filter(move |meta| match (meta, &offset) {
                    // The Hub has no such parameter; the order of its listing does not matter.
                    (Ok(meta), Some(offset)) => meta.location > *offset,
                    _ => true,
                });
            futures::stream::iter(metas)
        })
        .try_flatten()
        .boxed()
}

/// One level: the objects directly below `prefix`, and the directories.
pub(super) async fn list_with_delimiter(
    store: &HfBucket,
    prefix: Option<&Path>,
) -> Result<ListResult> {
    let directory = store.directory(prefix);
    let mut pages = pages(&store.core, &directory, false);
    let mut objects = Vec::new();
    // A set: with short pages the Hub may name a directory on more than one.
    let mut common_prefixes = BTreeSet::new();
    while let Some((asked, items)) = pages.try_next().await? {
        for item in items {
            let Some(rest) = item.path.strip_prefix(directory.as_str()) else {
                continue;
            };
            match item.kind {
                ItemKind::Directory if !rest.trim_end_matches('/').is_empty() => {
                    common_prefixes.insert(store.path_of(item.path.trim_end_matches('/'))?);
                }
                ItemKind::Directory | ItemKind::Other => {}
                ItemKind::File => objects.extend(meta_below(store, &directory, item, asked)?),
            }
        }
    }
    Ok(ListResult {
        common_prefixes: common_prefixes.into_iter().collect(),
        objects,
        extensions: Extensions::default(),
    })
}

/// Pages, and times before which none of them was asked for.
fn pages(
    core: &Arc<Core>,
    directory: &str,
    recursive: bool,
) -> BoxStream<'static, Result<(Instant, Vec<TreeItem>)>> {
    let mut asked = Instant::now();
    let shown = directory.to_owned();
    let may_be_missing = core.creates_bucket();
    core.hub
        .tree(&core.bucket, directory, recursive)
        .filter_map(move |page| {
            std::future::ready(match page {
                // A bucket that the first write will create is empty until then.
                Err(e) if may_be_missing && e.kind() == ErrorKind::BucketNotFound => None,
                other => Some(other.map_err(|e| error::from_hub(&shown, e))),
            })
        })
        .map_ok(move |items| (std::mem::replace(&mut asked, Instant::now()), items))
        .boxed()
}

/// The metadata of a file below `directory` (empty, or with a slash at its end).
fn meta_below(
    store: &HfBucket,
    directory: &str,
    item: TreeItem,
    asked: Instant,
) -> Result<Option<ObjectMeta>> {
    match Entry::of(&store.core.bucket, item) {
        Some((path, entry)) if path.starts_with(directory) && path.len() > directory.len() => {
            let entry = entry.map_err(|e| error::from_hub(&path, e))?;
            store.core.remember(&path, &entry, asked);
            Ok(Some(object_meta(store.path_of(&path)?, &entry)))
        }
        _ => Ok(None),
    }
}
