//! The L2 suite: failures, lost acknowledgements, slow answers and other writers.

use hfbucket::l2::{DeleteOutcome, L2Error, LoadOutcome};
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};
use crate::l2_helpers::{assert_counted, batch, content, find, keys, store, used};

pub async fn each_key_of_a_batch_fails_for_itself(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(3);
    let path = adapter.object_path(&keys[1]).unwrap();
    harness
        .faults
        .inject(Op::Put, Some(path.clone()), 1, Fault::Refuse);
    let report = adapter.store(batch(&keys, 10)).await;
    let bits: Vec<bool> = report.results.iter().map(Result::is_ok).collect();
    assert_eq!(bits, [true, false, true]);
    assert_eq!(
        (report.bytes_newly_stored, report.bytes_transferred),
        (20, 20)
    );
    let error = report.first_error().unwrap().to_string();
    assert!(
        error.contains("could not store") && error.contains(path.as_ref()),
        "{error}"
    );
    assert_counted(harness, &adapter).await;
    assert_eq!(find(&adapter, &keys).await, [true, false, true]);

    let report = adapter.store(batch(&keys, 10)).await;
    assert_eq!(
        (report.bytes_newly_stored, report.bytes_transferred),
        (10, 30)
    );
    assert_eq!(find(&adapter, &keys).await, [true; 3]);
    assert_counted(harness, &adapter).await;
}

pub async fn a_lost_acknowledgement_of_a_store_is_noticed(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    harness.faults.inject(Op::Put, None, 1, Fault::LoseAck);
    let report = adapter.store(batch(&keys, 10)).await;
    assert!(report.is_ok(), "{report:?}");
    let reconciled = report.results.iter().flatten().filter(|one| one.reconciled);
    assert_eq!(reconciled.count(), 1);
    assert_eq!(report.bytes_newly_stored, 20);
    assert_eq!(find(&adapter, &keys).await, [true; 2]);
    assert_counted(harness, &adapter).await;
}

pub async fn a_failed_store_that_nobody_can_settle_records_nothing(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    harness.faults.inject(Op::Put, None, 1, Fault::LoseAck);
    harness.faults.inject(Op::Head, None, 1, Fault::Refuse);
    let report = adapter.store(batch(&keys, 10)).await;
    assert!(matches!(report.first_error(), Some(L2Error::Store { .. })));
    assert_eq!((used(&adapter), report.bytes_transferred), (0, 0));
    // The object did arrive: only the store knows, and a lookup asks it.
    assert_eq!(find(&adapter, &keys).await, [true]);
    store(&adapter, &keys, 10).await;
    assert_counted(harness, &adapter).await;
}

pub async fn a_failed_overwrite_counts_what_is_there(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    harness.faults.inject(Op::Put, None, 1, Fault::Refuse);
    let report = adapter.store(batch(&keys, 99)).await;
    assert!(!report.is_ok());
    assert_eq!(used(&adapter), 10);
    assert_eq!(find(&adapter, &keys).await, [true]);
    // Gone meanwhile: the failed overwrite finds out.
    harness.remove(&adapter, &keys[0]).await;
    harness.faults.inject(Op::Put, None, 1, Fault::Refuse);
    assert!(!adapter.store(batch(&keys, 99)).await.is_ok());
    assert_eq!(find(&adapter, &keys).await, [false]);
    assert_counted(harness, &adapter).await;
}

pub async fn failed_deletes_stay_counted(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(3);
    store(&adapter, &keys, 10).await;
    let path = adapter.object_path(&keys[1]).unwrap();
    harness
        .faults
        .inject(Op::Delete, Some(path), 1, Fault::Refuse);
    let report = adapter.delete(&keys).await;
    let bits: Vec<bool> = report
        .outcomes
        .iter()
        .map(DeleteOutcome::is_deleted)
        .collect();
    assert_eq!((bits, report.bytes_freed), (vec![true, false, true], 20));
    let error = report.first_error().unwrap().to_string();
    assert!(error.contains("could not delete"), "{error}");
    assert_counted(harness, &adapter).await;
    assert_eq!(find(&adapter, &keys).await, [false, true, false]);

    store(&adapter, &keys, 10).await;
    harness
        .faults
        .inject(Op::Delete, None, 1, Fault::RefuseBatch);
    let report = adapter.delete(&keys).await;
    assert!(report.outcomes.iter().all(|outcome| !outcome.is_deleted()));
    assert_eq!(used(&adapter), 30);
    assert!(adapter.delete(&keys).await.is_ok());
    assert_counted(harness, &adapter).await;
}

