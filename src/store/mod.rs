//! [`HfBucket`]: the [`object_store`] face of a bucket.
//!
//! - [`builder`], [`config`], [`client_options`]: what users configure.
//! - [`core`]: one bucket below prefixes and traits; [`lookup`] and [`commit`] let concurrent calls
//!   share requests through [`gather`].
//! - [`get`], [`list`], [`multipart`]: the rooms of the trait.

mod bucket;
mod builder;
mod client_options;
mod commit;
mod config;
mod core;
mod credential;
mod error;
mod gather;
mod get;
mod list;
mod lookup;
mod multipart;
mod registry;
mod versions;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientOptions, CopyMode, CopyOptions, Error as StoreError, Extensions,
    GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode,
    Result,
};

pub use self::bucket::BucketInfo;
pub use self::builder::HfBucketBuilder;
pub use self::config::HfBucketConfigKey;
use self::core::Core;
pub use self::core::DownloadMode;
pub use self::credential::{HfToken, HfTokenProvider};
use self::multipart::HfMultipartUpload;
pub use self::registry::{HfBucketRegistry, parse_url_opts};
use crate::location::BucketLocation;
use crate::xet::XetFile;

/// A Hugging Face Storage Bucket, or a prefix in one, as an [`ObjectStore`].
///
/// Made by [`HfBucketBuilder`]. Cheap to clone; clones share connections, tokens and the gathering of
/// requests.
///
/// # What to know
///
/// - `e_tag` and `version` of an object are its Xet hash (64 hex digits); `last_modified` is the
///   Hub's upload time. Equal bytes have equal hashes, so writing the same bytes again changes
///   neither.
/// - [`GetOptions::version`] reads that content from the content-addressed store without asking the
///   Hub, whatever the path holds now. `last_modified` is then the last one seen with this content,
///   or the Unix epoch, and there are no attributes.
/// - [`GetOptions::if_match`] with an ETag that a listing or head of this store has shown within the
///   last 5 seconds reads that content without asking the Hub again: should another writer have
///   replaced the object in this time, the read still succeeds, with the content asked for.
/// - Concurrent heads and gets share look-ups, and concurrent puts, copies and deletes share commits:
///   make calls concurrently, and they become few requests.
/// - A put, copy or delete has happened when the Hub's report says so for its path. A put whose future
///   is dropped either lands whole or not at all.
/// - [`list_with_delimiter`](ObjectStore::list_with_delimiter) uses the Hub's non-recursive listing,
///   which the Hub does not promise to be up to date at once; `list`, `head` and `get` are.
/// - The bucket API has no conditional write: [`PutMode::Create`], [`PutMode::Update`],
///   [`CopyMode::Create`] and [`RenameTargetMode::Create`] return
///   [`NotImplemented`](StoreError::NotImplemented).
/// - Of the attributes only [`Attribute::ContentType`] is kept; others return
///   [`NotImplemented`](StoreError::NotImplemented). Tags are ignored, as the trait asks.
/// - A rename copies, waits for the Hub's word, then deletes: no bytes move and nothing is lost, but
///   for a moment both paths exist.
/// - Use it within one Tokio runtime: connections belong to the runtime of the first call.
///
/// ```
/// # #[cfg(feature = "local-hub")]
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use hfbucket::HfBucketBuilder;
/// use hfbucket::local_hub::LocalHub;
/// use object_store::path::Path;
/// use object_store::{ObjectStore, ObjectStoreExt};
///
/// let hub = LocalHub::builder().in_memory().start().await?;
/// # let cache = tempfile::tempdir()?;
/// let store = HfBucketBuilder::new()
///     .with_url("hf://buckets/my-org/data/prod")
///     .with_endpoint(hub.endpoint())
///     .with_token(hub.token())
///     .with_create_bucket_if_missing(true)
/// #   .with_cache_dir(cache.path())
///     .build()?;
///
/// let path = Path::from("hello.txt");
/// store.put(&path, "hello".into()).await?;
/// assert_eq!(store.get(&path).await?.bytes().await?, "hello");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "local-hub"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct HfBucket {
    core: Arc<Core>,
    location: BucketLocation,
    /// Of a bucket that this store creates.
    private: Option<bool>,
    /// For its content types by suffix.
    client_options: Arc<ClientOptions>,
}

impl HfBucket {
    /// The bucket and prefix that this store is scoped to.
    pub fn location(&self) -> &BucketLocation {
        &self.location
    }

