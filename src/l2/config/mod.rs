//! What an adapter is told: LMCache's `--l2-adapter` JSON, and the same for any object store.

mod bucket;
mod by_url;
mod eviction;
mod fields;
mod handle;

use serde_json::{Map, Value};
use thiserror::Error;

pub use self::bucket::HfBucketConfig;
use self::bucket::UnparsedBucket;
pub use self::by_url::ObjectStoreConfig;
pub use self::eviction::{EvictionConfig, EvictionUnit, PolicyName, UnregisteredSalts};
use self::fields::Fields;
use super::naming::KeyLayout;

/// Seconds for which a miss is believed, unless told otherwise.
const DEFAULT_MISS_TTL: f64 = 2.0;

/// An adapter's configuration.
///
/// # Fields
///
/// LMCache's `hfbucket` JSON is taken unchanged; `type` is only looked at to tell the two kinds
/// apart. Unknown fields are ignored, as there.
///
/// | field | kind | default |
/// |---|---|---|
/// | `bucket_handle` | `hf://buckets/<namespace>/<bucket>[/<prefix>]` | required |
/// | `token_env` | text: the variable that holds the token | `HF_TOKEN` |
/// | `token` | text or null | null |
/// | `download_tmp_dir` | text | `<system temp>/lmcache-hfbucket-mp` |
/// | `create_bucket_if_missing` | boolean | false |
///
/// or, with `"type": "object_store"`:
///
/// | field | kind | default |
/// |---|---|---|
/// | `url` | `s3://…`, `file:///…` or `memory:///…`; its path is the prefix. The directory of a `file` URL begins at the root; the first store creates it where it is missing | required |
/// | `options` | object of text, numbers and booleans: `object_store`'s own option keys; for S3 they come before the `AWS_…` variables of the environment | none |
/// | `fsync` | boolean, true for `file` URLs only: a store is done when the file and its directory are on the disk. Without it, a loss of power may take back the last stores | false |
///
/// and for both:
///
/// | field | kind | default |
/// |---|---|---|
/// | `metadata_cache_ttl_secs` | seconds, 0 switches the cache off | 30 |
/// | `num_workers` | objects downloaded at a time; 16 times as many are uploaded, since on a bucket they share commits | 4 |
/// | `max_capacity_gb` | GiB, 0 is no limit | 0 |
/// | `eviction` | object or null: see [`EvictionConfig`] | null |
///
/// and beyond LMCache:
///
/// | field | kind | default |
/// |---|---|---|
/// | `key_layout` | `ungrouped` or `grouped`: see [`KeyLayout`] | `ungrouped` |
/// | `negative_cache_ttl_secs` | seconds for which a miss is believed, 0 for none | 2, or `metadata_cache_ttl_secs` if that is less |
/// | `lock_ttl_secs` | seconds after which locks lapse, 0 never | 0 |
/// | `admission` | `soft` or `hard`: see [`Admission`] | `soft` |
/// | `recover_on_start` | boolean: list the pool at start | true with a capacity or quotas, else false |
/// | `resync_interval_secs` | seconds between listings, 0 for none | 0 |
///
/// Some values pass here, as they do in LMCache, and are refused by
/// [`L2Adapter::open`](super::L2Adapter::open) because nothing can work with them.
///
/// ```
/// use hfbucket::l2::L2Config;
///
/// let config = L2Config::from_json(r#"{"type": "hfbucket",
///     "bucket_handle": "hf://buckets/my-org/lmcache-kv/prod", "max_capacity_gb": 1.5}"#)?;
/// assert_eq!(config.object_prefix(), "prod");
/// assert_eq!(config.max_capacity_bytes(), 1_610_612_736);
///
/// let error = L2Config::from_json(r#"{"type": "object_store", "url": "memory:///",
///     "num_workers": 0}"#).unwrap_err();
/// assert_eq!(error.to_string(), "L2 config: 'num_workers' must be at least 1, not 0");
/// # Ok::<(), hfbucket::l2::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct L2Config {
    backend: Backend,
    metadata_cache_ttl_secs: f64,
    num_workers: usize,
    max_capacity_gb: f64,
    key_layout: KeyLayout,
    eviction: Option<EvictionConfig>,
    beyond: Beyond,
}