pub async fn a_lost_acknowledgement_of_a_delete_is_noticed(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys, 10).await;
    harness.faults.inject(Op::Delete, None, 1, Fault::LoseAck);
    assert!(adapter.delete(&keys).await.is_ok());
    assert_eq!(used(&adapter), 0);
    // Nobody can tell: it stays counted, as it may be there.
    store(&adapter, &keys[..1], 10).await;
    harness.faults.inject(Op::Delete, None, 1, Fault::LoseAck);
    harness.faults.inject(Op::Head, None, 1, Fault::Refuse);
    assert!(!adapter.delete(&keys[..1]).await.is_ok());
    assert_eq!(used(&adapter), 10);
    // The next lookup finds out.
    assert_eq!(find(&adapter, &keys).await, [false; 2]);
    assert_counted(harness, &adapter).await;
}

pub async fn deleting_what_is_not_there_is_fine(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys[..1], 10).await;
    harness.remove(&adapter, &keys[0]).await;
    let report = adapter.delete(&keys).await;
    assert!(matches!(
        report.outcomes[..],
        [
            DeleteOutcome::Deleted { bytes: 10 },
            DeleteOutcome::Deleted { bytes: 0 }
        ]
    ));
    assert_counted(harness, &adapter).await;
}

pub async fn a_lookup_that_fails_is_a_miss_that_is_not_remembered(harness: &Harness) {
    let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
    let keys = keys(3);
    store(&adapter, &keys[..2], 10).await;
    let path = adapter.object_path(&keys[1]).unwrap();
    harness
        .faults
        .inject(Op::Head, Some(path), 1, Fault::Refuse);
    let found = adapter.lookup_and_lock(&keys).await;
    let bits: Vec<bool> = found.bitmap.iter().collect();
    assert_eq!(bits, [true, false, false]);
    assert!(
        matches!(&found.errors[..], [(1, L2Error::Store { .. })]),
        "{found:?}"
    );
    assert_eq!(adapter.status().locked_key_count, 1);
    drop(found);
    assert_eq!(find(&adapter, &keys).await, [true, true, false]);
    assert_counted(harness, &adapter).await;
}

pub async fn uploads_do_not_hold_up_lookups_and_loads(harness: &Harness) {
    let adapter = harness.adapter(json!({"num_workers": 1})).await;
    let keys = keys(19);
    store(&adapter, &keys[..1], 10).await;
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Put, None, 16, Fault::Hold(gate.clone()));
    let upload = tokio::spawn({
        let (adapter, entries) = (adapter.clone(), batch(&keys[1..18], 10));
        async move { adapter.store(entries).await }
    });
    gate.arrivals(16).await;
    let again = [keys[0].clone(), keys[18].clone()];
    assert_eq!(find(&adapter, &again).await, [true, false]);
    let mut buffers = [[0; 10]];
    assert!(adapter.load(&keys[..1], &mut buffers).await.is_ok());
    // Sixteen uploads per worker at a time: the last waits for one of them.
    assert_eq!(harness.faults.calls(Op::Put), 17);
    gate.open();
    assert!(upload.await.unwrap().is_ok());
    assert_eq!(harness.faults.calls(Op::Put), 18);
}

pub async fn a_slow_lookup_never_overwrites_a_newer_store(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Head, None, 1, Fault::Hold(gate.clone()));
    let lookup = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move { adapter.lookup_and_lock(&keys).await.hits() }
    });
    gate.arrivals(1).await;
    store(&adapter, &keys, 10).await;
    gate.open();
    // The answer was a miss; what is newer is known, and is what the lookup says too.
    assert_eq!(lookup.await.unwrap(), 1);
    assert_eq!(find(&adapter, &keys).await, [true]);
    assert_eq!(harness.faults.calls(Op::Head), 1);
    assert_counted(harness, &adapter).await;
}

