//! What an adapter says of itself.

use serde::Serialize;

use super::adapter::L2Adapter;
use super::config::Backend;
use super::naming::KeyLayout;
use super::recovery::Recovery;
use super::stats::Totals;

/// An adapter's state at one moment, without asking the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Not closed.
    pub is_healthy: bool,
    /// Always `L2Adapter`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The store, as it displays itself.
    pub store: String,
    /// `<namespace>/<bucket>`, for a bucket.
    pub bucket_id: Option<String>,
    /// The prefix of every object; empty for none.
    pub object_prefix: String,
    /// How objects are named.
    pub key_layout: KeyLayout,
    /// Keys that the adapter tracks.
    pub stored_object_count: usize,
    /// Keys that are locked.
    pub locked_key_count: usize,
    /// Bytes that the adapter counts.
    pub current_size_bytes: u64,
    /// Capacity in bytes; 0 is no limit.
    pub max_capacity_bytes: u64,
    /// The policy's name, with an `eviction` block.
    pub eviction_policy: Option<&'static str>,
    /// Whether an eviction is running.
    pub is_evicting: bool,
    /// Salts over their quota, with `IsolatedLRU`.
    pub salts_over_quota: usize,
    /// Entries of the metadata cache, live or not yet dropped.
    pub cached_entry_count: usize,
    /// The listing of the pool.
    pub recovery: Recovery,
    /// What was done since the adapter was opened.
    pub totals: Totals,
}

impl L2Adapter {
    /// The adapter's state now.
    pub fn status(&self) -> Status {
        let inner = &self.inner;
        let config = &inner.config;
        let state = inner.state.lock();
        Status {
            is_healthy: !inner.is_closed(),
            kind: "L2Adapter",
            store: inner.store.to_string(),
            bucket_id: match config.backend() {
                Backend::HfBucket(bucket) => Some(bucket.bucket_id()),
                Backend::ObjectStore(_) => None,
            },
            object_prefix: config.object_prefix(),
            key_layout: config.key_layout(),
            stored_object_count: state.ledger.len(),
            locked_key_count: state.locks.held_keys(),
            current_size_bytes: state.ledger.total(),
            max_capacity_bytes: inner.capacity,
            eviction_policy: config.eviction().map(|eviction| eviction.policy.as_str()),
            is_evicting: inner
                .controller
                .as_ref()
                .is_some_and(|controller| controller.is_running()),
            salts_over_quota: state
                .quotas
                .as_ref()
                .map_or(0, |quotas| quotas.over().len()),
            cached_entry_count: state.cache.len(),
            recovery: inner.recovery.borrow().clone(),
            totals: inner.stats.totals(),
        }
    }
}
