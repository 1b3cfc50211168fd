//! The L2 suite: eviction, and the end of an adapter.

use hfbucket::l2::{DeleteOutcome, L2Error, LoadOutcome};
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};
use crate::l2_helpers::{assert_counted, batch, evicting, find, keys, store, used};

pub async fn a_full_cache_evicts_the_oldest(harness: &Harness) {
    let adapter = harness.adapter(evicting(1000, 0.8, 0.2)).await;
    let keys = keys(10);
    store(&adapter, &keys[..4], 100).await; // oldest first: 3, 2, 1, 0
    store(&adapter, &keys[4..7], 100).await; // then 6, 5, 4
    assert_eq!(used(&adapter), 700);
    adapter.eviction_idle().await;
    assert_eq!(
        used(&adapter),
        700,
        "below the watermark nothing is evicted"
    );
    // A use keeps a key.
    assert_eq!(find(&adapter, &keys[3..4]).await, [true]);
    store(&adapter, &keys[7..8], 100).await; // reaches it: one round of trunc(8 * 0.2) = 1 key
    adapter.eviction_idle().await;
    assert_eq!(find(&adapter, &keys[..4]).await, [true, true, false, true]);
    assert_eq!(used(&adapter), 700);
    assert_counted(harness, &adapter).await;

    // Far beyond the capacity: it goes on until it is below.
    store(&adapter, &keys[8..9], 5000).await;
    adapter.eviction_idle().await;
    assert_counted(harness, &adapter).await;
    assert!(used(&adapter) < 800, "{}", used(&adapter));
    assert!(!adapter.status().is_evicting);
    assert_eq!(find(&adapter, &keys[8..9]).await, [false]);
}

pub async fn locked_keys_survive_eviction_until_unlocked(harness: &Harness) {
    let adapter = harness.adapter(evicting(1000, 0.5, 0.1)).await;
    let keys = keys(5);
    store(&adapter, &keys[..4], 100).await;
    let oldest = [keys[3].clone(), keys[2].clone()];
    let found = adapter.lookup_and_lock(&oldest).await;
    let young = adapter.lookup_and_lock(&keys[..2]).await;
    young.into_guard().release();
    // Oldest first: 2, 3 (locked), 1, 0.
    store(&adapter, &keys[4..], 100).await;
    adapter.eviction_idle().await;
    assert_eq!(find(&adapter, &keys).await, [true, false, true, true, true]);
    assert_counted(harness, &adapter).await;

    // All but the locked ones are passed over or gone, and still it is full: the run ends.
    let all = adapter.lookup_and_lock(&keys).await;
    store(&adapter, &keys[1..2], 1000).await;
    adapter.eviction_idle().await;
    assert_eq!(find(&adapter, &keys).await, [true, false, true, true, true]);
    let more = adapter.lookup_and_lock(&keys[..1]).await;
    store(&adapter, &keys[..1], 700).await;
    adapter.eviction_idle().await;
    assert_eq!(used(&adapter), 1000, "all are locked");
    // The unlock starts the next run.
    drop((found, all, more));
    adapter.eviction_idle().await;
    assert!(used(&adapter) < 500);
    assert_counted(harness, &adapter).await;
}

pub async fn eviction_survives_failed_deletes(harness: &Harness) {
    let adapter = harness.adapter(evicting(1000, 0.5, 0.2)).await;
    let keys = keys(6);
    let stuck = adapter.object_path(&keys[3]).unwrap();
    harness
        .faults
        .inject(Op::Delete, Some(stuck), usize::MAX, Fault::Refuse);
    store(&adapter, &keys[..4], 100).await;
    store(&adapter, &keys[4..5], 100).await;
    adapter.eviction_idle().await;
    // The oldest cannot be deleted; the next one goes.
    assert_eq!(find(&adapter, &keys[..4]).await, [true, true, false, true]);
    assert_counted(harness, &adapter).await;

    // Nothing can be deleted for a while; then it can.
    harness.faults.heal();
    harness
        .faults
        .inject(Op::Delete, None, 3, Fault::RefuseBatch);
    store(&adapter, &keys[5..], 100).await;
    adapter.eviction_idle().await;
    assert!(used(&adapter) < 500);
    assert_counted(harness, &adapter).await;
}

pub async fn a_dropped_store_is_finished(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Put, None, 2, Fault::Hold(gate.clone()));
    tokio::select! {
        biased;
        _ = adapter.store(batch(&keys, 10)) => panic!("it was held"),
        () = gate.arrivals(2) => {}
    }
    gate.open();
    adapter.close().await;
    assert_eq!(harness.list().await.len(), 2);
    assert_eq!(used(&adapter), 20);
}

pub async fn close_waits_and_ends_everything(harness: &Harness) {
    let adapter = harness.adapter(evicting(1000, 0.5, 0.2)).await;
    let keys = keys(3);
    store(&adapter, &keys[..1], 10).await;
    let found = adapter.lookup_and_lock(&keys[..1]).await;
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Put, None, 1, Fault::Hold(gate.clone()));
    let running = tokio::spawn({
        let (adapter, entries) = (adapter.clone(), batch(&keys[1..2], 10));
        async move { adapter.store(entries).await }
    });
    gate.arrivals(1).await;
    let closing = tokio::spawn({
        let adapter = adapter.clone();
        async move { adapter.close().await }
    });
    while !adapter.is_closed() {
        tokio::task::yield_now().await;
    }
    let report = adapter.store(batch(&keys[2..], 10)).await;
    assert!(matches!(report.first_error(), Some(L2Error::Closed)));
    assert!(!closing.is_finished(), "a store is running");
    gate.open();
    closing.await.unwrap();
    assert!(running.await.unwrap().is_ok());

    drop(found);
    let found = adapter.lookup_and_lock(&keys).await;
    assert_eq!((found.hits(), found.errors.len()), (0, 3));
    let mut buffers = [[0; 10]];
    let loaded = adapter.load(&keys[..1], &mut buffers).await;
    assert!(matches!(
        loaded.outcomes[..],
        [LoadOutcome::Failed(L2Error::Closed)]
    ));
    let report = adapter.delete(&keys[..1]).await;
    assert!(matches!(
        report.outcomes[..],
        [DeleteOutcome::Failed(L2Error::Closed)]
    ));
    adapter.unlock(&keys);
    adapter.eviction_idle().await;
    adapter.close().await;
    let status = adapter.status();
    assert!(!status.is_healthy && !status.is_evicting);
    assert_eq!(
        (status.locked_key_count, status.current_size_bytes),
        (0, 20)
    );
    assert_eq!(harness.list().await.len(), 2);
}
