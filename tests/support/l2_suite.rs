//! The suite that every store passes below an [`L2Adapter`].
//!
//! Each function takes a fresh [`Harness`]. `l2_suite!` makes a module of tests of them.

use bytes::Bytes;
use hfbucket::l2::{DeleteOutcome, L2Adapter, L2Error, LoadOutcome, ObjectKey};
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};

macro_rules! l2_suite {
    ($backend:ident: $harness:path) => {
        l2_suite!(@ $backend, $harness;
            stored_chunks_are_found_and_loaded
            objects_lie_where_lmcache_puts_them
            salts_groups_and_odd_names_are_apart
            empty_batches_are_fine
            of_duplicates_the_last_wins
            overwriting_with_another_size_is_counted_right
            empty_objects_are_stored_and_are_no_hits
            a_load_of_another_size_is_a_miss
            what_is_known_is_not_asked_again
            without_a_lifetime_the_store_is_always_asked
            locked_keys_are_not_deleted
            detached_locks_end_by_key
            each_key_of_a_batch_fails_for_itself
            a_lost_acknowledgement_of_a_store_is_noticed
            a_failed_store_that_nobody_can_settle_records_nothing
            a_failed_overwrite_counts_what_is_there
            failed_deletes_stay_counted
            a_lost_acknowledgement_of_a_delete_is_noticed
            deleting_what_is_not_there_is_fine
            a_lookup_that_fails_is_a_miss_that_is_not_remembered
            uploads_do_not_hold_up_lookups_and_loads
            a_slow_lookup_never_overwrites_a_newer_store
            a_key_being_deleted_is_no_hit
            stores_and_deletes_of_a_key_take_turns
            a_load_that_finds_nothing_corrects_the_cache
            other_writers_sizes_correct_usage
            a_stream_cut_short_is_no_hit
            a_full_cache_evicts_the_oldest
            locked_keys_survive_eviction_until_unlocked
            eviction_survives_failed_deletes
            a_dropped_store_is_finished
            close_waits_and_ends_everything
        );
    };
    (@ $backend:ident, $harness:path; $($test:ident)*) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    $crate::l2_suite::$test(&$harness().await).await;
                }
            )*
        }
    };
}

/// One gibibyte, of which capacities are given as a share.
const GIB: f64 = (1u64 << 30) as f64;

fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count)
        .map(|n| ObjectKey::new("org/model", 0x0100_0100, (n as u32).to_be_bytes()).unwrap())
        .collect()
}

fn content(key: &ObjectKey, size: usize) -> Bytes {
    let seed = key.chunk_hash().last().copied().unwrap_or(0);
    (0..size)
        .map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

fn batch(keys: &[ObjectKey], size: usize) -> Vec<(ObjectKey, Bytes)> {
    keys.iter()
        .map(|key| (key.clone(), content(key, size)))
        .collect()
}

async fn store(adapter: &L2Adapter, keys: &[ObjectKey], size: usize) {
    let report = adapter.store(batch(keys, size)).await;
    assert!(report.is_ok(), "{report:?}");
}

/// The bitmap of a lookup whose locks are released again.
async fn find(adapter: &L2Adapter, keys: &[ObjectKey]) -> Vec<bool> {
    let found = adapter.lookup_and_lock(keys).await;
    assert!(found.errors.is_empty(), "{found:?}");
    found.bitmap.iter().collect()
}

fn used(adapter: &L2Adapter) -> u64 {
    adapter.usage().total_bytes_used
}

/// Usage is what the store lists, in all and in number.
async fn assert_counted(harness: &Harness, adapter: &L2Adapter) {
    let listed = harness.list().await;
    let bytes: u64 = listed.iter().map(|(_, size)| size).sum();
    assert_eq!(used(adapter), bytes, "{listed:?}");
    assert_eq!(adapter.status().stored_object_count, listed.len());
    let by_salt: u64 = adapter.usage().bytes_by_cache_salt.values().sum();
    assert_eq!(by_salt, bytes);
}

pub async fn stored_chunks_are_found_and_loaded(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(5);
    let size = 700_000; // more than one chunk of a file's read
    let report = adapter.store(batch(&keys[..3], size)).await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.bytes_newly_stored, 3 * size as u64);
    assert_eq!(report.bytes_transferred, 3 * size as u64);

    let lookup = [&keys[..2], &keys[3..4], &keys[2..3]].concat();
    let found = adapter.lookup_and_lock(&lookup).await;
    let bits: Vec<bool> = found.bitmap.iter().collect();
    assert_eq!(bits, [true, true, false, true]);
    assert_eq!((found.prefix_hits(), found.hits()), (2, 3));
    assert_eq!(adapter.status().locked_key_count, 3);

    let mut buffers = vec![vec![0; size]; 4];
    let loaded = adapter.load(&lookup, &mut buffers).await;
    assert_eq!(loaded.bitmap(), found.bitmap);
    assert!(matches!(loaded.outcomes[2], LoadOutcome::NotFound));
    assert_eq!(buffers[2], vec![0; size]);
    for position in [0, 1, 3] {
        assert!(buffers[position] == content(&lookup[position], size));
    }
    drop(found);
    assert_eq!(adapter.status().locked_key_count, 0);
    assert_counted(harness, &adapter).await;
}

