//! Closing: what ends by itself, what is ended, and when.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[path = "support/l2_helpers.rs"]
mod l2_helpers;
#[cfg(feature = "local-hub")]
mod support;

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hfbucket::l2::{DeleteOutcome, L2Adapter, L2Error, LoadOutcome, ObjectKey, StoreReport};
use l2_backends::{Harness, in_memory};
use l2_faults::{Fault, Gate, Op};
use l2_helpers::{batch, keys, store, used};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(10);

/// The next so many calls arrive at the gate and wait there.
fn hold(harness: &Harness, op: Op, calls: usize) -> Gate {
    let gate = Gate::default();
    harness
        .faults
        .inject(op, None, calls, Fault::Hold(gate.clone()));
    gate
}

/// A store that is under way at the gate.
async fn held_store(harness: &Harness, adapter: &L2Adapter, keys: &[ObjectKey]) -> HeldStore {
    let gate = hold(harness, Op::Put, keys.len());
    let (adapter, entries) = (adapter.clone(), batch(keys, 10));
    let running = tokio::spawn(async move { adapter.store(entries).await });
    gate.arrivals(keys.len() as u32).await;
    HeldStore { gate, running }
}

struct HeldStore {
    gate: Gate,
    running: JoinHandle<StoreReport>,
}

fn is_closed<T>(result: &Result<T, L2Error>) -> bool {
    matches!(result, Err(L2Error::Closed))
}

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_within_the_limit_succeeds() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    let held = held_store(&harness, &adapter, &keys).await;
    let started = Instant::now();
    let (by_itself, ()) = tokio::join!(adapter.close_within(LIMIT), async {
        sleep(LIMIT - SECOND).await;
        held.gate.open();
    });
    assert!(by_itself);
    assert_eq!(started.elapsed(), LIMIT - SECOND);
    assert!(held.running.await.unwrap().is_ok());
    assert_eq!(used(&adapter), 20);
    assert!(adapter.close_within(LIMIT).await, "closed before");
}

#[tokio::test(start_paused = true)]
async fn every_operation_is_ended_at_the_limit() {
    let harness = in_memory().await;
    let adapter = harness
        .adapter(json!({"metadata_cache_ttl_secs": 0, "num_workers": 64}))
        .await;
    let keys = keys(6);
    store(&adapter, &keys[..4], 10).await;
    let before = alive_tasks();

    let store = held_store(&harness, &adapter, &keys[4..5]).await;
    // Waits for the turn of the first, while its other key is done.
    let second = tokio::spawn({
        let (adapter, entries) = (adapter.clone(), batch(&keys[4..6], 10));
        async move { adapter.store(entries).await }
    });
    let gate = hold(&harness, Op::Head, 1);
    let lookup = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move {
            let found = adapter.lookup_and_lock(&keys[..2]).await;
            let errors: Vec<_> = found.errors.iter().map(|(at, _)| *at).collect();
            let closed = found
                .errors
                .iter()
                .all(|(_, error)| matches!(error, L2Error::Closed));
            (found.hits(), errors.len(), closed)
        }
    });
    gate.arrivals(1).await;
    let gate = hold(&harness, Op::Get, 1);
    let load = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move {
            let mut buffers = [[0; 10]; 2];
            let loaded = adapter.load(&keys[..2], &mut buffers).await;
            (loaded, buffers)
        }
    });
    gate.arrivals(1).await;
    let gate = hold(&harness, Op::Delete, 1);
    let delete = tokio::spawn({
        let (adapter, keys) = (adapter.clone(), keys.clone());
        async move { adapter.delete(&keys[2..4]).await }
    });
    gate.arrivals(1).await;

    let started = Instant::now();
    assert!(!adapter.close_within(LIMIT).await);
    assert_eq!(started.elapsed(), LIMIT);

    let report = store.running.await.unwrap();
    assert!(is_closed(&report.results[0]));
    let report = second.await.unwrap();
    assert!(is_closed(&report.results[0]) && report.results[1].is_ok());
    assert_eq!(report.bytes_transferred, 10);
    assert_eq!(lookup.await.unwrap(), (1, 1, true));
    let (loaded, buffers) = load.await.unwrap();
    let (held, done): (Vec<_>, Vec<_>) = (0..2).partition(|at| !loaded.outcomes[*at].is_hit());
    assert_eq!((held.len(), done.len()), (1, 1));
    assert!(matches!(
        loaded.outcomes[held[0]],
        LoadOutcome::Failed(L2Error::Closed)
    ));
    assert_eq!(
        Bytes::copy_from_slice(&buffers[done[0]]),
        l2_helpers::content(&keys[done[0]], 10)
    );
    let report = delete.await.unwrap();
    assert_eq!((report.outcomes.len(), report.bytes_freed), (2, 0));
    for outcome in report.outcomes {
        assert!(matches!(outcome, DeleteOutcome::Failed(L2Error::Closed)));
    }
    assert_eq!(alive_tasks(), before);
    assert_eq!(adapter.status().locked_key_count, 0);
    assert_eq!(used(&adapter), 50);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_ended_at_the_limit() {
    let harness = in_memory().await;
    let before = alive_tasks();
    let adapter = harness
        .adapter(json!({
            "max_capacity_gb": 1e-6,
            "eviction": {"eviction_policy": "LRU", "trigger_watermark": 0.5},
        }))
        .await;
    let gate = hold(&harness, Op::Delete, 1);
    store(&adapter, &keys(6), 100).await;
    gate.arrivals(1).await;
    assert!(adapter.status().is_evicting);
    let started = Instant::now();
    assert!(!adapter.close_within(LIMIT).await);
    assert_eq!(started.elapsed(), LIMIT);
    assert!(!adapter.status().is_evicting);
    assert_eq!(alive_tasks(), before);
    adapter.eviction_idle().await;
}