pub async fn a_key_being_deleted_is_no_hit(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Delete, None, 1, Fault::Hold(gate.clone()));
    let delete = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move { adapter.delete(&keys).await }
    });
    gate.arrivals(1).await;
    assert_eq!(find(&adapter, &keys).await, [false]);
    assert_eq!(adapter.status().locked_key_count, 0);
    gate.open();
    assert!(delete.await.unwrap().is_ok());
    assert_eq!(find(&adapter, &keys).await, [false]);
    assert_counted(harness, &adapter).await;
}

pub async fn stores_and_deletes_of_a_key_take_turns(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Put, None, 1, Fault::Hold(gate.clone()));
    let first = tokio::spawn({
        let (adapter, entries) = (adapter.clone(), batch(&keys, 10));
        async move { adapter.store(entries).await }
    });
    gate.arrivals(1).await;
    let (deleted, second, ()) = tokio::join!(
        adapter.delete(&keys),
        adapter.store(batch(&keys, 20)),
        async { gate.open() },
    );
    assert!(first.await.unwrap().is_ok() && deleted.is_ok() && second.is_ok());
    assert_counted(harness, &adapter).await;
}

/// What another writer does is seen by the next load, unless the store can still give the content
/// that was looked up.
pub async fn a_load_that_finds_nothing_corrects_the_cache(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    let by_version = harness.names_contents(&adapter, &keys[0]).await;
    harness.remove(&adapter, &keys[0]).await;
    assert_eq!(find(&adapter, &keys).await, [true], "as the cache believes");
    let mut buffers = [[1; 10]];
    let loaded = adapter.load(&keys, &mut buffers).await;
    if by_version {
        assert!(loaded.is_ok(), "{loaded:?}");
        assert_eq!(buffers[0][..], content(&keys[0], 10));
        // Asked for another size, the path decides.
        let loaded = adapter.load(&keys, &mut [[0; 11]]).await;
        assert!(
            matches!(loaded.outcomes[..], [LoadOutcome::NotFound]),
            "{loaded:?}"
        );
    } else {
        assert!(
            matches!(loaded.outcomes[..], [LoadOutcome::NotFound]),
            "{loaded:?}"
        );
        assert_eq!(buffers, [[1; 10]]);
    }
    assert_eq!(find(&adapter, &keys).await, [false]);
    assert_eq!(harness.faults.calls(Op::Head), 0);
    assert_counted(harness, &adapter).await;
}

pub async fn other_writers_sizes_correct_usage(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    let by_version = harness.names_contents(&adapter, &keys[0]).await;
    harness.put(&adapter, &keys[0], vec![1; 25]).await;
    let mut buffers = [vec![0; 10]];
    let loaded = adapter.load(&keys, &mut buffers).await;
    if by_version {
        assert!(loaded.is_ok(), "{loaded:?}");
        assert_eq!(
            buffers[0],
            content(&keys[0], 10),
            "the version that was stored"
        );
    } else {
        assert!(matches!(
            loaded.outcomes[..],
            [LoadOutcome::SizeMismatch { actual: 25 }]
        ));
        assert_eq!(used(&adapter), 25);
    }
    let mut buffers = [vec![0; 25]];
    assert!(adapter.load(&keys, &mut buffers).await.is_ok());
    assert_eq!(buffers[0], [1; 25]);
    assert_counted(harness, &adapter).await;
}

pub async fn a_stream_cut_short_is_no_hit(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys, 10).await;
    let path = adapter.object_path(&keys[0]).unwrap();
    harness
        .faults
        .inject(Op::Get, Some(path), 1, Fault::Truncate(4));
    let mut buffers = [[0; 10]; 2];
    let loaded = adapter.load(&keys, &mut buffers).await;
    let bits: Vec<bool> = loaded.bitmap().iter().collect();
    assert_eq!(bits, [false, true]);
    assert!(matches!(
        loaded.first_error(),
        Some(L2Error::Truncated {
            expected: 10,
            found: 4,
            ..
        })
    ));
    harness
        .faults
        .inject(Op::Get, None, usize::MAX, Fault::Refuse);
    let loaded = adapter.load(&keys, &mut buffers).await;
    assert_eq!(loaded.bitmap().count_ones(), 0);
    harness.faults.heal();
    assert!(adapter.load(&keys, &mut buffers).await.is_ok());
}
