//! The bucket itself: what no object store trait has a word for.

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use object_store::Result;

use super::HfBucket;
use super::error;
use crate::ChangeMark;
use crate::hub::{CreateBucket, Created};

/// What the Hub says of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketInfo {
    /// `<namespace>/<bucket>` as the Hub writes it, which may differ from what was asked in the case
    /// of its letters.
    pub id: String,
    /// Whether only those with a right may read it.
    pub private: bool,
    /// When it was made.
    pub created_at: Option<DateTime<Utc>>,
    /// Moves on every change of the bucket: a cheap way to see whether a listing is still good.
    pub updated_at: Option<DateTime<Utc>>,
    /// Bytes of all objects, whatever the prefix of the store.
    pub size: u64,
    /// Objects, whatever the prefix of the store.
    pub objects: u64,
}

impl HfBucket {
    /// What the Hub says of the bucket: one API call.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such bucket, or the token may not see it.
    pub async fn bucket_info(&self) -> Result<BucketInfo> {
        let core = &self.core;
        let info = core
            .hub
            .bucket_info(&core.bucket)
            .await
            .map_err(|e| error::from_hub("", e))?;
        Ok(BucketInfo {
            id: info.id,
            private: info.private,
            created_at: info.created_at,
            updated_at: info.updated_at,
            size: info.size,
            objects: info.total_files,
        })
    }

    /// Creates the bucket, private or not as the builder was told. Returns whether it is new: one that
    /// is there already stays as it is.
    ///
    /// # Errors
    ///
    /// `Unauthenticated` or `PermissionDenied` if the token may not create it.
    pub async fn create_bucket(&self) -> Result<bool> {
        let core = &self.core;
        let options = CreateBucket {
            private: self.private,
            ..CreateBucket::default()
        };
        let created = core
            .hub
            .create_bucket(&core.bucket, &options)
            .await
            .map_err(|e| error::from_hub("", e))?;
        Ok(created == Created::New)
    }

    /// Deletes the whole bucket with all that it holds, whatever the prefix of this store.
    /// Irreversible.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such bucket.
    pub async fn delete_bucket(&self) -> Result<()> {
        let core = &self.core;
        core.hub
            .delete_bucket(&core.bucket)
            .await
            .map_err(|e| error::from_hub("", e))
    }

    /// The names that the token stands for: the user's or organisation's own, then those of the
    /// organisations that it belongs to.
    ///
    /// # Errors
    ///
    /// `Unauthenticated` without a token that the Hub knows.
    pub async fn whoami(&self) -> Result<Vec<String>> {
        let who = self
            .core
            .hub
            .whoami()
            .await
            .map_err(|e| error::from_hub("", e))?;
        Ok(std::iter::once(who.name).chain(who.orgs).collect())
    }
}

/// The bucket's `updatedAt`: one API call. It moves with every change of the bucket, also outside of
/// the store's prefix.
#[async_trait]
impl ChangeMark for HfBucket {
    async fn change_mark(&self) -> Result<Option<String>> {
        let updated_at = self.bucket_info().await?.updated_at;
        Ok(updated_at.map(|at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true)))
    }
}
