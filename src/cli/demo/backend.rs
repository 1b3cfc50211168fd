//! What the demo runs on, and how it is left as it was found.

use std::collections::HashSet;
use std::sync::Arc;

use futures::TryStreamExt;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey, PolicyName};
use hfbucket::local_hub::{LocalHub, Requests};
use hfbucket::{HfBucket, HfBucketBuilder};
use object_store::{ObjectStore, RetryConfig};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use url::Url;

use super::super::Stop;
use super::super::size::Size;
use super::Place;

/// A prefix of its own keeps the demo apart from whatever else the store holds.
const PREFIX: &str = "hfbucket-demo";

pub(super) struct Backend {
    adapter: L2Adapter,
    hub: Option<LocalHub>,
    /// The bucket that was made for the demo.
    bucket: Option<HfBucket>,
    /// hf-xet's scratch files.
    _scratch: TempDir,
    name: String,
    /// Keys that the demo has begun to store.
    ours: Mutex<HashSet<ObjectKey>>,
}

impl Backend {
    pub(super) async fn start(place: &Place, capacity: Size) -> Result<Self, Stop> {
        let scratch = TempDir::with_prefix("hfbucket-demo-")?;
        if let Some(json) = &place.l2_adapter {
            let adapter = L2Adapter::open(L2Config::from_json(json)?).await?;
            return Ok(Self::of(adapter, scratch));
        }
        if let Some(url) = &place.url {
            let config = config(
                json!({"type": "object_store", "url": below(url)?}),
                capacity,
            )?;
            return Ok(Self::of(L2Adapter::open(config).await?, scratch));
        }
        if let Some(endpoint) = &place.endpoint {
            // Somebody is waiting: an address that does not answer shall not take half a minute.
            let retry = RetryConfig {
                max_retries: 4,
                ..RetryConfig::default()
            };
            let builder = HfBucketBuilder::from_env()
                .with_endpoint(endpoint)
                .with_retry(retry);
            return Self::in_new_bucket(builder, capacity, scratch).await;
        }
        let hub = LocalHub::builder().in_memory().start().await?;
        let builder = HfBucketBuilder::new()
            .with_endpoint(hub.endpoint())
            .with_token(hub.token());
        let mut backend = Self::in_new_bucket(builder, capacity, scratch).await?;
        backend.name = format!("{} on a local Hub in this process", backend.name);
        backend.hub = Some(hub);
        Ok(backend)
    }

    async fn in_new_bucket(
        builder: HfBucketBuilder,
        capacity: Size,
        scratch: TempDir,
    ) -> Result<Self, Stop> {
        // Whose token it is tells in which namespace a bucket may be made.
        let builder = builder.with_cache_dir(scratch.path());
        let who = builder
            .clone()
            .with_bucket("me/any")
            .build()?
            .whoami()
            .await?;
        let namespace = who.first().map_or("me", String::as_str);
        let id = format!("{namespace}/{PREFIX}-{:08x}", rand::random::<u32>());
        let bucket = builder.with_bucket(&id).with_private(true).build()?;
        let handle = format!("hf://buckets/{id}/{PREFIX}");
        let config = config(
            json!({"type": "hfbucket", "bucket_handle": handle}),
            capacity,
        )?;
        let adapter = L2Adapter::with_store(Arc::new(bucket.clone()), config).await?;
        let mut backend = Self::of(adapter, scratch);
        backend.bucket = Some(bucket);
        Ok(backend)
    }

    fn of(adapter: L2Adapter, scratch: TempDir) -> Self {
        let store = adapter.object_store().to_string();
        let name = match adapter.config().object_prefix().as_str() {
            "" => store,
            prefix => format!("{store}, below {prefix}/"),
        };
        Self {
            adapter,
            hub: None,
            bucket: None,
            _scratch: scratch,
            name,
            ours: Mutex::default(),
        }
    }

    /// Makes the bucket, if the demo has one of its own.
    pub(super) async fn prepare(&self) -> Result<(), Stop> {
        if let Some(bucket) = &self.bucket {
            bucket.create_bucket().await?;
        }
        Ok(())
    }

    /// Bytes at which eviction starts; `None` if it never does.
    pub(super) fn room(&self) -> Option<Size> {
        let eviction = self.adapter.config().eviction()?;
        let capacity = self.adapter.usage().total_capacity_bytes;
        let evicts = capacity > 0 && eviction.policy != PolicyName::Noop;
        evicts.then_some(Size((capacity as f64 * eviction.trigger_watermark) as u64))
    }

    /// Remembers keys that are about to be stored, so that they can be deleted whatever happens.
    pub(super) fn remember(&self, keys: &[ObjectKey]) {
        self.ours.lock().extend(keys.iter().cloned());
    }

    /// All keys of the demo so far.
    pub(super) fn ours(&self) -> Vec<ObjectKey> {
        self.ours.lock().iter().cloned().collect()
    }

    pub(super) fn adapter(&self) -> &L2Adapter {
        &self.adapter
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Requests so far, where the Hub is in this process and can be asked.
    pub(super) fn requests(&self) -> Option<Requests> {
        self.hub.as_ref().map(LocalHub::requests)
    }

    /// Paths and sizes below the adapter's prefix, as the store lists them.
    pub(super) async fn list(&self) -> object_store::Result<Vec<(String, u64)>> {
        let prefix = object_store::path::Path::parse(self.adapter.config().object_prefix())?;
        let prefix = (!prefix.as_ref().is_empty()).then_some(prefix);
        self.adapter
            .object_store()
            .list(prefix.as_ref())
            .map_ok(|meta| (meta.location.to_string(), meta.size))
            .try_collect()
            .await
    }

    /// Deletes what the demo has stored, or the bucket that was made for it, and closes everything.
    pub(super) async fn finish(self) -> Result<(), Stop> {
        // Stores that were given up go on in the background; closing waits for them.
        self.adapter.close().await;
        let deleted = match &self.bucket {
            Some(bucket) => match bucket.delete_bucket().await {
                // Stopped before it was made.
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                other => other.map_err(Stop::from),
            },
            None => super::super::cleanup::delete(&self.adapter, &self.ours()).await,
        };
        if let Some(hub) = self.hub {
            hub.shutdown().await;
        }
        deleted
    }
}

/// The URL with the demo's prefix at the end of its path.
fn below(url: &str) -> Result<String, Stop> {
    let mut url = Url::parse(url).map_err(|error| format!("--url is no URL: {error}"))?;
    url.path_segments_mut()
        .map_err(|()| "--url has no path that a prefix could be added to")?
        .pop_if_empty()
        .push(PREFIX);
    Ok(url.into())
}

fn config(mut json: serde_json::Value, capacity: Size) -> Result<L2Config, Stop> {
    json["max_capacity_gb"] = (capacity.0 as f64 / (1_u64 << 30) as f64).into();
    // Puts that are under way together share a commit.
    json["num_workers"] = 32.into();
    json["eviction"] = json!({
        "eviction_policy": "LRU", "trigger_watermark": 0.9, "eviction_ratio": 0.1,
    });
    Ok(L2Config::from_json(&json.to_string())?)
}
