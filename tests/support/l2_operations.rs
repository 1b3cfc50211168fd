//! The L2 suite: what operations do when all goes well.

use bytes::Bytes;
use hfbucket::l2::{DeleteOutcome, L2Error, LoadOutcome, ObjectKey};
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::Op;
use crate::l2_helpers::{assert_counted, batch, content, find, keys, store, used};

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
