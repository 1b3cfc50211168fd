//! From a configuration to a store and to settings that work.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use tokio::sync::Semaphore;

use super::adapter::seconds;
use super::config::{
    Backend, EvictionConfig, HfBucketConfig, L2Config, ObjectStoreConfig, PolicyName,
};
use super::error::L2Error;
use super::eviction::controller::Controller;
use super::eviction::quotas::Quotas;
use super::eviction::{Adaptive, IsolatedLru, Lru, Noop, Policy, S3Fifo};
use super::naming::Namer;
use super::state::Parts;
use crate::{ChangeMark, HfBucketBuilder};

/// LMCache's workers each upload a batch, in one commit. Here the objects of all batches share
/// commits, if enough of them are under way.
const UPLOADS_PER_WORKER: usize = 16;

/// What an adapter works with.
pub(super) struct Settings {
    pub(super) namer: Namer,
    pub(super) workers: usize,
    /// Objects uploaded at a time.
    pub(super) uploads: usize,
    pub(super) parts: Parts,
    pub(super) controller: Option<Controller>,
    /// Between two listings.
    pub(super) resync: Option<Duration>,
}

fn unusable(field: &'static str, reason: impl Into<String>) -> L2Error {
    L2Error::Unusable {
        field,
        reason: reason.into(),
    }
}

/// Refuses what can be read but not work.
pub(super) fn settings(config: &L2Config) -> Result<Settings, L2Error> {
    let prefix = config.object_prefix();
    let field = match config.backend() {
        Backend::HfBucket(_) => "bucket_handle",
        Backend::ObjectStore(_) => "url",
    };
    let namer = Namer::new(&prefix, config.key_layout()).map_err(|error| {
        unusable(
            field,
            format!("has the prefix '{prefix}', which no store takes: {error}"),
        )
    })?;
    for (field, number) in [
        ("max_capacity_gb", config.max_capacity_gb()),
        ("metadata_cache_ttl_secs", config.metadata_cache_ttl_secs()),
        ("negative_cache_ttl_secs", config.negative_cache_ttl_secs()),
        ("lock_ttl_secs", config.lock_ttl_secs()),
        ("resync_interval_secs", config.resync_interval_secs()),
    ] {
        if !number.is_finite() {
            return Err(unusable(
                field,
                format!("is {number}: give a finite number"),
            ));
        }
    }
    let eviction = eviction(config)?;
    Ok(Settings {
        namer,
        workers: config.num_workers().min(Semaphore::MAX_PERMITS),
        uploads: (config.num_workers())
            .saturating_mul(UPLOADS_PER_WORKER)
            .min(Semaphore::MAX_PERMITS),
        parts: Parts {
            hit_ttl: seconds(config.metadata_cache_ttl_secs()),
            miss_ttl: seconds(config.negative_cache_ttl_secs()),
            lease: positive(config.lock_ttl_secs()),
            policy: eviction.policy,
            quotas: eviction.quotas,
        },
        controller: eviction.controller,
        resync: positive(config.resync_interval_secs()),
    })
}

/// A time of 0 is none.
fn positive(secs: f64) -> Option<Duration> {
    Some(seconds(secs)).filter(|duration| !duration.is_zero())
}

struct Eviction {
    policy: Box<dyn Policy>,
    quotas: Option<Quotas>,
    controller: Option<Controller>,
}

impl Eviction {
    fn none() -> Self {
        Self {
            policy: Box::new(Noop),
            quotas: None,
            controller: None,
        }
    }
}

fn eviction(config: &L2Config) -> Result<Eviction, L2Error> {
    let Some(eviction) = config.eviction() else {
        return Ok(Eviction::none());
    };
    if eviction.policy == PolicyName::Noop {
        return Ok(Eviction::none());
    }
    check_shares(eviction)?;
    let quotas = (eviction.policy == PolicyName::IsolatedLru).then(|| {
        Quotas::new(
            &eviction.salt_quotas,
            eviction.unregistered_salts,
            eviction.trigger_watermark,
        )
    });
    if config.max_capacity_bytes() == 0 && quotas.is_none() {
        // Without a capacity nothing is ever too full, and no order is kept.
        return Ok(Eviction::none());
    }
    Ok(Eviction {
        policy: policy(eviction.policy),
        quotas,
        controller: Some(Controller::new(eviction, config.max_capacity_bytes())),
    })
}