pub async fn objects_lie_where_lmcache_puts_them(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let key = ObjectKey::new("meta-llama/Llama 3%", 0x0100_0100, [0xab]).unwrap();
    store(&adapter, &[key], 3).await;
    let listed = harness.list().await;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        listed[0].0.as_ref(),
        "pool/a b/meta-llama%2FLlama%203%25%4001000100%40ab"
    );
    // A second adapter on the same store finds it.
    let other = harness.adapter(json!({})).await;
    let key = ObjectKey::new("meta-llama/Llama 3%", 0x0100_0100, [0xab]).unwrap();
    assert_eq!(find(&other, &[key]).await, [true]);
}

pub async fn salts_groups_and_odd_names_are_apart(harness: &Harness) {
    let adapter = harness.adapter(json!({"key_layout": "grouped"})).await;
    let key = |model: &str| ObjectKey::new(model, 1, [1, 2]).unwrap();
    let keys = [
        key("m"),
        key("m").with_object_group(1),
        key("m").with_cache_salt("s").unwrap(),
        key("m").with_cache_salt("日本").unwrap(),
        key("é"),
        key("e\u{301}"),
        key("."),
        key("a/b"),
        key("a%2Fb"),
        key("?#&+ \\"),
        key(""),
    ];
    for (n, key) in keys.iter().enumerate() {
        let report = adapter
            .store(vec![(key.clone(), Bytes::from(vec![n as u8; n + 1]))])
            .await;
        assert!(report.is_ok(), "{key:?}: {report:?}");
    }
    assert_eq!(harness.list().await.len(), keys.len());
    let mut buffers: Vec<Vec<u8>> = (0..keys.len()).map(|n| vec![0xff; n + 1]).collect();
    let loaded = adapter.load(&keys, &mut buffers).await;
    assert!(loaded.is_ok(), "{loaded:?}");
    for (n, buffer) in buffers.iter().enumerate() {
        assert_eq!(*buffer, vec![n as u8; n + 1], "{:?}", keys[n]);
    }
    let usage = adapter.usage();
    assert_eq!(usage.bytes_by_cache_salt["s"], 3);
    assert_eq!(usage.bytes_by_cache_salt["日本"], 4);
    assert_counted(harness, &adapter).await;

    let ungrouped = harness.adapter(json!({})).await;
    let report = ungrouped.store(batch(&keys[1..2], 1)).await;
    assert!(matches!(report.first_error(), Some(L2Error::Key(_))));
    let found = ungrouped.lookup_and_lock(&keys[1..2]).await;
    assert!(!found.bitmap[0]);
    assert!(matches!(&found.errors[..], [(0, L2Error::Key(_))]));
}

pub async fn empty_batches_are_fine(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let report = adapter.store(Vec::new()).await;
    assert!(report.is_ok() && report.results.is_empty());
    assert_eq!(
        (report.bytes_newly_stored, report.bytes_transferred),
        (0, 0)
    );
    let found = adapter.lookup_and_lock(&[]).await;
    assert!(found.bitmap.is_empty() && found.prefix_hits() == 0);
    assert!(
        adapter
            .load::<Vec<u8>>(&[], &mut [])
            .await
            .outcomes
            .is_empty()
    );
    assert!(adapter.delete(&[]).await.outcomes.is_empty());
    adapter.unlock(&[]);
    for op in [Op::Put, Op::Get, Op::Head, Op::Delete] {
        assert_eq!(harness.faults.calls(op), 0, "{op:?}");
    }
}

