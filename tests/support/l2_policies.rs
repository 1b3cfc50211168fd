//! The L2 suite: policies, quotas and admission.

use futures::future::join_all;
use hfbucket::l2::L2Error;
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};
use crate::l2_helpers::{GIB, assert_counted, batch, find, keys, salted, store, used};

pub async fn salts_stay_within_their_quotas(harness: &Harness) {
    let isolated = |unregistered: &str| {
        json!({"eviction": {
            "eviction_policy": "IsolatedLRU",
            "trigger_watermark": 0.5,
            "eviction_ratio": 0.5,
            "salt_quotas_gb": {"a": 1000.0 / GIB},
            "unregistered_salts": unregistered,
        }})
    };
    let adapter = harness.adapter(isolated("keep")).await;
    adapter.recovered().await.unwrap();
    let (plain, a, b) = (keys(6), salted(&keys(6), "a"), salted(&keys(6), "b"));
    store(&adapter, &plain, 100).await;
    store(&adapter, &b, 100).await;
    store(&adapter, &a[..4], 100).await;
    adapter.eviction_idle().await;
    assert_eq!(used(&adapter), 1600, "below the watermark of every quota");
    store(&adapter, &a[4..], 100).await;
    adapter.eviction_idle().await;
    // Half of the six keys of 'a', the oldest, and nobody else's.
    assert_eq!(
        find(&adapter, &a).await,
        [true, false, false, false, true, true],
        "3, 2, 1, 0 and then 5, 4 were stored: the oldest three go"
    );
    assert_eq!(adapter.usage().bytes_by_cache_salt["b"], 600);
    assert_eq!(adapter.usage().bytes_by_cache_salt[""], 600);

    // A quota can be given later.
    adapter.set_salt_quota("b", Some(400));
    adapter.eviction_idle().await;
    assert_eq!(adapter.usage().bytes_by_cache_salt["b"], 100);
    assert_eq!(adapter.status().salts_over_quota, 0);
    assert_counted(harness, &adapter).await;
    adapter.close().await;

    let strict = harness.adapter(isolated("evict")).await;
    strict.eviction_idle().await;
    let usage = strict.usage().bytes_by_cache_salt;
    assert_eq!(
        usage.into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), 300)]
    );
    assert_counted(harness, &strict).await;
}

pub async fn a_capacity_holds_for_all_salts_together(harness: &Harness) {
    let adapter = harness
        .adapter(json!({"max_capacity_gb": 1000.0 / GIB, "eviction": {
            "eviction_policy": "IsolatedLRU",
            "eviction_ratio": 0.1,
            "salt_quotas_gb": {"a": 500.0 / GIB},
        }}))
        .await;
    adapter.recovered().await.unwrap();
    let (a, b) = (salted(&keys(3), "a"), salted(&keys(8), "b"));
    store(&adapter, &a, 100).await;
    store(&adapter, &b, 100).await;
    adapter.eviction_idle().await;
    // Who has no quota exceeds it most.
    let usage = adapter.usage().bytes_by_cache_salt;
    assert_eq!((usage["a"], usage["b"]), (300, 400));
    assert_counted(harness, &adapter).await;
}

pub async fn a_ratio_of_bytes_frees_bytes(harness: &Harness) {
    let keys = keys(102);
    let unit = |unit: &str| {
        json!({"max_capacity_gb": 10_000.0 / GIB, "eviction": {
            "eviction_policy": "LRU", "trigger_watermark": 0.8, "eviction_ratio": 0.2,
            "eviction_unit": unit,
        }})
    };
    let adapter = harness.adapter(unit("bytes")).await;
    adapter.recovered().await.unwrap();
    store(&adapter, &keys[..100], 1).await;
    store(&adapter, &keys[100..101], 5000).await;
    store(&adapter, &keys[101..], 4000).await;
    adapter.eviction_idle().await;
    // A fifth of 9100 bytes are all the small keys and the older large one, in a single round.
    assert_eq!(used(&adapter), 4000);
    assert_eq!(adapter.status().totals.evicted_keys, 101);
    assert_counted(harness, &adapter).await;
}

pub async fn the_scan_resistant_policy_keeps_what_is_used(harness: &Harness) {
    let keys = keys(30);
    let adapter = harness
        .adapter(json!({"max_capacity_gb": 1000.0 / GIB, "eviction": {
            "eviction_policy": "S3-FIFO", "eviction_ratio": 0.1,
        }}))
        .await;
    adapter.recovered().await.unwrap();
    store(&adapter, &keys[..4], 100).await;
    assert_eq!(find(&adapter, &keys[..4]).await, [true; 4]);
    for scan in keys[4..].chunks(2) {
        store(&adapter, scan, 100).await;
        adapter.eviction_idle().await;
    }
    assert_eq!(find(&adapter, &keys[..4]).await, [true; 4]);
    assert!(used(&adapter) < 800);
    assert_counted(harness, &adapter).await;
}

pub async fn hard_admission_never_exceeds_the_capacity(harness: &Harness) {
    let keys = keys(20);
    let adapter = harness
        .adapter(json!({"max_capacity_gb": 1000.0 / GIB, "admission": "hard", "num_workers": 8}))
        .await;
    adapter.recovered().await.unwrap();
    store(&adapter, &keys[..4], 100).await;
    // What is on its way counts: of ten more, six fit, whoever comes first.
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Put, None, 10, Fault::Hold(gate.clone()));
    let stores = (4..14).map(|n| {
        let (adapter, entry) = (adapter.clone(), batch(&keys[n..=n], 100));
        tokio::spawn(async move { adapter.store(entry).await })
    });
    let stores: Vec<_> = stores.collect();
    gate.arrivals(6).await;
    gate.open();
    let reports: Vec<_> = join_all(stores)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let refused: Vec<_> = reports
        .iter()
        .filter_map(|report| report.first_error())
        .collect();
    assert_eq!(refused.len(), 4, "{refused:?}");
    for error in refused {
        let L2Error::Full {
            bytes,
            used,
            reserved,
            capacity,
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((*bytes, used + reserved, *capacity), (100, 1000, 1000));
        assert!(
            error.to_string().contains("no room for the 100 bytes"),
            "{error}"
        );
    }
    harness.faults.heal();
    assert_eq!(
        (used(&adapter), adapter.status().totals.refused_stores),
        (1000, 4)
    );
    assert_counted(harness, &adapter).await;

    // Replacing an object by one of its size needs no room; by a larger one it does.
    store(&adapter, &keys[..1], 100).await;
    assert!(!adapter.store(batch(&keys[..1], 101)).await.is_ok());
    store(&adapter, &keys[..1], 40).await;
    store(&adapter, &keys[19..], 60).await;
    assert_eq!(used(&adapter), 1000);
    assert_counted(harness, &adapter).await;
}