pub(super) fn policy(name: PolicyName) -> Box<dyn Policy> {
    match name {
        PolicyName::Noop => Box::new(Noop),
        PolicyName::Lru => Box::new(Lru::default()),
        PolicyName::Arc => Box::new(Adaptive::default()),
        PolicyName::S3Fifo => Box::new(S3Fifo::default()),
        PolicyName::IsolatedLru => Box::new(IsolatedLru::default()),
    }
}

fn check_shares(eviction: &EvictionConfig) -> Result<(), L2Error> {
    let watermark = eviction.trigger_watermark;
    // Beyond 1, nothing would be evicted before the capacity is exceeded; at 0, everything always.
    if watermark.is_nan() || watermark <= 0.0 || watermark > 1.0 {
        return Err(unusable(
            "eviction.trigger_watermark",
            format!("is {watermark}: give a share of the capacity, more than 0 and at most 1"),
        ));
    }
    let ratio = eviction.eviction_ratio;
    if ratio.is_nan() || ratio <= 0.0 {
        return Err(unusable(
            "eviction.eviction_ratio",
            format!(
                "is {ratio}, with which no key would ever be evicted: give a share of the keys, more than 0"
            ),
        ));
    }
    Ok(())
}

/// A store, and what says whether it changed.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) mark: Option<Arc<dyn ChangeMark>>,
}

/// The store that the configuration names, at its root: the adapter adds the prefix itself.
pub(super) fn build_store(config: &L2Config) -> Result<Opened, L2Error> {
    match config.backend() {
        Backend::HfBucket(bucket) => build_bucket(bucket),
        Backend::ObjectStore(store) => Ok(Opened {
            store: build_by_url(store)?,
            mark: None,
        }),
    }
}

/// The whole bucket, without a prefix. Without a token of the configuration's the client's own login
/// counts, as for every other client of the Hub.
fn build_bucket(config: &HfBucketConfig) -> Result<Opened, L2Error> {
    let mut builder = HfBucketBuilder::from_env()
        .with_bucket(config.bucket_id())
        .with_cache_dir(config.scratch_dir())
        .with_create_bucket_if_missing(config.create_bucket_if_missing());
    if let Some(token) = config.resolve_token(|name| std::env::var(name).ok()) {
        builder = builder.with_token(token);
    }
    let store = builder
        .build()
        .map_err(|error| unusable("bucket_handle", format!("does not open a bucket: {error}")))?;
    let store = Arc::new(store);
    Ok(Opened {
        mark: Some(Arc::clone(&store) as _),
        store,
    })
}

fn build_by_url(config: &ObjectStoreConfig) -> Result<Arc<dyn ObjectStore>, L2Error> {
    let url = config.url();
    check_options(config)?;
    if url.scheme() == "file" {
        return build_files(config);
    }
    if config.fsync() {
        return Err(unusable(
            "fsync",
            format!(
                "is true, which only file:// stores can heed: leave it out for {}://",
                url.scheme()
            ),
        ));
    }
    // As everywhere, the environment speaks where the options do not.
    let environment = std::env::vars().filter(|(name, _)| is_for_scheme(name, url.scheme()));
    let options = environment.chain(config.options().clone());
    let (store, _) = object_store::parse_url_opts(url, options)
        .map_err(|error| unusable("url", format!("does not open a store: {error}")))?;
    Ok(Arc::from(store))
}

/// The whole file system. The directory is only looked at: the first store creates it.
fn build_files(config: &ObjectStoreConfig) -> Result<Arc<dyn ObjectStore>, L2Error> {
    let directory = (config.url().to_file_path())
        .map_err(|()| unusable("url", "does not name a directory of this system"))?;
    if directory.parent().is_none() {
        return Err(unusable(
            "url",
            "names the root of the file system: name a directory",
        ));
    }
    if std::fs::metadata(&directory).is_ok_and(|found| !found.is_dir()) {
        let directory = directory.display();
        return Err(unusable(
            "url",
            format!("names '{directory}', which is not a directory"),
        ));
    }
    Ok(Arc::new(LocalFileSystem::new().with_fsync(config.fsync())))
}

/// Whether a variable of the environment is one that the stores of a scheme read: `AWS_…` for S3.
fn is_for_scheme(name: &str, scheme: &str) -> bool {
    matches!(scheme, "s3" | "s3a") && name.starts_with("AWS_")
}

/// `object_store` skips options that it does not know; a misspelt one would be lost silently.
fn check_options(config: &ObjectStoreConfig) -> Result<(), L2Error> {
    let scheme = config.url().scheme();
    let known: fn(&str) -> bool = match scheme {
        "file" | "memory" => |_| false,
        "s3" | "s3a" => s3_option()?,
        other => {
            return Err(unusable(
                "url",
                format!("has the scheme '{other}': use s3, file or memory"),
            ));
        }
    };
    match config.options().keys().find(|key| !known(key)) {
        Some(key) => Err(unusable(
            "options",
            format!("has '{key}', which {scheme}:// stores do not know"),
        )),
        None => Ok(()),
    }
}

