//! What an adapter tells the recorder of the `metrics` crate: right, and documented.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[path = "support/l2_helpers.rs"]
mod l2_helpers;
#[cfg(feature = "local-hub")]
mod support;

use std::collections::BTreeMap;

use l2_faults::{Fault, Op};
use l2_helpers::{batch, evicting, keys, store};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// Name and labels but the pool, and what they count.
type Figures = BTreeMap<String, f64>;

async fn work() {
    let harness = l2_backends::in_memory().await;
    let adapter = harness.adapter(evicting(1000, 0.8, 0.2)).await;
    adapter.recovered().await.unwrap();
    let keys = keys(12);
    store(&adapter, &keys[..5], 100).await;
    harness.faults.inject(Op::Put, None, 1, Fault::LoseAck);
    store(&adapter, &keys[5..6], 50).await;
    harness.faults.inject(Op::Put, None, 1, Fault::Refuse);
    assert!(!adapter.store(batch(&keys[6..7], 1)).await.is_ok());
    drop(adapter.lookup_and_lock(&keys[..8]).await);
    let mut buffers = vec![vec![0; 100]; 3];
    adapter.load(&keys[4..7], &mut buffers).await;
    adapter.delete(&keys[..1]).await;
    harness.faults.inject(Op::Delete, None, 1, Fault::Refuse);
    adapter.delete(&keys[1..2]).await;
    store(&adapter, &keys[8..9], 900).await;
    adapter.eviction_idle().await;
    adapter.close().await;
}

fn record() -> Figures {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        // On this thread, whose recorder it is.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(work());
    });
    let mut figures = Figures::new();
    for (key, _, _, value) in snapshots.snapshot().into_vec() {
        let mut name = key.key().name().to_owned();
        for label in key.key().labels() {
            match label.key() {
                "pool" => assert_eq!(label.value(), "FaultStore(InMemory)/pool/a b"),
                _ => name.push_str(&format!(" {}={}", label.key(), label.value())),
            }
        }
        let figure = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(gauge) => gauge.into_inner(),
            // How often; how long depends on the machine.
            DebugValue::Histogram(times) => {
                assert!(times.iter().all(|time| (0.0..60.0).contains(&time.0)));
                times.len() as f64
            }
        };
        figures.insert(name, figure);
    }
    figures
}

#[test]
fn figures_are_right_and_documented() {
    let figures = record();
    let expected = [
        ("hfbucket_l2_deleted_keys_total cause=eviction", 6.0),
        ("hfbucket_l2_deleted_keys_total cause=request", 1.0),
        ("hfbucket_l2_evicted_bytes_total", 1350.0),
        ("hfbucket_l2_failed_deletes_total", 1.0),
        ("hfbucket_l2_load_keys_total outcome=hit", 1.0),
        ("hfbucket_l2_load_keys_total outcome=miss", 2.0),
        ("hfbucket_l2_loaded_bytes_total", 100.0),
        ("hfbucket_l2_lookup_keys_total outcome=hit", 6.0),
        ("hfbucket_l2_lookup_keys_total outcome=miss", 2.0),
        ("hfbucket_l2_operation_seconds operation=delete", 2.0),
        ("hfbucket_l2_operation_seconds operation=load", 1.0),
        ("hfbucket_l2_operation_seconds operation=lookup", 1.0),
        ("hfbucket_l2_operation_seconds operation=store", 4.0),
        ("hfbucket_l2_reconciled_stores_total", 1.0),
        ("hfbucket_l2_store_keys_total outcome=failed", 1.0),
        ("hfbucket_l2_store_keys_total outcome=stored", 7.0),
        ("hfbucket_l2_stored_bytes_total", 1450.0),
        ("hfbucket_l2_tracked_keys", 0.0),
        ("hfbucket_l2_used_bytes", 0.0),
    ];
    let expected: Figures = expected
        .into_iter()
        .map(|(name, figure)| (name.to_owned(), figure))
        .collect();
    assert_eq!(figures, expected);

    let guide = include_str!("../docs/l2.md");
    for name in figures.keys() {
        let name = name.split(' ').next().unwrap();
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
}
