//! The L2 adapter on a bucket: the shapes as batches, lookups with an empty cache.

use std::sync::Arc;

use bytes::Bytes;
use hfbucket::HfBucketBuilder;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};

use crate::Shape;
use crate::hub::Hub;
use crate::measure::{self, Figures};

async fn adapter(hub: &Hub) -> L2Adapter {
    let store = HfBucketBuilder::new()
        .with_url("hf://buckets/my-org/b")
        .with_endpoint(&hub.endpoint)
        .with_token(hub.token.as_str())
        .with_cache_dir(hub.cache.path().join("l2"))
        .with_create_bucket_if_missing(true)
        .build()
        .expect("a store");
    let config =
        L2Config::from_json(r#"{"bucket_handle": "hf://buckets/my-org/b/kv", "num_workers": 64}"#);
    L2Adapter::with_marked_store(Arc::new(store), config.expect("valid"))
        .await
        .expect("an adapter")
}

/// A batch of the shapes: as many objects as LMCache's controller sends at a time.
fn batch_of(shape: Shape) -> usize {
    match shape.count {
        256 => 16,
        64 => 1,
        32 => 8,
        _ => 4,
    }
}

pub async fn compare(shape: Shape, rounds: usize) {
    let hub = Hub::start();
    let batch = batch_of(shape);
    let writer = adapter(&hub).await;
    let (mut store, mut lookup, mut load) = (Vec::new(), Vec::new(), Vec::new());
    let mut whole = Vec::new();
    for round in 0..rounds {
        let entries: Vec<(ObjectKey, Bytes)> = (0..shape.count)
            .map(|n| {
                let seed = (round * shape.count + n) as u64;
                let key = ObjectKey::new("org/model", 1, seed.to_be_bytes()).expect("a key");
                (key, measure::noise(seed, shape.size))
            })
            .collect();
        let keys: Vec<ObjectKey> = entries.iter().map(|(key, _)| key.clone()).collect();
        let sums: Vec<u64> = entries.iter().map(|(_, data)| measure::sum(data)).collect();
        let ((), figures) = measure::measure(&hub, async {
            for batch in entries.chunks(batch) {
                let report = writer.store(batch.to_vec()).await;
                assert!(report.is_ok(), "{:?}", report.first_error());
            }
        })
        .await;
        store.push(figures);
        drop(entries);

        let reader = adapter(&hub).await;
        let (found, figures) = measure::measure(&hub, reader.lookup_and_lock(&keys)).await;
        assert_eq!(found.prefix_hits(), shape.count);
        lookup.push(figures);
        let mut buffers = vec![vec![0; shape.size]; shape.count];
        let ((), figures) = measure::measure(&hub, async {
            for (keys, buffers) in keys.chunks(batch).zip(buffers.chunks_mut(batch)) {
                assert!(reader.load(keys, buffers).await.is_ok());
            }
        })
        .await;
        load.push(figures);
        for (buffer, sum) in buffers.iter().zip(sums) {
            assert_eq!(measure::sum(buffer), sum);
        }
        drop(found);
        reader.close().await;

        // All in one lookup and one load, by an adapter that knows nothing yet.
        let reader = adapter(&hub).await;
        buffers.iter_mut().for_each(|buffer| buffer.fill(0));
        let ((), figures) = measure::measure(&hub, async {
            let found = reader.lookup_and_lock(&keys).await;
            assert_eq!(found.prefix_hits(), shape.count);
            assert!(reader.load(&keys, &mut buffers).await.is_ok());
        })
        .await;
        whole.push(figures);
        reader.close().await;
    }
    writer.close().await;
    let bytes = shape.bytes() as f64;
    let row = |what: &str, figures: &[Figures], speed: String| {
        let (calls, peak) = (measure::calls(figures), measure::peak(figures));
        println!("| {what} | {speed} | {calls} | {peak} |");
    };
    println!(
        "\n### L2 on a bucket: {}, in batches of {batch}\n",
        shape.name()
    );
    println!("| operation | speed | Hub calls | peak |\n|---|---|---|---|");
    row(
        "store",
        &store,
        measure::megabytes_per_second(bytes, &store),
    );
    row("lookup", &lookup, measure::per_second(shape.count, &lookup));
    row("load", &load, measure::megabytes_per_second(bytes, &load));
    row(
        "look up and load all",
        &whole,
        measure::megabytes_per_second(bytes, &whole),
    );
}