#[cfg(feature = "aws")]
// The same shape as without the feature.
#[allow(clippy::unnecessary_wraps)]
fn s3_option() -> Result<fn(&str) -> bool, L2Error> {
    Ok(|key| {
        key.to_ascii_lowercase()
            .parse::<object_store::aws::AmazonS3ConfigKey>()
            .is_ok()
    })
}

#[cfg(not(feature = "aws"))]
fn s3_option() -> Result<fn(&str) -> bool, L2Error> {
    Err(unusable(
        "url",
        "has the scheme 's3': build hfbucket with its feature 'aws'",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        let config = L2Config::from_json(json).unwrap();
        let checked = settings(&config).map(|_| ());
        let error = checked.and_then(|()| build_store(&config).map(|_| ()));
        error.unwrap_err().to_string()
    }

    fn bucket(extra: &str) -> String {
        format!(r#"{{"bucket_handle": "hf://buckets/o/b", {extra}}}"#)
    }

    fn evicting(extra: &str) -> String {
        bucket(&format!(
            r#""max_capacity_gb": 1, "eviction": {{"eviction_policy": "LRU", {extra}}}"#
        ))
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (json, message) in [
            (
                evicting(r#""trigger_watermark": 5"#),
                "'eviction.trigger_watermark' is 5",
            ),
            (
                evicting(r#""trigger_watermark": "nan""#),
                "'eviction.trigger_watermark' is NaN",
            ),
            (
                evicting(r#""eviction_ratio": -1"#),
                "'eviction.eviction_ratio' is -1",
            ),
            (
                evicting(r#""eviction_ratio": false"#),
                "'eviction.eviction_ratio' is 0",
            ),
            (
                bucket(r#""eviction": {"eviction_policy": "IsolatedLRU", "eviction_ratio": 0}"#),
                "'eviction.eviction_ratio' is 0",
            ),
            (
                r#"{"bucket_handle": "hf://buckets/o/b/a/../b"}"#.to_owned(),
                "'bucket_handle' has the prefix 'a/../b'",
            ),
            (
                r#"{"type": "object_store", "url": "ftp://x/y"}"#.to_owned(),
                "'url' has the scheme 'ftp'",
            ),
            (
                r#"{"type": "object_store", "url": "memory:///", "options": {"a": 1}}"#.to_owned(),
                "'options' has 'a', which memory:// stores do not know",
            ),
            (
                r#"{"type": "object_store", "url": "memory:///", "fsync": true}"#.to_owned(),
                "'fsync' is true, which only file:// stores can heed",
            ),
            (
                r#"{"type": "object_store", "url": "file:///"}"#.to_owned(),
                "'url' names the root of the file system",
            ),
        ] {
            let error = refused(&json);
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let url = url::Url::from_file_path(file.path()).unwrap();
        let error = refused(&format!(r#"{{"type": "object_store", "url": "{url}"}}"#));
        assert!(error.contains("which is not a directory"), "{error}");
    }

    #[test]
    fn files_are_synced_if_wanted() {
        for (fsync, printed) in [("true", "fsync: true"), ("false", "fsync: false")] {
            let json =
                format!(r#"{{"type": "object_store", "url": "file:///kv", "fsync": {fsync}}}"#);
            let store = build_store(&L2Config::from_json(&json).unwrap()).unwrap();
            let store = format!("{store:?}");
            assert!(store.contains(printed), "{store}");
        }
    }

    #[cfg(feature = "aws")]
    #[test]
    fn options_of_s3_are_checked() {
        let error = refused(
            r#"{"type": "object_store", "url": "s3://b/p", "options": {"aws_regoin": "x"}}"#,
        );
        assert!(error.contains("'aws_regoin'"), "{error}");
        let config = L2Config::from_json(
            r#"{"type": "object_store", "url": "s3://b/p",
                "options": {"aws_region": "x", "AWS_ENDPOINT": "http://localhost:1"}}"#,
        )
        .unwrap();
        assert!(build_store(&config).is_ok());
        assert_eq!(config.object_prefix(), "p");
    }

    #[cfg(not(feature = "aws"))]
    #[test]
    fn s3_needs_its_feature() {
        let error = refused(r#"{"type": "object_store", "url": "s3://b/p"}"#);
        assert!(error.contains("feature 'aws'"), "{error}");
    }
}