    /// The key in the bucket.
    fn key(&self, location: &Path) -> String {
        match (self.location.prefix(), location.as_ref()) {
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}/{path}"),
        }
    }

    /// The key of a directory: empty for the whole bucket, else with a slash at its end, which keeps
    /// the Hub from listing siblings.
    fn directory(&self, prefix: Option<&Path>) -> String {
        let mut key = self.key(prefix.unwrap_or(&Path::default()));
        if !key.is_empty() {
            key.push('/');
        }
        key
    }

    /// The location of a key below this store's prefix.
    fn path_of(&self, key: &str) -> Result<Path> {
        let prefix = self.location.prefix();
        let rest = match prefix {
            "" => key,
            _ => key
                .strip_prefix(prefix)
                .and_then(|rest| rest.strip_prefix('/'))
                .unwrap_or(key),
        };
        Ok(Path::parse(rest)?)
    }

    /// The content type of a new object: the caller's, the client options', or by its name.
    fn content_type(&self, location: &Path, attributes: &Attributes) -> Result<Option<String>> {
        let mut content_type = None;
        for (attribute, value) in attributes {
            match attribute {
                Attribute::ContentType => content_type = Some(value.to_string()),
                other => {
                    return Err(StoreError::NotImplemented {
                        operation: format!(
                            "writing '{location}' with the attribute {other:?} (buckets keep only \
                             the content type)"
                        ),
                        implementer: error::STORE.into(),
                    });
                }
            }
        }
        Ok(content_type
            .or_else(|| {
                self.client_options
                    .get_content_type(location)
                    .map(Into::into)
            })
            .or_else(|| {
                mime_guess::from_path(location.as_ref())
                    .first_raw()
                    .map(Into::into)
            }))
    }

    async fn copy_object(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (self.key(from), self.key(to));
        let entry = self.core.head(&from).await?;
        if from == to {
            return Ok(());
        }
        self.core.copy(&from, entry, &to).await
    }
}

fn put_result(file: XetFile) -> PutResult {
    PutResult {
        e_tag: Some(file.hash.clone()),
        version: Some(file.hash),
        extensions: Extensions::default(),
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for HfBucket {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        match opts.mode {
            PutMode::Overwrite => {}
            PutMode::Create => {
                return Err(error::no_conditional_writes("put with PutMode::Create"));
            }
            PutMode::Update(_) => {
                return Err(error::no_conditional_writes("put with PutMode::Update"));
            }
        }
        let content_type = self.content_type(location, &opts.attributes)?;
        let parts = payload.into_iter().collect();
        let file = self
            .core
            .put(&self.key(location), parts, content_type)
            .await?;
        Ok(put_result(file))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let content_type = self.content_type(location, &opts.attributes)?;
        let core = Arc::clone(&self.core);
        let upload = HfMultipartUpload::start(core, self.key(location), content_type).await?;
        Ok(Box::new(upload))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        get::get(&self.core, location, &self.key(location), options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        get::get_ranges(&self.core, &self.key(location), ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .chunks(commit::MAX_OPS)
            .then(move |chunk| {
                let store = store.clone();
                async move { futures::stream::iter(store.delete_chunk(chunk).await) }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self, prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self, prefix, Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        list::list_with_delimiter(self, prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        match options.mode {
            CopyMode::Overwrite => self.copy_object(from, to).await,
            CopyMode::Create => Err(error::no_conditional_writes("copy with CopyMode::Create")),
        }
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        match options.target_mode {
            RenameTargetMode::Overwrite => {}
            RenameTargetMode::Create => {
                return Err(error::no_conditional_writes(
                    "rename with RenameTargetMode::Create",
                ));
            }
        }
        self.copy_object(from, to).await?;
        if from == to {
            return Ok(());
        }
        // A batch is no transaction: deleting in the same one could lose the object.
        let mut deleted = self.core.delete(vec![self.key(from)]).await;
        deleted.pop().unwrap_or(Ok(()))
    }
}

impl HfBucket {
    /// Deletes what the chunk names; errors of the caller's stream stay at their places.
    async fn delete_chunk(&self, chunk: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let keys = chunk
            .iter()
            .filter_map(|location| location.as_ref().ok())
            .map(|location| self.key(location))
            .collect();
        let mut outcomes = self.core.delete(keys).await.into_iter();
        chunk
            .into_iter()
            .map(|location| {
                let location = location?;
                match outcomes.next() {
                    Some(Err(error)) => Err(error),
                    Some(Ok(())) | None => Ok(location),
                }
            })
            .collect()
    }
}

impl fmt::Display for HfBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HfBucket({})", self.location)
    }
}

impl fmt::Debug for HfBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfBucket")
            .field("location", &self.location)
            .field("hub", &self.core.hub)
            .field("mode", &self.core.mode)
            .finish_non_exhaustive()
    }
}
