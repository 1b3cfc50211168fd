//! What a batch costs at the Hub, whose requests are limited: far less than one request per key.

#![cfg(feature = "local-hub")]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};
use hfbucket::local_hub::{Class, Requests};
use serde_json::json;
use support::Fixture;

const KEYS: u8 = 100;
const SIZE: usize = 4096;

async fn adapter(fixture: &Fixture) -> L2Adapter {
    let config = json!({"bucket_handle": "hf://buckets/my-org/b/kv"});
    let config = L2Config::from_json(&config.to_string()).unwrap();
    let store = Arc::new(fixture.store("b"));
    L2Adapter::with_store(store, config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_costs_few_requests_and_a_load_none() {
    let fixture = Fixture::start().await;
    let keys: Vec<ObjectKey> = (0..KEYS)
        .map(|n| ObjectKey::new("m", 0, [n]).unwrap())
        .collect();
    let content = |n: u8| Bytes::from(support::noise(n.into(), SIZE));
    let mut seen = fixture.hub.requests();
    let mut spent = |class: Class| {
        let now: Requests = fixture.hub.requests();
        let spent = now.since(&seen).of(class);
        seen = now;
        spent
    };

    let entries = keys.iter().cloned().zip((0..KEYS).map(content)).collect();
    let report = adapter(&fixture).await.store(entries).await;
    assert!(report.is_ok(), "{:?}", report.first_error());
    let asked = spent(Class::Api);
    assert!(asked < 20, "stored with {asked} requests");

    // An adapter that knows nothing yet.
    let reader = adapter(&fixture).await;
    let found = reader.lookup_and_lock(&keys).await;
    assert_eq!(found.prefix_hits(), usize::from(KEYS));
    let asked = spent(Class::Api);
    assert!(asked < 20, "looked up with {asked} requests");

    let mut buffers = vec![vec![0; SIZE]; keys.len()];
    assert!(reader.load(&keys, &mut buffers).await.is_ok());
    for (n, buffer) in (0..KEYS).zip(&buffers) {
        assert_eq!(*buffer, content(n));
    }
    assert_eq!(spent(Class::Api), 0, "a load reads what was looked up");
    assert_eq!(fixture.hub.requests().of(Class::Resolver), 0);

    found.into_guard().release();
    assert!(reader.delete(&keys).await.is_ok());
    assert_eq!(spent(Class::Api), 1);
}
