//! Stores by URL: for those who hold a URL and some options, and for `object_store`'s registries.

use object_store::path::Path;
use object_store::registry::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use object_store::{ObjectStore, Result};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use url::Url;

use super::builder::{Error, HfBucketBuilder};
use super::config::HfBucketConfigKey;
use crate::location::BucketLocation;

/// The bucket that `url` names, and the path within it: the counterpart of
/// [`object_store::parse_url_opts`] for `hf://buckets/…` and the web form.
///
/// The environment counts (see [`HfBucketBuilder::from_env`]); options, by the names of
/// [`HfBucketConfigKey`], come before it.
///
/// ```
/// use url::Url;
///
/// let url = Url::parse("hf://buckets/my-org/data/2026/part-0.parquet").unwrap();
/// let (store, path) = hfbucket::parse_url_opts(&url, [("endpoint", "http://localhost:8080")])?;
/// assert_eq!(store.to_string(), "HfBucket(hf://buckets/my-org/data)");
/// assert_eq!(path.as_ref(), "2026/part-0.parquet");
/// # Ok::<(), object_store::Error>(())
/// ```
///
/// # Errors
///
/// An option that is unknown or wrong, or a URL that names no bucket.
pub fn parse_url_opts<K, V>(
    url: &Url,
    options: impl IntoIterator<Item = (K, V)>,
) -> Result<(Box<dyn ObjectStore>, Path)>
where
    K: AsRef<str>,
    V: Into<String>,
{
    let location = BucketLocation::from_url(url).map_err(Error::from)?;
    let mut builder = HfBucketBuilder::from_env();
    for (key, value) in options {
        let key: HfBucketConfigKey = key.as_ref().parse()?;
        if matches!(
            key,
            HfBucketConfigKey::Url | HfBucketConfigKey::Bucket | HfBucketConfigKey::Prefix
        ) {
            let key = key.as_ref().to_owned();
            return Err(Error::NamedByUrl { key }.into());
        }
        builder = builder.with_config(key, value);
    }
    if !builder.is_of_endpoint(url) {
        // Says which Hub is meant and which was asked.
        builder.clone().with_url(url.as_str()).build()?;
    }
    let store = builder
        .with_url(location.with_prefix("").map_err(Error::from)?.to_string())
        .with_prefix("")
        .build()?;
    Ok((Box::new(store), Path::parse(location.prefix())?))
}

/// A registry that makes buckets for `hf://buckets/…` URLs (and the web form) when they are first
/// asked for, and leaves all else to [`DefaultObjectStoreRegistry`].
///
/// ```
/// use hfbucket::HfBucketRegistry;
/// use object_store::registry::ObjectStoreRegistry;
/// use url::Url;
///
/// let registry = HfBucketRegistry::new();
/// let url = Url::parse("hf://buckets/my-org/data/2026/a%20b.parquet").unwrap();
/// let (store, path) = registry.resolve(&url)?;
/// assert_eq!(store.to_string(), "HfBucket(hf://buckets/my-org/data)");
/// assert_eq!(path.as_ref(), "2026/a b.parquet");
/// # Ok::<(), object_store::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct HfBucketRegistry {
    inner: DefaultObjectStoreRegistry,
    /// Held while a bucket is made, so that all who ask first share one.
    making: Mutex<()>,
}

impl HfBucketRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }
}

impl ObjectStoreRegistry for HfBucketRegistry {
    fn register(&self, url: Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.inner.register(canonical(&url).unwrap_or(url), store)
    }

    fn resolve(&self, url: &Url) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let Some(canonical) = canonical(url) else {
            return self.inner.resolve(url);
        };
        let _making = self.making.lock();
        // The default registry knows no `hf` scheme, so what it finds has been registered.
        if let Ok((store, path)) = self.inner.resolve(&canonical) {
            return Ok((store, decoded(&path)?));
        }
        let options: [(&str, &str); 0] = [];
        let (store, path) = parse_url_opts(url, options)?;
        let store: Arc<dyn ObjectStore> = Arc::from(store);
        let mut bucket = canonical;
        let names: Vec<_> = bucket.path().split('/').take(3).collect();
        let names = names.join("/");
        bucket.set_path(&names);
        self.inner.register(bucket, Arc::clone(&store));
        Ok((store, path))
    }

    fn deregister(&self, url: &Url) -> Option<Arc<dyn ObjectStore>> {
        match canonical(url) {
            Some(canonical) => self.inner.deregister(&canonical),
            None => self.inner.deregister(url),
        }
    }
}

/// The `hf://buckets/…` URL for either form, `None` if it names no bucket of the endpoint.
fn canonical(url: &Url) -> Option<Url> {
    if !HfBucketBuilder::from_env().is_of_endpoint(url) {
        return None;
    }
    let location = BucketLocation::from_url(url).ok()?;
    let mut canonical = Url::parse("hf://buckets/").ok()?;
    canonical
        .path_segments_mut()
        .ok()?
        .clear()
        .extend([location.namespace(), location.bucket()])
        .extend(location.prefix().split('/').filter(|s| !s.is_empty()));
    Some(canonical)
}

/// The default registry leaves segments percent-encoded as they stand in the URL.
fn decoded(path: &Path) -> Result<Path> {
    let text = percent_decode_str(path.as_ref()).decode_utf8_lossy();
    Ok(Path::parse(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_bucket_is_made_once() {
        let registry = HfBucketRegistry::new();
        let (first, path) = registry.resolve(&url("hf://buckets/o/b/x/y")).unwrap();
        assert_eq!(path.as_ref(), "x/y");
        let web = url("https://huggingface.co/buckets/o/b/tree/z");
        let (second, path) = registry.resolve(&web).unwrap();
        assert_eq!(path.as_ref(), "z");
        assert!(Arc::ptr_eq(&first, &second));
        let (other, _) = registry.resolve(&url("hf://buckets/o/b2")).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn what_is_registered_comes_first() {
        let registry = HfBucketRegistry::new();
        let mine: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        registry.register(url("hf://buckets/o/b/x"), Arc::clone(&mine));
        let (found, path) = registry.resolve(&url("hf://buckets/o/b/x/a%20b")).unwrap();
        assert!(Arc::ptr_eq(&found, &mine));
        assert_eq!(path.as_ref(), "a b");
        let (found, _) = registry.resolve(&url("hf://buckets/o/b/y")).unwrap();
        assert!(!Arc::ptr_eq(&found, &mine));
        assert!(registry.deregister(&url("hf://buckets/o/b/x")).is_some());
    }

    #[test]
    fn all_else_is_left_to_the_default() {
        let registry = HfBucketRegistry::new();
        let (store, _) = registry.resolve(&url("memory:///x")).unwrap();
        assert_eq!(store.to_string(), "InMemory");
        assert!(registry.resolve(&url("hf://models/o/b")).is_err());
        // Not every server with such a path is the Hub.
        let elsewhere = url("https://minio.example.com/buckets/a/b");
        assert!(registry.resolve(&elsewhere).is_err());
        let none: [(&str, &str); 0] = [];
        let error = parse_url_opts(&elsewhere, none).unwrap_err();
        assert!(error.to_string().contains("minio"), "{error}");
    }

    #[test]
    fn a_wrong_option_is_named() {
        let error = parse_url_opts(&url("hf://buckets/o/b"), [("endpiont", "x")]).unwrap_err();
        assert!(error.to_string().contains("endpiont"), "{error}");
        let error = parse_url_opts(&url("hf://buckets/o/b"), [("bucket", "x/y")]).unwrap_err();
        assert!(error.to_string().contains("hf_bucket"), "{error}");
    }
}
