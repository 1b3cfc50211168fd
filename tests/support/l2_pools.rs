//! The L2 suite: pools that others write to as well.

use futures::future::join_all;
use hfbucket::l2::L2Adapter;
use object_store::ObjectStoreExt;
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};
use crate::l2_helpers::{assert_counted, batch, evicting, find, keys, store, used};

pub async fn a_resync_counts_what_others_did(harness: &Harness) {
    let keys = keys(5);
    let adapter = harness.adapter(json!({})).await;
    store(&adapter, &keys[..3], 100).await;
    let other = harness.adapter(json!({})).await;
    store(&other, &keys[3..4], 40).await;
    store(&other, &keys[..1], 10).await;
    assert!(other.delete(&keys[1..2]).await.is_ok());
    // A miss that is believed for now.
    assert_eq!(find(&adapter, &keys[3..]).await, [true, false]);
    store(&other, &keys[4..], 60).await;

    let resync = adapter.resync().await.unwrap();
    assert_eq!((resync.recovered_keys, resync.vanished_keys), (2, 1));
    assert_counted(harness, &adapter).await;
    assert_eq!(used(&adapter), 10 + 100 + 40 + 60);
    assert_eq!(
        find(&adapter, &keys).await,
        [true, false, true, true, true],
        "the cache knows as well"
    );
    let again = adapter.resync().await.unwrap();
    assert_eq!((again.recovered_keys, again.vanished_keys), (0, 0));
    assert_counted(harness, &adapter).await;
}

pub async fn what_is_in_flight_is_not_counted_twice(harness: &Harness) {
    let keys = keys(3);
    let adapter = harness.adapter(json!({})).await;
    store(&adapter, &keys[..2], 100).await;
    // Done in the store, and not yet known to the adapter.
    let (put, delete) = (Gate::default(), Gate::default());
    harness
        .faults
        .inject(Op::Put, None, 1, Fault::HoldAck(put.clone()));
    harness
        .faults
        .inject(Op::Delete, None, 1, Fault::HoldAck(delete.clone()));
    let storing = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move { adapter.store(batch(&keys[2..], 70)).await }
    });
    put.arrivals(1).await;
    let deleting = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move { adapter.delete(&keys[..1]).await }
    });
    delete.arrivals(1).await;
    adapter.resync().await.unwrap();
    assert_eq!(used(&adapter), 200, "as if neither had happened yet");
    put.open();
    delete.open();
    let report = storing.await.unwrap();
    assert_eq!(report.bytes_newly_stored, 70);
    assert_eq!(deleting.await.unwrap().bytes_freed, 100);
    assert_counted(harness, &adapter).await;
    adapter.resync().await.unwrap();
    assert_counted(harness, &adapter).await;
}

/// A tenth of the ratio, so that rounds are small.
async fn small_rounds(harness: &Harness) -> L2Adapter {
    let adapter = harness.adapter(evicting(2000, 0.5, 0.05)).await;
    adapter.recovered().await.unwrap();
    adapter
}

pub async fn two_adapters_keep_one_pool_within_its_capacity(harness: &Harness) {
    let keys = keys(40);
    let (one, two) = (small_rounds(harness).await, small_rounds(harness).await);
    store(&one, &keys[..6], 100).await;
    let locked = one.lookup_and_lock(&keys[4..6]).await;
    assert_eq!(locked.hits(), 2);
    for chunk in keys[6..].chunks(4) {
        let (left, right) = chunk.split_at(2);
        let stores = [(&one, left), (&two, right)];
        join_all(stores.map(|(adapter, keys)| store(adapter, keys, 100))).await;
        let (first, second) = tokio::join!(one.resync(), two.resync());
        first.unwrap();
        second.unwrap();
        tokio::join!(one.eviction_idle(), two.eviction_idle());
    }
    for adapter in [&one, &two] {
        adapter.resync().await.unwrap();
        adapter.eviction_idle().await;
    }
    let listed: u64 = harness.list().await.iter().map(|(_, size)| size).sum();
    assert!(listed < 1000, "{listed}");
    one.resync().await.unwrap();
    assert_counted(harness, &one).await;
    assert!(used(&two) < 1000);
    // The other adapter knows nothing of the locks, and may have evicted these.
    let there: Vec<bool> = join_all(keys[4..6].iter().map(async |key| {
        let path = one.object_path(key).unwrap();
        harness.store.head(&path).await.is_ok()
    }))
    .await;
    if there == [true, true] {
        assert_eq!(find(&one, &keys[4..6]).await, [true, true]);
    }
    drop(locked);
}