pub async fn of_duplicates_the_last_wins(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    let report = adapter
        .store(vec![
            (keys[0].clone(), Bytes::from_static(b"first")),
            (keys[1].clone(), Bytes::from_static(b"other")),
            (keys[0].clone(), Bytes::from_static(b"last one")),
        ])
        .await;
    let sizes: Vec<u64> = report
        .results
        .iter()
        .map(|one| one.as_ref().unwrap().bytes)
        .collect();
    assert_eq!(sizes, [8, 5, 8]);
    assert_eq!(
        (report.bytes_newly_stored, report.bytes_transferred),
        (13, 13)
    );
    assert_eq!(harness.faults.calls(Op::Put), 2);

    let twice = [keys[0].clone(), keys[0].clone()];
    let found = adapter.lookup_and_lock(&twice).await;
    assert_eq!((found.hits(), found.guard.keys().len()), (2, 2));
    let mut buffers = [[0; 8]; 2];
    assert!(adapter.load(&twice, &mut buffers).await.is_ok());
    assert_eq!(buffers, [*b"last one"; 2]);
    adapter.unlock(&twice[..1]);
    assert_eq!(adapter.status().locked_key_count, 1);
    adapter.unlock(&twice[..1]);
    assert_eq!(adapter.status().locked_key_count, 0);
    drop(found);

    let report = adapter.delete(&twice).await;
    assert_eq!((report.outcomes.len(), report.bytes_freed), (2, 8));
    assert_eq!(harness.faults.calls(Op::Delete), 1);
    assert_counted(harness, &adapter).await;
}

pub async fn overwriting_with_another_size_is_counted_right(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let a = keys(1)[0].clone().with_cache_salt("a").unwrap();
    let b = keys(1)[0].clone().with_cache_salt("b").unwrap();
    store(&adapter, std::slice::from_ref(&a), 3).await;
    store(&adapter, std::slice::from_ref(&b), 5).await;
    let report = adapter.store(batch(std::slice::from_ref(&a), 100)).await;
    assert_eq!(
        (report.bytes_newly_stored, report.bytes_transferred),
        (0, 100)
    );
    assert_eq!(used(&adapter), 105);
    assert_eq!(adapter.usage().bytes_by_cache_salt["a"], 100);
    let mut buffer = [vec![0; 100]];
    assert!(
        adapter
            .load(std::slice::from_ref(&a), &mut buffer)
            .await
            .is_ok()
    );
    let report = adapter.delete(&[a]).await;
    assert_eq!(report.bytes_freed, 100);
    assert_eq!(adapter.usage().bytes_by_cache_salt.len(), 1);
    assert_eq!(used(&adapter), 5);
    assert_counted(harness, &adapter).await;
}

pub async fn empty_objects_are_stored_and_are_no_hits(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 0).await;
    assert_eq!(harness.list().await.len(), 1);
    assert_eq!(find(&adapter, &keys).await, [false]);
    let fresh = harness.adapter(json!({})).await;
    assert_eq!(find(&fresh, &keys).await, [false]);
    let mut buffers = [[0u8; 0]];
    assert!(adapter.load(&keys, &mut buffers).await.is_ok());
    assert_counted(harness, &adapter).await;
    assert!(adapter.delete(&keys).await.is_ok());
    assert_counted(harness, &adapter).await;
}

pub async fn a_load_of_another_size_is_a_miss(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(3);
    store(&adapter, &keys, 10).await;
    let mut buffers = [vec![7; 9], vec![7; 10], vec![7; 11]];
    let loaded = adapter.load(&keys, &mut buffers).await;
    let bits: Vec<bool> = loaded.bitmap().iter().collect();
    assert_eq!(bits, [false, true, false]);
    for position in [0, 2] {
        let outcome = &loaded.outcomes[position];
        assert!(
            matches!(outcome, LoadOutcome::SizeMismatch { actual: 10 }),
            "{outcome:?}"
        );
        assert!(buffers[position].iter().all(|byte| *byte == 7));
    }
    let loaded = adapter.load(&keys, &mut buffers[..2]).await;
    assert_eq!(loaded.outcomes.len(), 3);
    assert!(matches!(
        loaded.first_error(),
        Some(L2Error::Buffers {
            keys: 3,
            buffers: 2
        })
    ));
}

pub async fn what_is_known_is_not_asked_again(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(4);
    store(&adapter, &keys[..2], 10).await;
    let expected = [true, true, false, false];
    assert_eq!(find(&adapter, &keys).await, expected);
    assert_eq!(harness.faults.calls(Op::Head), 2);
    assert_eq!(find(&adapter, &keys).await, expected);
    assert_eq!(harness.faults.calls(Op::Head), 2);
    // A miss that is stored now is a hit now.
    store(&adapter, &keys[2..3], 10).await;
    assert!(adapter.delete(&keys[..1]).await.is_ok());
    assert_eq!(find(&adapter, &keys).await, [false, true, true, false]);
    assert_eq!(harness.faults.calls(Op::Head), 2);
}

