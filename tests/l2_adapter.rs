//! Opening, time and what an adapter says of itself.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[cfg(feature = "local-hub")]
mod support;

use std::time::Duration;

use bytes::Bytes;
use hfbucket::l2::{L2Adapter, L2Config, L2Error, ObjectKey};
use l2_faults::Op;
use serde_json::{Value, json};
use tokio::time::advance;

fn key(n: u8) -> ObjectKey {
    ObjectKey::new("org/m", 1, [n]).unwrap()
}

async fn open(config: Value) -> Result<L2Adapter, L2Error> {
    L2Adapter::open(L2Config::from_json(&config.to_string()).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn hits_are_believed_for_the_lifetime_and_misses_briefly() {
    let harness = l2_backends::in_memory().await;
    let adapter = harness
        .adapter(json!({"metadata_cache_ttl_secs": 30}))
        .await;
    adapter
        .store(vec![(key(1), Bytes::from_static(b"x"))])
        .await;
    let keys = [key(1), key(2)];
    let hits = async || adapter.lookup_and_lock(&keys).await.hits();
    assert_eq!((hits().await, harness.faults.calls(Op::Head)), (1, 1));
    // Another writer stores what was a miss: seen after two seconds.
    harness.put(&adapter, &key(2), vec![1]).await;
    advance(Duration::from_millis(1999)).await;
    assert_eq!((hits().await, harness.faults.calls(Op::Head)), (1, 1));
    advance(Duration::from_millis(1)).await;
    assert_eq!((hits().await, harness.faults.calls(Op::Head)), (2, 2));
    // Another writer deletes what was a hit: seen after thirty.
    harness.remove(&adapter, &key(1)).await;
    advance(Duration::from_millis(27_999)).await;
    assert_eq!((hits().await, harness.faults.calls(Op::Head)), (2, 2));
    advance(Duration::from_millis(1)).await;
    assert_eq!((hits().await, harness.faults.calls(Op::Head)), (1, 3));
}

#[tokio::test]
async fn stores_open_by_url() {
    let directory = tempfile::tempdir().unwrap();
    let server = l2_backends::S3Server::start().await;
    let url = url::Url::from_directory_path(directory.path().join("kv cache")).unwrap();
    let mut configs = vec![
        json!({"type": "object_store", "url": "memory:///a/b"}),
        json!({"type": "object_store", "url": url.as_str()}),
    ];
    if cfg!(feature = "aws") {
        configs.push(json!({
            "type": "object_store",
            "url": "s3://bucket/some/prefix",
            "options": {
                "aws_endpoint": server.endpoint,
                "aws_allow_http": true,
                "aws_region": "us-east-1",
                "aws_access_key_id": "key",
                "aws_secret_access_key": "secret",
            },
        }));
    }
    for config in configs {
        let adapter = open(config.clone()).await.unwrap();
        let report = adapter
            .store(vec![(key(1), Bytes::from_static(b"12345"))])
            .await;
        assert!(report.is_ok(), "{config}: {report:?}");
        let mut buffers = [[0; 5]];
        assert!(
            adapter.load(&[key(1)], &mut buffers).await.is_ok(),
            "{config}"
        );
        assert_eq!(&buffers[0], b"12345");
        let path = adapter.object_path(&key(1)).unwrap().to_string();
        let name = "org%2Fm%4000000001%4001";
        let prefix = adapter.config().object_prefix();
        assert_eq!(path, format!("{prefix}/{name}"));
        assert!(!prefix.is_empty());
        adapter.close().await;
    }
    // The name is exact on disk, too.
    let file = directory.path().join("kv cache/org%2Fm%4000000001%4001");
    assert_eq!(std::fs::read(file).unwrap(), b"12345");
}

#[tokio::test]
async fn what_cannot_work_does_not_open() {
    let bucket = "hf://buckets/my-org/kv";
    for (config, message) in [
        (
            json!({"bucket_handle": "hf://buckets/o/b/../c"}),
            "'bucket_handle' has the prefix '../c'",
        ),
        (
            json!({"bucket_handle": bucket, "max_capacity_gb": 1,
                   "eviction": {"eviction_policy": "LRU", "trigger_watermark": 5}}),
            "'eviction.trigger_watermark' is 5",
        ),
        (
            json!({"bucket_handle": bucket, "max_capacity_gb": 1,
                   "eviction": {"eviction_policy": "ARC", "eviction_ratio": 0}}),
            "'eviction.eviction_ratio' is 0",
        ),
        (
            json!({"type": "object_store", "url": "gs://b"}),
            "'url' has the scheme 'gs'",
        ),
    ] {
        let error = open(config).await.unwrap_err();
        assert!(matches!(error, L2Error::Unusable { .. }));
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[tokio::test]
async fn status_and_usage_serialise_with_the_names_of_the_contract() {
    let harness = l2_backends::in_memory().await;
    let adapter = harness
        .adapter(json!({
            "max_capacity_gb": 1e-6,
            "eviction": {"eviction_policy": "ARC"},
            "key_layout": "grouped",
        }))
        .await;
    let salted = key(2).with_cache_salt("s").unwrap();
    let entries = vec![
        (key(1), Bytes::from_static(b"123")),
        (salted.clone(), Bytes::from_static(b"12")),
    ];
    let listed = adapter.recovered().await.unwrap().listed_objects;
    assert!(adapter.store(entries).await.is_ok());
    let _found = adapter.lookup_and_lock(&[salted]).await;
    let mut status = serde_json::to_value(adapter.status()).unwrap();
    let elapsed = status["recovery"].as_object_mut().unwrap();
    assert!(elapsed.remove("elapsed_secs").unwrap().is_f64());
    assert_eq!(
        status,
        json!({
            "is_healthy": true,
            "type": "L2Adapter",
            "store": "FaultStore(InMemory)",
            "bucket_id": "o/b",
            "object_prefix": "pool/a b",
            "key_layout": "grouped",
            "stored_object_count": 2,
            "locked_key_count": 1,
            "current_size_bytes": 5,
            "max_capacity_bytes": 1073,
            "eviction_policy": "ARC",
            "is_evicting": false,
            "salts_over_quota": 0,
            "cached_entry_count": 2,
            "recovery": {
                "phase": "done",
                "listed_objects": listed,
                "listed_bytes": 0,
                "foreign_objects": 0,
                "recovered_keys": 0,
                "vanished_keys": 0,
                "error": null,
            },
            "totals": {
                "lookup_hits": 1,
                "lookup_misses": 0,
                "stored_keys": 2,
                "stored_bytes": 5,
                "failed_stores": 0,
                "reconciled_stores": 0,
                "refused_stores": 0,
                "loaded_keys": 0,
                "loaded_bytes": 0,
                "failed_loads": 0,
                "deleted_keys": 0,
                "evicted_keys": 0,
                "evicted_bytes": 0,
                "failed_deletes": 0,
                "lapsed_locks": 0,
            },
        })
    );
    assert_eq!(
        serde_json::to_value(adapter.usage()).unwrap(),
        json!({
            "total_bytes_used": 5,
            "total_capacity_bytes": 1073,
            "bytes_by_cache_salt": {"": 3, "s": 2},
            "usage_fraction": 5.0 / 1073.0,
        })
    );
    let printed = format!("{adapter:?}");
    assert!(
        printed.contains("InMemory") && printed.contains("pool/a b"),
        "{printed}"
    );
}

/// A guard may be dropped, and a key unlocked, where nobody knows of tokio.
#[test]
fn locks_end_on_any_thread_and_eviction_goes_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (harness, adapter, found) = runtime.block_on(async {
        let harness = l2_backends::in_memory().await;
        let adapter = harness
            .adapter(json!({
                "max_capacity_gb": 1000.0 / (1u64 << 30) as f64,
                "eviction": {"eviction_policy": "LRU"},
            }))
            .await;
        adapter.recovered().await.unwrap();
        let keys = [key(1), key(2)];
        let entry = |n, size| (key(n), Bytes::from(vec![n; size]));
        assert!(
            adapter
                .store(vec![entry(1, 10), entry(2, 10)])
                .await
                .is_ok()
        );
        let found = adapter.lookup_and_lock(&keys).await;
        adapter
            .lookup_and_lock(&keys[1..])
            .await
            .into_guard()
            .detach();
        assert!(
            adapter
                .store(vec![entry(1, 500), entry(2, 500)])
                .await
                .is_ok()
        );
        adapter.eviction_idle().await;
        assert_eq!(adapter.usage().total_bytes_used, 1000, "both are locked");
        (harness, adapter, found)
    });
    let other = adapter.clone();
    std::thread::spawn(move || {
        drop(found);
        other.unlock(&[key(2)]);
    })
    .join()
    .unwrap();
    runtime.block_on(adapter.eviction_idle());
    assert_eq!(adapter.usage().total_bytes_used, 500);
    drop(harness);
}
