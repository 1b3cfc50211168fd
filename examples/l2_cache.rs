//! A KV-cache tier with a capacity, in memory: `cargo run --example l2_cache`.
//!
//! Give another URL as the first argument, such as `file:///tmp/kv`.

use bytes::Bytes;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};

const CHUNK: usize = 64 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let config = serde_json::json!({
        "type": "object_store",
        "url": url.as_deref().unwrap_or("memory:///kv"),
        "max_capacity_gb": 10.0 * CHUNK as f64 / (1u64 << 30) as f64,
        "eviction": {"eviction_policy": "LRU", "trigger_watermark": 0.8, "eviction_ratio": 0.2},
    });
    let adapter = L2Adapter::open(L2Config::from_json(&config.to_string())?).await?;
    let keys = (0..12_u8)
        .map(|chunk| ObjectKey::new("meta-llama/Llama-3.1-8B", 0x0100_0100, [chunk]))
        .collect::<Result<Vec<_>, _>>()?;

    for key in &keys {
        let chunk = Bytes::from(vec![key.chunk_hash()[0]; CHUNK]);
        let report = adapter.store(vec![(key.clone(), chunk)]).await;
        if let Some(error) = report.first_error() {
            return Err(error.clone().into());
        }
    }
    adapter.eviction_idle().await;
    println!("{:?}", adapter.usage());

    let found = adapter.lookup_and_lock(&keys).await;
    println!("{} of {} chunks are left", found.hits(), keys.len());
    let last = &keys[keys.len() - 1..];
    let mut buffers = vec![vec![0; CHUNK]];
    assert!(adapter.load(last, &mut buffers).await.is_ok());
    assert!(buffers[0].iter().all(|&byte| byte == 11));
    drop(found); // unlocks
    adapter.delete(&keys).await;
    adapter.close().await;
    Ok(())
}
