//! Hugging Face Storage Buckets for everything that speaks [`object_store`], and a KV-cache L2 tier
//! over any [`ObjectStore`](object_store::ObjectStore).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod hub;
pub mod l2;
#[cfg(feature = "local-hub")]
pub mod local_hub;
mod location;
mod store;
mod xet;

pub use location::{BucketLocation, LocationError};
pub use store::{
    BucketInfo, DownloadMode, HfBucket, HfBucketBuilder, HfBucketConfigKey, HfBucketRegistry,
    HfToken, HfTokenProvider, parse_url_opts,
};
