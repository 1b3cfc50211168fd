//! What tests of the L2 adapter share: keys, contents, and what an adapter says of them.

#![allow(dead_code, reason = "each test binary uses a part")]

use bytes::Bytes;
use hfbucket::l2::{L2Adapter, ObjectKey};
use serde_json::{Value, json};

use crate::l2_backends::Harness;

/// One gibibyte, of which capacities are given as a share.
pub const GIB: f64 = (1u64 << 30) as f64;

pub fn evicting(capacity: u64, watermark: f64, ratio: f64) -> Value {
    json!({
        "max_capacity_gb": capacity as f64 / GIB,
        "eviction": {"eviction_policy": "LRU", "trigger_watermark": watermark,
                     "eviction_ratio": ratio},
    })
}

pub fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count)
        .map(|n| ObjectKey::new("org/model", 0x0100_0100, (n as u32).to_be_bytes()).unwrap())
        .collect()
}

/// The same keys under a salt.
pub fn salted(keys: &[ObjectKey], salt: &str) -> Vec<ObjectKey> {
    keys.iter()
        .map(|key| key.clone().with_cache_salt(salt).unwrap())
        .collect()
}

pub fn content(key: &ObjectKey, size: usize) -> Bytes {
    let seed = key.chunk_hash().last().copied().unwrap_or(0);
    (0..size)
        .map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

pub fn batch(keys: &[ObjectKey], size: usize) -> Vec<(ObjectKey, Bytes)> {
    keys.iter()
        .map(|key| (key.clone(), content(key, size)))
        .collect()
}

pub async fn store(adapter: &L2Adapter, keys: &[ObjectKey], size: usize) {
    let report = adapter.store(batch(keys, size)).await;
    assert!(report.is_ok(), "{report:?}");
}

/// The bitmap of a lookup whose locks are released again.
pub async fn find(adapter: &L2Adapter, keys: &[ObjectKey]) -> Vec<bool> {
    let found = adapter.lookup_and_lock(keys).await;
    assert!(found.errors.is_empty(), "{found:?}");
    found.bitmap.iter().collect()
}

pub fn used(adapter: &L2Adapter) -> u64 {
    adapter.usage().total_bytes_used
}

/// Usage is what the store lists, in all and in number.
pub async fn assert_counted(harness: &Harness, adapter: &L2Adapter) {
    let listed = harness.list().await;
    let bytes: u64 = listed.iter().map(|(_, size)| size).sum();
    assert_eq!(used(adapter), bytes, "{listed:?}");
    assert_eq!(adapter.status().stored_object_count, listed.len());
    let by_salt: u64 = adapter.usage().bytes_by_cache_salt.values().sum();
    assert_eq!(by_salt, bytes);
}