/// The fields that LMCache does not have.
#[derive(Debug, Clone, PartialEq)]
struct Beyond {
    negative_cache_ttl_secs: Option<f64>,
    lock_ttl_secs: f64,
    admission: Admission,
    recover_on_start: Option<bool>,
    resync_interval_secs: f64,
}

/// What happens to a store beyond the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Admission {
    /// It is stored, and eviction makes room after: usage may exceed the capacity for a while.
    #[default]
    Soft,
    /// It is refused with [`L2Error::Full`](super::L2Error::Full) before anything is sent: what this
    /// adapter counts and sends never exceeds the capacity.
    Hard,
}

/// Which store an adapter opens.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Backend {
    /// A Hugging Face Storage Bucket.
    HfBucket(HfBucketConfig),
    /// A store that `object_store` knows by URL.
    ObjectStore(ObjectStoreConfig),
}

/// Which field of a configuration is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON, or not an object.
    #[error("L2 config: {reason}")]
    Json {
        /// What the parser says.
        reason: String,
    },
    /// A required field is not there.
    #[error("L2 config: '{field}' is required{hint}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What else to look at, with its own separator; may be empty.
        hint: &'static str,
    },
    /// A value that the field does not take.
    #[error("L2 config: '{field}' must be {expected}, not {found}")]
    Value {
        /// The field.
        field: String,
        /// What it takes.
        expected: &'static str,
        /// What was given; secrets are left out.
        found: String,
    },
}

impl L2Config {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first field that is wrong.
    pub fn from_json(json: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(json).map_err(|error| ConfigError::Json {
            reason: error.to_string(),
        })?;
        match value {
            Value::Object(map) => Self::from_map(&map),
            other => Err(ConfigError::Json {
                reason: format!("expected an object, found {}", fields::show(&other)),
            }),
        }
    }

    fn from_map(map: &Map<String, Value>) -> Result<Self, ConfigError> {
        let fields = Fields(map);
        // LMCache's own parser never looks at `type`; only ours tells the kinds apart by it.
        if fields
            .text("type")
            .is_ok_and(|kind| kind == Some("object_store"))
        {
            Self::read(&fields, ObjectStoreConfig::read, |config| {
                Ok(Backend::ObjectStore(config))
            })
        } else {
            Self::read(&fields, UnparsedBucket::read, |bucket| {
                bucket.finish(&fields).map(Backend::HfBucket)
            })
        }
    }

    /// Reads in the order of LMCache: the store's fields, the common ones, the handle, eviction.
    fn read<T>(
        fields: &Fields<'_>,
        first: impl Fn(&Fields<'_>) -> Result<T, ConfigError>,
        then: impl Fn(T) -> Result<Backend, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let store = first(fields)?;
        let metadata_cache_ttl_secs = fields.not_negative("metadata_cache_ttl_secs", 30.0)?;
        let num_workers = fields.positive_integer("num_workers", 4)?;
        let max_capacity_gb = fields.not_negative("max_capacity_gb", 0.0)?;
        let backend = then(store)?;
        Ok(Self {
            backend,
            metadata_cache_ttl_secs,
            num_workers,
            max_capacity_gb,
            eviction: EvictionConfig::read(fields)?,
            key_layout: read_layout(fields)?,
            beyond: Beyond::read(fields)?,
        })
    }

    /// Which store the adapter opens.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The prefix of every object, below the root of the bucket or store; empty for none.
    ///
    /// For a bucket the rest of its handle, for a URL its path, percent-decoded.
    pub fn object_prefix(&self) -> String {
        match &self.backend {
            Backend::HfBucket(bucket) => bucket.prefix().to_owned(),
            Backend::ObjectStore(store) => store.prefix(),
        }
    }

    /// Seconds for which a size or a miss is believed; 0 asks the store every time.
    pub fn metadata_cache_ttl_secs(&self) -> f64 {
        self.metadata_cache_ttl_secs
    }

    /// Objects downloaded at a time. Uploads may be 16 times as many: a worker of LMCache uploads a
    /// whole batch, and on a bucket what is under way together shares a commit.
    pub fn num_workers(&self) -> usize {
        self.num_workers
    }

    /// Capacity in GiB, as given.
    pub fn max_capacity_gb(&self) -> f64 {
        self.max_capacity_gb
    }

    /// Capacity in bytes, rounded down; 0 is no limit.
    pub fn max_capacity_bytes(&self) -> u64 {
        gib_to_bytes(self.max_capacity_gb)
    }

    /// How objects are named.
    pub fn key_layout(&self) -> KeyLayout {
        self.key_layout
    }

    /// When and how keys are evicted; `None` never evicts.
    pub fn eviction(&self) -> Option<&EvictionConfig> {
        self.eviction.as_ref()
    }
}

impl L2Config {
    /// The same without the `eviction` block: an adapter that deletes only what it is told to. For
    /// tools that look at a pool, or measure it, and must not make room in it.
    #[must_use]
    pub fn without_eviction(mut self) -> Self {
        self.eviction = None;
        self
    }

