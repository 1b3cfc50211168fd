//! Shared by the tests: a bucket on a hub of its own.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod own_process;

use std::time::Duration;

use hfbucket::local_hub::LocalHub;
use hfbucket::{HfBucket, HfBucketBuilder};
use object_store::{BackoffConfig, RetryConfig};
use tempfile::TempDir;

/// A hub in memory, and a folder for hf-xet that no other hub has used.
pub struct Fixture {
    pub hub: LocalHub,
    cache: TempDir,
}

impl Fixture {
    pub async fn start() -> Self {
        let hub = LocalHub::builder()
            .in_memory()
            .start()
            .await
            .expect("a hub on a free port");
        Self::with_hub(hub)
    }

    pub fn with_hub(hub: LocalHub) -> Self {
        let cache = TempDir::new().expect("a temporary folder");
        Self { hub, cache }
    }

    /// A builder for `hf://buckets/my-org/<rest>` that creates the bucket and retries without delay.
    pub fn builder(&self, rest: &str) -> HfBucketBuilder {
        HfBucketBuilder::new()
            .with_url(format!("hf://buckets/my-org/{rest}"))
            .with_endpoint(self.hub.endpoint())
            .with_token(self.hub.token())
            .with_cache_dir(self.cache.path())
            .with_create_bucket_if_missing(true)
            .with_retry(quick_retries())
    }

    pub fn store(&self, rest: &str) -> HfBucket {
        self.builder(rest).build().expect("a valid configuration")
    }
}

/// Three retries, milliseconds apart.
pub fn quick_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(5),
            base: 2.,
        },
        max_retries: 3,
        retry_timeout: Duration::from_secs(20),
    }
}

/// `len` bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    use std::num::Wrapping;
    let mut state = Wrapping(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        // splitmix64
        state += 0x9E37_79B9_7F4A_7C15;
        let mut z = state;
        z = (z ^ (z >> 30)) * Wrapping(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)) * Wrapping(0x94D0_49BB_1331_11EB);
        out.extend_from_slice(&(z ^ (z >> 31)).0.to_le_bytes());
    }
    out.truncate(len);
    out
}