pub async fn without_a_lifetime_the_store_is_always_asked(harness: &Harness) {
    let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
    let keys = keys(2);
    store(&adapter, &keys[..1], 10).await;
    for round in 1..=2 {
        assert_eq!(find(&adapter, &keys).await, [true, false]);
        assert_eq!(harness.faults.calls(Op::Head), 2 * round);
    }
    // Duplicates are asked for once.
    let thrice = vec![keys[0].clone(); 3];
    assert_eq!(find(&adapter, &thrice).await, [true; 3]);
    assert_eq!(harness.faults.calls(Op::Head), 5);
}

pub async fn locked_keys_are_not_deleted(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys, 10).await;
    let found = adapter.lookup_and_lock(&keys[..1]).await;
    let report = adapter.delete(&keys).await;
    assert!(matches!(
        report.outcomes[..],
        [DeleteOutcome::Locked, DeleteOutcome::Deleted { bytes: 10 }]
    ));
    assert_eq!((report.bytes_freed, used(&adapter)), (10, 10));

    // A second lookup's lock outlives the first's, however that one ends.
    let second = adapter.lookup_and_lock(&keys[..1]).await;
    adapter.unlock(&keys[..1]);
    drop(found);
    assert!(matches!(
        adapter.delete(&keys[..1]).await.outcomes[..],
        [DeleteOutcome::Locked]
    ));
    second.into_guard().release();
    assert!(adapter.delete(&keys[..1]).await.is_ok());
    assert_counted(harness, &adapter).await;
    assert_eq!(used(&adapter), 0);
}

pub async fn detached_locks_end_by_key(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys[..1], 10).await;
    let found = adapter.lookup_and_lock(&keys).await;
    assert_eq!(found.guard.keys(), &keys[..1]);
    found.into_guard().detach();
    assert_eq!(adapter.status().locked_key_count, 1);
    adapter.unlock(&keys);
    adapter.unlock(&keys);
    assert_eq!(adapter.status().locked_key_count, 0);
    assert!(adapter.delete(&keys).await.is_ok());
}

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
    let keys = keys(4);
    store(&adapter, &keys[..1], 10).await;
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Put, None, 1, Fault::Hold(gate.clone()));
    let upload = tokio::spawn({
        let (adapter, entries) = (adapter.clone(), batch(&keys[1..3], 10));
        async move { adapter.store(entries).await }
    });
    gate.arrivals(1).await;
    let again = [keys[0].clone(), keys[3].clone()];
    assert_eq!(find(&adapter, &again).await, [true, false]);
    let mut buffers = [[0; 10]];
    assert!(adapter.load(&keys[..1], &mut buffers).await.is_ok());
    // One upload at a time: the other waits for the held one.
    assert_eq!(harness.faults.calls(Op::Put), 2);
    gate.open();
    assert!(upload.await.unwrap().is_ok());
    assert_eq!(harness.faults.calls(Op::Put), 3);
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

pub async fn a_load_that_finds_nothing_corrects_the_cache(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    harness.remove(&adapter, &keys[0]).await;
    assert_eq!(find(&adapter, &keys).await, [true], "as the cache believes");
    let mut buffers = [[1; 10]];
    let loaded = adapter.load(&keys, &mut buffers).await;
    assert!(
        matches!(loaded.outcomes[..], [LoadOutcome::NotFound]),
        "{loaded:?}"
    );
    assert_eq!(buffers, [[1; 10]]);
    assert_eq!(find(&adapter, &keys).await, [false]);
    assert_eq!(harness.faults.calls(Op::Head), 0);
    assert_counted(harness, &adapter).await;
}

pub async fn other_writers_sizes_correct_usage(harness: &Harness) {
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    harness.put(&adapter, &keys[0], vec![1; 25]).await;
    let mut buffers = [vec![0; 10]];
    let loaded = adapter.load(&keys, &mut buffers).await;
    assert!(matches!(
        loaded.outcomes[..],
        [LoadOutcome::SizeMismatch { actual: 25 }]
    ));
    assert_eq!(used(&adapter), 25);
    let mut buffers = [vec![0; 25]];
    assert!(adapter.load(&keys, &mut buffers).await.is_ok());
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
    harness.faults.inject(Op::Get, None, 2, Fault::Refuse);
    let loaded = adapter.load(&keys, &mut buffers).await;
    assert_eq!(loaded.bitmap().count_ones(), 0);
    assert!(adapter.load(&keys, &mut buffers).await.is_ok());
}

fn evicting(capacity: u64, watermark: f64, ratio: f64) -> serde_json::Value {
    json!({
        "max_capacity_gb": capacity as f64 / GIB,
        "eviction": {"eviction_policy": "LRU", "trigger_watermark": watermark,
                     "eviction_ratio": ratio},
    })
}

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
