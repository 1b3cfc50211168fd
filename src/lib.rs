//! Hugging Face Storage Buckets for everything that speaks [`object_store`], and a KV-cache tier over
//! any [`ObjectStore`](object_store::ObjectStore).
//!
//! | You | Start at |
//! |---|---|
//! | have data in a bucket | [`HfBucketBuilder`], [`HfBucket`]; [`parse_url_opts`] and [`HfBucketRegistry`] for URLs |
//! | serve LLMs and keep KV-cache chunks in LMCache's L2 | [`l2::L2Adapter`], [`l2::L2Config`] |
//! | test without a network | `local_hub::LocalHub`, with the feature `local-hub` |
//!
//! ```
//! # #[cfg(feature = "local-hub")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use futures::TryStreamExt;
//! use hfbucket::HfBucketBuilder;
//! use object_store::path::Path;
//! use object_store::{ObjectStore, ObjectStoreExt};
//!
//! # let hub = hfbucket::local_hub::LocalHub::builder().start().await?;
//! # let (endpoint, token) = (hub.endpoint(), hub.token());
//! # let cache = tempfile::tempdir()?;
//! let store = HfBucketBuilder::new()
//!     .with_url("hf://buckets/my-org/data/2026")
//!     .with_endpoint(endpoint)
//!     .with_token(token)
//!     .with_create_bucket_if_missing(true)
//! #   .with_cache_dir(cache.path())
//!     .build()?;
//!
//! // Writes that are under way together share one commit.
//! let (a, b) = (Path::from("a.txt"), Path::from("dir/b.txt"));
//! futures::try_join!(store.put(&a, "1".into()), store.put(&b, "2".into()))?;
//!
//! let objects: Vec<_> = store.list(None).try_collect().await?;
//! assert_eq!(objects.len(), 2);
//! assert_eq!(store.get(&b).await?.bytes().await?, "2");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "local-hub"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! | Feature | Adds |
//! |---|---|
//! | none | the backend and the L2 adapter |
//! | `aws` | `s3://` URLs for the L2 adapter |
//! | `local-hub` | `local_hub::LocalHub`: the Hub's bucket API and a content-addressed store in process |
//! | `cli` | the `hfbucket` command; implies `local-hub` and `aws` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change_mark;
mod hub;
pub mod l2;
#[cfg(feature = "local-hub")]
pub mod local_hub;
mod location;
mod store;
mod xet;

pub use change_mark::ChangeMark;
pub use location::{BucketLocation, LocationError};
pub use store::{
    BucketInfo, DownloadMode, HfBucket, HfBucketBuilder, HfBucketConfigKey, HfBucketRegistry,
    HfToken, HfTokenProvider, parse_url_opts,
};

/// The programs of the README compile.
#[cfg(all(doctest, feature = "local-hub"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// So do those of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/l2.md")]
struct GuideToL2;
