//! Names and configurations are those of LMCache, byte for byte.

use hfbucket::l2::{Backend, KeyLayout, L2Adapter, L2Config, ObjectKey};
use serde_json::{Value, json};

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn layout(row: &Value) -> KeyLayout {
    match row["layout"].as_str().unwrap() {
        "grouped" => KeyLayout::Grouped,
        "ungrouped" => KeyLayout::Ungrouped,
        other => panic!("unknown layout {other}"),
    }
}

#[test]
fn object_names() {
    let rows = rows(include_str!("data/object_names.json"));
    assert_eq!(rows.len(), 78);
    for row in rows {
        let key: ObjectKey = serde_json::from_value(row.clone()).unwrap();
        let layout = layout(&row);
        let name = row["object_name"].as_str().unwrap();
        let prefix = row["prefix"].as_str().unwrap();
        let path = row["bucket_path"].as_str().unwrap();
        assert_eq!(key.object_name(layout).unwrap(), name);
        let encoded = key.encoded_name(layout).unwrap();
        let whole = match prefix {
            "" => encoded.clone(),
            prefix => format!("{prefix}/{encoded}"),
        };
        assert_eq!(whole, path);
        assert_eq!(ObjectKey::from_object_name(name, layout).unwrap(), key);
        assert_eq!(ObjectKey::from_encoded_name(&encoded, layout).unwrap(), key);
    }
}

/// What the adapter hands to the store is the same path, not encoded again.
#[tokio::test]
async fn store_paths() {
    let mut refused = 0;
    for row in rows(include_str!("data/object_names.json")) {
        let key: ObjectKey = serde_json::from_value(row.clone()).unwrap();
        let handle = format!("hf://buckets/o/b/{}", row["prefix"].as_str().unwrap());
        let config = json!({"bucket_handle": handle, "key_layout": row["layout"]});
        let config = L2Config::from_json(&config.to_string()).unwrap();
        let store = std::sync::Arc::new(object_store::memory::InMemory::new());
        match L2Adapter::with_store(store, config).await {
            Ok(adapter) => {
                let path = adapter.object_path(&key).unwrap();
                assert_eq!(path.as_ref(), row["bucket_path"].as_str().unwrap());
            }
            // No store takes `..`, the Hub included.
            Err(error) => {
                assert_eq!(row["prefix"], "a/../b/./c", "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 1);
}

fn normalized(config: &L2Config) -> Value {
    let Backend::HfBucket(bucket) = config.backend() else {
        panic!("not a bucket");
    };
    let temp = std::env::temp_dir();
    let default = temp.join("lmcache-hfbucket-mp");
    let directory = match bucket.download_tmp_dir() {
        given if given == default.to_string_lossy() => "<system-temp>/lmcache-hfbucket-mp",
        given => given,
    };
    json!({
        "bucket_handle": bucket.bucket_handle(),
        "bucket_id": bucket.bucket_id(),
        "object_prefix": config.object_prefix(),
        "token_env": bucket.token_env(),
        "token": bucket.token(),
        "create_bucket_if_missing": bucket.create_bucket_if_missing(),
        "download_tmp_dir": directory,
        "metadata_cache_ttl_secs": config.metadata_cache_ttl_secs(),
        "num_workers": config.num_workers(),
        "max_capacity_gb": config.max_capacity_gb(),
        "max_capacity_bytes": config.max_capacity_bytes(),
        "eviction": config.eviction().map(|eviction| json!({
            "eviction_policy": eviction.policy.as_str(),
            "trigger_watermark": eviction.trigger_watermark,
            "eviction_ratio": eviction.eviction_ratio,
        })),
    })
}

#[test]
fn configurations() {
    let rows = rows(include_str!("data/config_cases.json"));
    assert_eq!(rows.len(), 100);
    for row in rows {
        let id = &row["id"];
        let read = L2Config::from_json(&row["config"].to_string());
        match (row["verdict"].as_str().unwrap(), read) {
            ("ok", Ok(config)) => assert_eq!(normalized(&config), row["normalized"], "{id}"),
            ("error", Err(error)) => {
                // The field that LMCache stops at, by its reason.
                let error = error.to_string();
                let reason = row["reason"].as_str().unwrap();
                assert!(error.starts_with("L2 config: '"), "{id}: {error}");
                assert!(
                    error.contains(stops_at(reason)),
                    "{id}: {error} for {reason}"
                );
            }
            (verdict, read) => panic!("{id}: expected {verdict}, got {read:?}"),
        }
    }
}

/// Which field the reason of a refusal is about.
fn stops_at(reason: &str) -> &'static str {
    let fields = [
        ("handle is not a string (checked before", "'bucket_handle'"),
        ("worker count is zero (field checks", "'num_workers'"),
        ("parsed before the eviction block", "'bucket_handle'"),
        ("watermark", "'eviction.trigger_watermark'"),
        ("ratio", "'eviction.eviction_ratio'"),
        ("polic", "'eviction.eviction_policy'"),
        ("eviction block", "'eviction'"),
        ("token_env", "'token_env'"),
        ("token ", "'token'"),
        ("directory", "'download_tmp_dir'"),
        ("TTL", "'metadata_cache_ttl_secs'"),
        ("capacity", "'max_capacity_gb'"),
        ("workers", "'num_workers'"),
    ];
    fields
        .iter()
        .find(|(word, _)| reason.contains(word))
        .map_or("", |(_, field)| field)
}
