//! Reads: metadata first, then a range of one content, which cannot change under the reader.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error as StoreError, Extensions, GetOptions, GetResult,
    GetResultPayload, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, Result, coalesce_ranges,
    collect_bytes,
};

use super::core::{Core, DownloadMode, check_key};
use super::error::{self, Error};
use super::lookup::Entry;
use crate::xet::XetFile;

/// `GET` and `HEAD` of one object.
pub(super) async fn get(
    core: &Arc<Core>,
    location: &Path,
    key: &str,
    options: GetOptions,
) -> Result<GetResult> {
    let entry = match (&options.version, just_shown(core, key, &options)) {
        (Some(version), _) => entry_of_version(core, key, version).await?,
        (None, Some(entry)) => entry,
        (None, None) => core.head(key).await?,
    };
    let meta = object_meta(location.clone(), &entry);
    options.check_preconditions(&meta)?;
    let range = match (&options.range, options.head) {
        (Some(range), false) => range.as_range(entry.size).map_err(error::generic)?,
        _ => 0..entry.size,
    };
    // Only the store of bytes knows content that its path no longer has.
    let mode = match options.version {
        Some(_) => DownloadMode::Xet,
        None => core.mode,
    };
    let payload = if options.head {
        futures::stream::empty().boxed()
    } else {
        read(core, key, &entry, range.clone(), mode).await?
    };
    Ok(GetResult {
        payload: GetResultPayload::Stream(payload),
        attributes: attributes(&entry),
        meta,
        range,
        extensions: Extensions::default(),
    })
}

/// Several ranges of one object, all of the same content: one look-up, then neighbours together.
pub(super) async fn get_ranges(
    core: &Arc<Core>,
    key: &str,
    ranges: &[Range<u64>],
) -> Result<Vec<Bytes>> {
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let entry = core.head(key).await?;
    let clamped = ranges
        .iter()
        .map(|range| {
            object_store::GetRange::Bounded(range.clone())
                .as_range(entry.size)
                .map_err(error::generic)
        })
        .collect::<Result<Vec<_>>>()?;
    let fetch = |range: Range<u64>| {
        let (entry, len) = (&entry, range.end - range.start);
        async move { collect_bytes(read(core, key, entry, range, core.mode).await?, Some(len)).await }
    };
    coalesce_ranges(&clamped, fetch, OBJECT_STORE_COALESCE_DEFAULT).await
}

/// What a read with `if_match` asks for, if the Hub has just shown it at this path: then the content is
/// read without asking whether it is still there.
fn just_shown(core: &Core, key: &str, options: &GetOptions) -> Option<Entry> {
    let may_skip = !options.head && core.mode == DownloadMode::Xet;
    let hash = options.if_match.as_deref().filter(|_| may_skip)?;
    core.just_shown(key, hash)
}

/// The content with the hash `version`, whatever `key` holds now. The Hub is not asked.
async fn entry_of_version(core: &Core, key: &str, version: &str) -> Result<Entry> {
    check_key(key)?;
    if core.without_xet() {
        return Err(StoreError::NotSupported {
            source: Box::new(Error::VersionWithoutXet {
                path: key.to_owned(),
            }),
        });
    }
    let is_hash = version.len() == 64 && version.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hash {
        return Err(error::generic(Error::BadVersion {
            bucket: Arc::clone(&core.bucket),
            path: key.to_owned(),
            version: version.to_owned(),
        }));
    }
    let (size, uploaded_at) = match core.version(version) {
        Some(known) => (known.size, known.uploaded_at),
        None => {
            let size = core
                .xet
                .size(version)
                .await
                .map_err(|e| error::from_xet(&core.bucket, key, e))?;
            (size, Default::default())
        }
    };
    Ok(Entry {
        size,
        xet_hash: Some(version.to_owned()),
        uploaded_at,
        content_type: None,
    })
}

async fn read(
    core: &Arc<Core>,
    key: &str,
    entry: &Entry,
    range: Range<u64>,
    mode: DownloadMode,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    match (&entry.xet_hash, mode) {
        (Some(hash), DownloadMode::Xet) => {
            let file = XetFile {
                hash: hash.clone(),
                size: entry.size,
            };
            let (bucket, key) = (Arc::clone(&core.bucket), key.to_owned());
            Ok(core
                .xet
                .download(file, range)
                .map_err(move |e| error::from_xet(&bucket, &key, e))
                .boxed())
        }
        // A file without a Xet hash can only come from the Hub itself.
        (_, DownloadMode::Http) | (None, DownloadMode::Xet) => {
            read_http(core, key, entry, range).await
        }
    }
}

async fn read_http(
    core: &Arc<Core>,
    key: &str,
    entry: &Entry,
    range: Range<u64>,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    if range.is_empty() {
        return Ok(futures::stream::empty().boxed());
    }
    let whole = range == (0..entry.size);
    let download = core
        .hub
        .download(&core.bucket, key, (!whole).then(|| range.clone()))
        .await
        .map_err(|e| error::from_hub(key, e))?;
    // Between the look-up and the download another writer may have replaced the object.
    let other_content = match (&download.xet_hash, &entry.xet_hash) {
        (Some(seen), Some(expected)) => seen != expected,
        _ => false,
    };
    if other_content || download.size_of_object != entry.size || download.range != range {
        return Err(error::generic(Error::Replaced {
            bucket: Arc::clone(&core.bucket),
            path: key.to_owned(),
            expected: content(entry.xet_hash.as_deref(), entry.size),
            seen: content(download.xet_hash.as_deref(), download.size_of_object),
        }));
    }
    let key = key.to_owned();
    Ok(download
        .stream
        .map_err(move |e| error::from_hub(&key, e))
        .boxed())
}

fn content(hash: Option<&str>, size: u64) -> String {
    format!("{} of {size} bytes", hash.unwrap_or("without a hash"))
}

pub(super) fn object_meta(location: Path, entry: &Entry) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: entry.uploaded_at,
        size: entry.size,
        e_tag: entry.xet_hash.clone(),
        version: entry.xet_hash.clone(),
    }
}

fn attributes(entry: &Entry) -> Attributes {
    entry
        .content_type
        .iter()
        .map(|value| (Attribute::ContentType, value.clone()))
        .collect()
}
