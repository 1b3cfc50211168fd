//! Whatever runs at once and whatever fails, at every quiet point usage is what the store lists.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[cfg(feature = "local-hub")]
mod support;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures::future::join_all;
use hfbucket::l2::{L2Adapter, Lookup, ObjectKey};
use l2_backends::Harness;
use l2_faults::{Fault, Op};
use proptest::prelude::*;
use serde_json::json;

const KEYS: usize = 8;
const CAPACITY: u64 = 4000;

#[derive(Debug, Clone)]
enum Step {
    Store(Vec<(usize, usize)>),
    Lookup(Vec<usize>),
    Load(Vec<(usize, usize)>),
    Delete(Vec<usize>),
}

#[derive(Debug, Clone)]
struct Round {
    steps: Vec<Step>,
    faults: Vec<(Op, Fault)>,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let sized = || (key(), prop_oneof![Just(0usize), 1..3usize, 400..900usize]);
    prop_oneof![
        3 => prop::collection::vec(sized(), 0..5).prop_map(Step::Store),
        2 => prop::collection::vec(key(), 0..5).prop_map(Step::Lookup),
        1 => prop::collection::vec(sized(), 0..4).prop_map(Step::Load),
        2 => prop::collection::vec(key(), 0..5).prop_map(Step::Delete),
    ]
}

/// Failures of writes, and delays of everything. Questions are answered, so that every failure can
/// be settled.
fn fault() -> impl Strategy<Value = (Op, Fault)> {
    let dawdle = (0..8usize, 0..12usize).prop_map(|(before, after)| Fault::Dawdle(before, after));
    prop_oneof![
        2 => prop_oneof![Just(Fault::Refuse), Just(Fault::LoseAck)].prop_map(|fault| (Op::Put, fault)),
        2 => prop_oneof![Just(Fault::Refuse), Just(Fault::LoseAck), Just(Fault::RefuseBatch)]
            .prop_map(|fault| (Op::Delete, fault)),
        6 => (prop_oneof![Just(Op::Put), Just(Op::Head), Just(Op::Get), Just(Op::Delete)], dawdle),
    ]
}

fn round() -> impl Strategy<Value = Round> {
    let steps = prop::collection::vec(step(), 1..6);
    let faults = prop::collection::vec(fault(), 0..12);
    (steps, faults).prop_map(|(steps, faults)| Round { steps, faults })
}

fn keys() -> Vec<ObjectKey> {
    (0..KEYS)
        .map(|n| {
            let key = ObjectKey::new("m", 0, [n as u8]).unwrap();
            key.with_cache_salt(["", "a", "b"][n % 3]).unwrap()
        })
        .collect()
}

fn pick(keys: &[ObjectKey], positions: &[usize]) -> Vec<ObjectKey> {
    positions.iter().map(|n| keys[*n].clone()).collect()
}

/// Runs a step. A lookup is returned, with its locks.
async fn run(adapter: L2Adapter, keys: Vec<ObjectKey>, step: Step) -> Option<Lookup> {
    match step {
        Step::Store(entries) => {
            let entries = entries
                .into_iter()
                .map(|(n, size)| (keys[n].clone(), Bytes::from(vec![size as u8; size])));
            adapter.store(entries.collect()).await;
            None
        }
        Step::Lookup(positions) => Some(adapter.lookup_and_lock(&pick(&keys, &positions)).await),
        Step::Load(entries) => {
            let wanted: Vec<_> = entries.iter().map(|(n, _)| keys[*n].clone()).collect();
            let mut buffers: Vec<_> = entries.iter().map(|(_, size)| vec![9; *size]).collect();
            let loaded = adapter.load(&wanted, &mut buffers).await;
            for (outcome, buffer) in loaded.outcomes.iter().zip(&buffers) {
                // Every object is filled with its size: one version, or the buffer as it was.
                let byte = if outcome.is_hit() {
                    buffer.len() as u8
                } else {
                    9
                };
                assert!(buffer.iter().all(|b| *b == byte), "{outcome:?}");
            }
            None
        }
        Step::Delete(positions) => {
            adapter.delete(&pick(&keys, &positions)).await;
            None
        }
    }
}

async fn check(harness: &Harness, adapter: &L2Adapter, keys: &[ObjectKey]) {
    let listed: HashMap<_, _> = harness.list().await.into_iter().collect();
    let size = |key| listed.get(&adapter.object_path(key).unwrap()).copied();
    let mut by_salt = BTreeMap::new();
    for key in keys {
        if let Some(size) = size(key).filter(|size| *size > 0) {
            *by_salt.entry(key.cache_salt().to_owned()).or_insert(0) += size;
        }
    }
    let usage = adapter.usage();
    assert_eq!(usage.bytes_by_cache_salt, by_salt);
    assert_eq!(usage.total_bytes_used, by_salt.values().sum::<u64>());
    let status = adapter.status();
    assert_eq!(status.stored_object_count, listed.len());
    assert_eq!((status.locked_key_count, status.is_evicting), (0, false));
    let found = adapter.lookup_and_lock(keys).await;
    for (position, key) in keys.iter().enumerate() {
        assert_eq!(
            found.bitmap[position],
            size(key).is_some_and(|size| size > 0),
            "{key:?}"
        );
    }
}

async fn play(policy: &str, ttl: u64, rounds: Vec<Round>) {
    let harness = l2_backends::in_memory().await;
    let adapter = harness
        .adapter(json!({
            "max_capacity_gb": CAPACITY as f64 / (1u64 << 30) as f64,
            "num_workers": 2,
            "metadata_cache_ttl_secs": ttl,
            "eviction": {"eviction_policy": policy, "trigger_watermark": 0.5},
        }))
        .await;
    let keys = keys();
    for round in rounds {
        for (op, fault) in round.faults {
            harness.faults.inject(op, None, 1, fault);
        }
        let steps = round
            .steps
            .into_iter()
            .map(|step| tokio::spawn(run(adapter.clone(), keys.clone(), step)));
        let lookups = join_all(steps).await;
        harness.faults.heal();
        // What was found and locked is there, whatever ran at the same time.
        for found in lookups.iter().flat_map(|step| step.as_ref().unwrap()) {
            for key in found.guard.keys() {
                let path = adapter.object_path(key).unwrap();
                let there = harness.list().await.into_iter().any(|(own, _)| own == path);
                assert!(there, "{key:?} was a hit and is gone");
            }
        }
        adapter.eviction_idle().await;
        drop(lookups);
        adapter.eviction_idle().await;
        check(&harness, &adapter, &keys).await;
        assert!(adapter.usage().total_bytes_used < CAPACITY / 2);
    }
    adapter.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn usage_is_what_the_store_lists(
        rounds in prop::collection::vec(round(), 1..8),
        policy in prop_oneof![Just("LRU"), Just("ARC")],
        // Without a cache every lookup asks, which races with stores.
        ttl in prop_oneof![Just(0u64), Just(30)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(policy, ttl, rounds));
    }
}
