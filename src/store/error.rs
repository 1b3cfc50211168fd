//! From the errors of the layers below to `object_store::Error`.

use std::sync::Arc;

use object_store::Error as StoreError;
use thiserror::Error;

use super::commit::WriteError;
use super::gather::Abandoned;
use crate::hub::{self, BucketId, ErrorKind};
use crate::xet;

/// The name of this store in errors.
pub(super) const STORE: &str = "HfBucket";

/// What this store itself has to say.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("bucket {bucket}, path '{path}': {source}")]
    Transfer {
        bucket: Arc<BucketId>,
        path: String,
        source: xet::Error,
    },
    #[error("bucket {bucket}, path '{path}': {source}")]
    Abandoned {
        bucket: Arc<BucketId>,
        path: String,
        source: Abandoned,
    },
    #[error("bucket {bucket} holds no object at '{path}'")]
    NoObject { bucket: Arc<BucketId>, path: String },
    #[error(
        "bucket {bucket}, path '{path}': version '{version}' is no Xet hash (64 hex digits, as in \
         ObjectMeta::version)"
    )]
    BadVersion {
        bucket: Arc<BucketId>,
        path: String,
        version: String,
    },
    #[error(
        "bucket {bucket}, path '{path}': the object was replaced while it was being read (content \
         {expected} was looked up, {seen} was served); read it again"
    )]
    Replaced {
        bucket: Arc<BucketId>,
        path: String,
        expected: String,
        seen: String,
    },
    #[error("path '{path}' is refused by the Hub: {reason}")]
    Key { path: String, reason: &'static str },
    #[error(
        "reading a version of '{path}' needs Xet, which is switched off (HF_HUB_DISABLE_XET); read the \
         path as it is now, without a version"
    )]
    VersionWithoutXet { path: String },
    #[error(
        "writing '{path}' needs Xet, which is switched off (HF_HUB_DISABLE_XET): buckets take bytes \
         in no other way"
    )]
    WriteWithoutXet { path: String },
    #[error(
        "'{path}' has no Xet hash, so it cannot be copied server-side; read it and write it anew"
    )]
    NotXet { path: String },
}

/// The fault of the Hub, in the words of `object_store`.
pub(super) fn from_hub(path: &str, error: hub::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::BucketNotFound | ErrorKind::EntryNotFound => StoreError::NotFound {
            path,
            source: Box::new(error),
        },
        ErrorKind::Unauthenticated => StoreError::Unauthenticated {
            path,
            source: Box::new(error),
        },
        ErrorKind::PermissionDenied => StoreError::PermissionDenied {
            path,
            source: Box::new(error),
        },
        ErrorKind::Conflict => StoreError::AlreadyExists {
            path,
            source: Box::new(error),
        },
        ErrorKind::PreconditionFailed => StoreError::Precondition {
            path,
            source: Box::new(error),
        },
        _ => generic(error),
    }
}

pub(super) fn from_xet(bucket: &Arc<BucketId>, path: &str, error: xet::Error) -> StoreError {
    let wrap = |source| {
        Box::new(Error::Transfer {
            bucket: Arc::clone(bucket),
            path: path.to_owned(),
            source,
        })
    };
    let path = path.to_owned();
    match error {
        xet::Error::Token(error) => from_hub(&path, error),
        xet::Error::Unauthenticated { .. } => StoreError::Unauthenticated {
            path,
            source: wrap(error),
        },
        xet::Error::NotFound { .. } => StoreError::NotFound {
            path,
            source: wrap(error),
        },
        _ => StoreError::Generic {
            store: STORE,
            source: wrap(error),
        },
    }
}

pub(super) fn from_write(bucket: &Arc<BucketId>, path: &str, error: WriteError) -> StoreError {
    match error {
        WriteError::Hub(error) => from_hub(path, error),
        WriteError::Xet(error) => from_xet(bucket, path, error),
        WriteError::Abandoned(source) => from_abandoned(bucket, path, source),
    }
}

pub(super) fn from_abandoned(bucket: &Arc<BucketId>, path: &str, source: Abandoned) -> StoreError {
    generic(Error::Abandoned {
        bucket: Arc::clone(bucket),
        path: path.to_owned(),
        source,
    })
}

pub(super) fn no_object(bucket: &Arc<BucketId>, path: &str) -> StoreError {
    StoreError::NotFound {
        path: path.to_owned(),
        source: Box::new(Error::NoObject {
            bucket: Arc::clone(bucket),
            path: path.to_owned(),
        }),
    }
}

pub(super) fn generic(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Generic {
        store: STORE,
        source: Box::new(error),
    }
}

/// The bucket API has no conditional operation; pretending would lose data.
pub(super) fn no_conditional_writes(operation: &str) -> StoreError {
    StoreError::NotImplemented {
        operation: format!(
            "{operation} (the bucket API has no conditional write, and checking first would race \
             with other writers: write unconditionally with PutMode::Overwrite or copy/rename, or \
             reach the bucket through the Hub's S3 gateway, which has them)"
        ),
        implementer: STORE.into(),
    }
}
