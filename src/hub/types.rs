//! What callers give and get. The JSON behind it is in `wire`.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;

use super::auth::Secret;
use super::error::Error;

/// A bucket's name: `<namespace>/<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BucketId {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Who a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WhoAmI {
    /// The user's or organisation's name: the namespace of its own buckets.
    pub name: String,
    /// The organisations that it belongs to.
    pub orgs: Vec<String>,
}

/// What a new bucket should be like. Whatever is `None` is the Hub's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CreateBucket {
    /// Omitted, some organisations default to private.
    pub private: Option<bool>,
    /// `us` or `eu`.
    pub region: Option<String>,
    pub resource_group_id: Option<String>,
}

/// What `create_bucket` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    New,
    /// The bucket was there already; its settings are as they were.
    Existed,
}

/// What the Hub says of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketInfo {
    /// The canonical `<namespace>/<name>`, which may differ from the one asked for (letter case, a
    /// rename).
    pub id: String,
    pub private: bool,
    pub created_at: Option<DateTime<Utc>>,
    /// Moves on every change of the bucket.
    pub updated_at: Option<DateTime<Utc>>,
    /// Bytes of all files.
    pub size: u64,
    pub total_files: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemKind {
    File,
    Directory,
    /// Neither, and passed over.
    Other,
}

/// One line of a listing. Directories have neither size nor hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeItem {
    pub kind: ItemKind,
    /// The full path in the bucket, without a trailing slash.
    pub path: String,
    pub size: Option<u64>,
    pub xet_hash: Option<String>,
    /// What the uploader claimed.
    pub mtime: Option<DateTime<Utc>>,
    /// The server's clock; the only time that is always there.
    pub uploaded_at: Option<DateTime<Utc>>,
    pub content_type: Option<String>,
}

/// What `resolve` says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileInfo {
    pub size: u64,
    pub xet_hash: Option<String>,
    /// Without quotes and weakness mark.
    pub etag: Option<String>,
    pub content_type: Option<String>,
    pub last_modified: Option<DateTime<Utc>>,
}

/// One change of a bucket's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BatchOp {
    /// Adds or overwrites an entry. The bytes must be committed on the CAS before.
    Add {
        path: String,
        /// The file's Xet hash, 64 hex digits.
        xet_hash: String,
        /// Milliseconds since 1970.
        mtime_ms: Option<i64>,
        content_type: Option<String>,
    },
    /// Adds or overwrites an entry with content that another bucket (or this one) holds, by hash.
    Copy {
        path: String,
        xet_hash: String,
        /// Needs read rights there, and the same storage region.
        source: BucketId,
        mtime_ms: Option<i64>,
        content_type: Option<String>,
    },
    Delete {
        path: String,
    },
}

impl BatchOp {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Copy { path, .. } | Self::Delete { path } => path,
        }
    }

    pub(crate) fn is_delete(&self) -> bool {
        matches!(self, Self::Delete { .. })
    }

    /// Whether an entry with this hash (`None`: no entry) shows that the operation is done.
    pub(super) fn is_done_by(&self, entry: Option<&str>) -> bool {
        match self {
            Self::Add { xet_hash, .. } | Self::Copy { xet_hash, .. } => {
                entry == Some(xet_hash.as_str())
            }
            Self::Delete { .. } => entry.is_none(),
        }
    }

    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Copy { .. } => "copy",
            Self::Delete { .. } => "delete",
        }
    }
}

/// What a CAS token allows. Write covers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// Below the bucket's route.
    pub(super) fn token_route(self) -> &'static str {
        match self {
            Self::Read => "/xet-read-token",
            Self::Write => "/xet-write-token",
        }
    }
}

/// A token for the CAS, good for one bucket.
#[derive(Debug, Clone)]
pub(crate) struct CasToken {
    pub cas_url: String,
    pub access_token: Secret,
    /// Seconds since 1970.
    pub expires_at: u64,
}

/// A download over plain HTTP.
pub(crate) struct Download {
    /// Bytes of the whole object.
    pub size_of_object: u64,
    /// The bytes that `stream` yields: what was asked for, clamped to the object.
    pub range: Range<u64>,
    pub xet_hash: Option<String>,
    /// Yields exactly `range`, or ends with an error.
    pub stream: BoxStream<'static, Result<Bytes, Error>>,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download")
            .field("size_of_object", &self.size_of_object)
            .field("range", &self.range)
            .field("xet_hash", &self.xet_hash)
            .finish_non_exhaustive()
    }
}