#[tokio::test(start_paused = true)]
async fn close_waits_half_a_minute() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let held = held_store(&harness, &adapter, &keys(1)).await;
    let started = Instant::now();
    adapter.close().await;
    assert_eq!(started.elapsed(), 30 * SECOND);
    assert!(is_closed(&held.running.await.unwrap().results[0]));
    assert!(!adapter.close_within(LIMIT).await, "it was ended");
}

#[tokio::test(start_paused = true)]
async fn closes_at_the_same_time_end_together() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let _held = held_store(&harness, &adapter, &keys(1)).await;
    let started = Instant::now();
    let ended = tokio::join!(
        adapter.close_within(Duration::MAX),
        adapter.close_within(LIMIT),
        adapter.close_within(2 * LIMIT),
    );
    assert_eq!(ended, (false, false, false));
    assert_eq!(started.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_to_wait_only_what_runs_is_ended() {
    let harness = in_memory().await;
    let idle = harness.adapter(json!({})).await;
    assert!(idle.close_within(Duration::ZERO).await);

    let busy = harness.adapter(json!({})).await;
    let held = held_store(&harness, &busy, &keys(1)).await;
    let started = Instant::now();
    assert!(!busy.close_within(Duration::ZERO).await);
    // A timer has a resolution of a millisecond.
    assert!(started.elapsed() <= Duration::from_millis(1));
    assert!(is_closed(&held.running.await.unwrap().results[0]));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_close_leaves_the_rest_to_the_next() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    let first = held_store(&harness, &adapter, &keys[..1]).await;
    let second = held_store(&harness, &adapter, &keys[1..]).await;
    assert!(
        timeout(SECOND, adapter.close_within(LIMIT)).await.is_err(),
        "dropped in the middle"
    );
    let refused = adapter.store(batch(&keys[..1], 10)).await;
    assert!(is_closed(&refused.results[0]));
    // Without a close nobody ends the work.
    sleep(100 * LIMIT).await;
    first.gate.open();
    assert!(first.running.await.unwrap().is_ok());
    let started = Instant::now();
    assert!(!adapter.close_within(LIMIT).await);
    assert_eq!(started.elapsed(), LIMIT);
    assert!(is_closed(&second.running.await.unwrap().results[0]));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_polls_does_not_hold_up_a_close() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(1);
    store(&adapter, &keys, 10).await;
    let _gate = hold(&harness, Op::Get, 1);
    let mut buffers = [[0; 10]];
    let mut load = Box::pin(adapter.load(&keys, &mut buffers));
    assert!(load.as_mut().now_or_never().is_none());
    let started = Instant::now();
    assert!(!adapter.close_within(LIMIT).await);
    assert_eq!(started.elapsed(), LIMIT + SECOND);
    let outcomes = load.await.outcomes;
    assert!(matches!(
        outcomes[..],
        [LoadOutcome::Failed(L2Error::Closed)]
    ));
}