    /// The same without listings in the background, neither at start nor later: the pool is listed
    /// when [`recovered`](super::L2Adapter::recovered) or [`resync`](super::L2Adapter::resync) is
    /// called, and a failure is theirs to tell. For tools, which wait for the listing anyway.
    #[must_use]
    pub fn without_listings(mut self) -> Self {
        self.beyond.recover_on_start = Some(false);
        self.beyond.resync_interval_secs = 0.0;
        self
    }

    /// Seconds for which a miss is believed. Short by default, because another adapter may store the
    /// object at any time and would be hidden meanwhile.
    pub fn negative_cache_ttl_secs(&self) -> f64 {
        let default = DEFAULT_MISS_TTL.min(self.metadata_cache_ttl_secs);
        self.beyond.negative_cache_ttl_secs.unwrap_or(default)
    }

    /// Seconds after which the locks of a key lapse if none was taken meanwhile; 0 is never.
    pub fn lock_ttl_secs(&self) -> f64 {
        self.beyond.lock_ttl_secs
    }

    /// What happens to a store beyond the capacity.
    pub fn admission(&self) -> Admission {
        self.beyond.admission
    }

    /// Whether the pool is listed at start, so that usage and eviction know what is there. As given,
    /// or true if there is a capacity or a policy with quotas.
    pub fn recover_on_start(&self) -> bool {
        let has_quotas = |eviction: &EvictionConfig| eviction.policy == PolicyName::IsolatedLru;
        self.beyond.recover_on_start.unwrap_or_else(|| {
            self.max_capacity_bytes() > 0 || self.eviction.as_ref().is_some_and(has_quotas)
        })
    }

    /// Seconds between listings of the pool, which find what other writers did; 0 is never.
    pub fn resync_interval_secs(&self) -> f64 {
        self.beyond.resync_interval_secs
    }
}

impl Beyond {
    fn read(fields: &Fields<'_>) -> Result<Self, ConfigError> {
        let optional = |field| match fields.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => fields.not_negative(field, 0.0).map(Some),
        };
        let admission = match fields.text("admission")? {
            None | Some("soft") => Admission::Soft,
            Some("hard") => Admission::Hard,
            Some(_) => return Err(fields.refuse("admission", "\"soft\" or \"hard\"")),
        };
        let recover_on_start = match fields.0.get("recover_on_start") {
            None | Some(Value::Null) => None,
            Some(_) => Some(fields.boolean("recover_on_start", false)?),
        };
        Ok(Self {
            negative_cache_ttl_secs: optional("negative_cache_ttl_secs")?,
            lock_ttl_secs: fields.not_negative("lock_ttl_secs", 0.0)?,
            admission,
            recover_on_start,
            resync_interval_secs: fields.not_negative("resync_interval_secs", 0.0)?,
        })
    }
}

/// Rounded down, as in LMCache.
fn gib_to_bytes(gib: f64) -> u64 {
    // A float cast saturates, and takes NaN to 0; `open` refuses what is not finite.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = (gib * (1u64 << 30) as f64) as u64;
    bytes
}

fn read_layout(fields: &Fields<'_>) -> Result<KeyLayout, ConfigError> {
    match fields.text("key_layout")? {
        None | Some("ungrouped") => Ok(KeyLayout::Ungrouped),
        Some("grouped") => Ok(KeyLayout::Grouped),
        Some(_) => Err(fields.refuse("key_layout", "\"ungrouped\" or \"grouped\"")),
    }
}

#[cfg(test)]
mod tests;
