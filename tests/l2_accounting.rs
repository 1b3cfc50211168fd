//! Whatever runs at once and whatever fails, on one adapter or on two that share a pool: at every
//! quiet point usage is what the store lists.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[cfg(feature = "local-hub")]
mod support;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures::future::join_all;
use hfbucket::l2::{L2Adapter, L2Error, Lookup, ObjectKey};
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
    LookupPrefix(Vec<usize>),
    Load(Vec<(usize, usize)>),
    Delete(Vec<usize>),
    Resync,
}

#[derive(Debug, Clone)]
struct Round {
    /// Which adapter does what.
    steps: Vec<(usize, Step)>,
    faults: Vec<(Op, Fault)>,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let sized = || (key(), prop_oneof![Just(0usize), 1..3usize, 400..900usize]);
    prop_oneof![
        3 => prop::collection::vec(sized(), 0..5).prop_map(Step::Store),
        2 => prop::collection::vec(key(), 0..5).prop_map(Step::Lookup),
        1 => prop::collection::vec(key(), 0..5).prop_map(Step::LookupPrefix),
        1 => prop::collection::vec(sized(), 0..4).prop_map(Step::Load),
        1 => Just(Step::Resync),
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
        1 => Just((Op::List, Fault::Refuse)),
        7 => (
            prop_oneof![
                Just(Op::Put),
                Just(Op::Head),
                Just(Op::Get),
                Just(Op::Delete),
                Just(Op::List),
            ],
            dawdle,
        ),
    ]
}

fn round() -> impl Strategy<Value = Round> {
    let steps = prop::collection::vec((0..2usize, step()), 1..7);
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

/// Every byte of an object is the number of the store that wrote it, so that a mix of two would show.
fn contents(number: usize, size: usize) -> Bytes {
    Bytes::from(vec![number as u8; size])
}

/// Runs a step. A lookup is returned, with its locks.
async fn run(
    adapter: L2Adapter,
    keys: Vec<ObjectKey>,
    number: usize,
    step: Step,
) -> Option<Lookup> {
    match step {
        Step::Store(entries) => {
            let entries = entries
                .into_iter()
                .map(|(n, size)| (keys[n].clone(), contents(number, size)));
            adapter.store(entries.collect()).await;
            None
        }
        Step::Lookup(positions) => Some(adapter.lookup_and_lock(&pick(&keys, &positions)).await),
        Step::LookupPrefix(positions) => {
            let wanted = pick(&keys, &positions);
            let found = adapter.lookup_prefix_and_lock(&wanted).await;
            assert_eq!(found.prefix_hits(), found.hits());
            Some(found)
        }
        Step::Load(entries) => {
            let wanted: Vec<_> = entries.iter().map(|(n, _)| keys[*n].clone()).collect();
            let mut buffers: Vec<_> = entries.iter().map(|(_, size)| vec![255; *size]).collect();
            let loaded = adapter.load(&wanted, &mut buffers).await;
            for (outcome, buffer) in loaded.outcomes.iter().zip(&buffers) {
                // One version, or the buffer as it was.
                let first = buffer.first().copied();
                assert!(
                    buffer.iter().all(|byte| Some(*byte) == first),
                    "{outcome:?}"
                );
                assert!(first.is_none() || outcome.is_hit() == (first != Some(255)));
            }
            None
        }
        Step::Delete(positions) => {
            adapter.delete(&pick(&keys, &positions)).await;
            None
        }
        Step::Resync => {
            // May fail; what it saw by then is counted.
            let _ = adapter.resync().await;
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
    let page = adapter.list_keys(None, 100, None).await.unwrap();
    let mut known: Vec<_> = page
        .entries
        .into_iter()
        .map(|entry| (adapter.object_path(&entry.key).unwrap(), entry.size))
        .collect();
    known.sort();
    let mut there: Vec<_> = listed
        .iter()
        .map(|(path, size)| (path.clone(), *size))
        .collect();
    there.sort();
    assert_eq!(known, there);
}

/// What lookups answer, once nothing old is believed.
async fn check_lookups(harness: &Harness, adapter: &L2Adapter, keys: &[ObjectKey]) {
    let listed: HashMap<_, _> = harness.list().await.into_iter().collect();
    let found = adapter.lookup_and_lock(keys).await;
    for (position, key) in keys.iter().enumerate() {
        let size = listed.get(&adapter.object_path(key).unwrap());
        let there = size.is_some_and(|size| *size > 0);
        assert_eq!(found.bitmap[position], there, "{key:?}");
    }
}

#[derive(Debug, Clone)]
struct World {
    policy: &'static str,
    unit: &'static str,
    ttl: u64,
    adapters: usize,
    rounds: Vec<Round>,
}

async fn open(harness: &Harness, world: &World) -> Vec<L2Adapter> {
    let config = json!({
        "max_capacity_gb": CAPACITY as f64 / (1u64 << 30) as f64,
        "num_workers": 2,
        "metadata_cache_ttl_secs": world.ttl,
        "eviction": {
            "eviction_policy": world.policy,
            "eviction_unit": world.unit,
            "trigger_watermark": 0.5,
            "salt_quotas_gb": {"a": 1000.0 / (1u64 << 30) as f64},
        },
    });
    join_all((0..world.adapters).map(|_| harness.adapter(config.clone()))).await
}

/// Until all know of each other's evictions.
async fn settle(adapters: &[L2Adapter]) {
    let evicted = || -> u64 {
        let totals = adapters.iter().map(|adapter| adapter.status().totals);
        totals.map(|totals| totals.evicted_keys).sum()
    };
    loop {
        let before = evicted();
        for adapter in adapters {
            adapter.eviction_idle().await;
            adapter.resync().await.unwrap();
            adapter.eviction_idle().await;
        }
        if evicted() == before {
            return;
        }
    }
}

async fn play(world: World) {
    let harness = l2_backends::in_memory().await;
    let adapters = open(&harness, &world).await;
    let keys = keys();
    let mut number = 0;
    for round in world.rounds {
        for (op, fault) in round.faults {
            harness.faults.inject(op, None, 1, fault);
        }
        let steps = round.steps.into_iter().map(|(at, step)| {
            number = (number + 1) % 255;
            let adapter = adapters[at % adapters.len()].clone();
            tokio::spawn(run(adapter, keys.clone(), number, step))
        });
        let lookups = join_all(steps).await;
        harness.faults.heal();
        // What was found and locked is there, whatever ran at the same time; of another adapter's
        // deletes a lock knows nothing.
        for found in lookups.iter().flat_map(|step| step.as_ref().unwrap()) {
            for key in found.guard.keys() {
                let path = adapters[0].object_path(key).unwrap();
                let there = harness.list().await.into_iter().any(|(own, _)| own == path);
                assert!(there || adapters.len() > 1, "{key:?} was a hit and is gone");
            }
        }
        for adapter in &adapters {
            adapter.eviction_idle().await;
        }
        drop(lookups);
        settle(&adapters).await;
        for adapter in &adapters {
            check(&harness, adapter, &keys).await;
            assert!(adapter.usage().total_bytes_used < CAPACITY / 2);
        }
        if adapters.len() == 1 || world.ttl == 0 {
            for adapter in &adapters {
                check_lookups(&harness, adapter, &keys).await;
            }
        }
    }
    for adapter in &adapters {
        adapter.close().await;
    }
}

/// Closes the adapter while all of it runs: what was stored and deleted by then is counted, what
/// comes later is refused.
async fn close_at_once(world: World) {
    let harness = l2_backends::in_memory().await;
    let adapter = open(&harness, &world).await.remove(0);
    let keys = keys();
    for (number, round) in world.rounds.into_iter().enumerate() {
        for (op, fault) in round.faults {
            // Refused listings would be tried again, and failed deletes too, after a while.
            if matches!(fault, Fault::Dawdle(..)) {
                harness.faults.inject(op, None, 1, fault);
            }
        }
        let steps = round
            .steps
            .into_iter()
            .map(|(_, step)| tokio::spawn(run(adapter.clone(), keys.clone(), number, step)));
        let steps: Vec<_> = steps.collect();
        tokio::task::yield_now().await;
        if number == 1 {
            tokio::join!(adapter.close(), adapter.close());
            assert!(matches!(adapter.resync().await, Err(L2Error::Closed)));
        }
        for step in join_all(steps).await {
            drop(step.unwrap());
        }
    }
    adapter.close().await;
    let listed: u64 = harness.list().await.iter().map(|(_, size)| size).sum();
    assert_eq!(adapter.usage().total_bytes_used, listed);
    assert_eq!(adapter.status().locked_key_count, 0);
}

fn world() -> impl Strategy<Value = World> {
    (
        prop::collection::vec(round(), 1..8),
        prop_oneof![
            Just("LRU"),
            Just("ARC"),
            Just("S3-FIFO"),
            Just("IsolatedLRU")
        ],
        prop_oneof![Just("keys"), Just("bytes")],
        // Without a cache every lookup asks, which races with stores.
        prop_oneof![Just(0u64), Just(30)],
        1..3usize,
    )
        .prop_map(|(rounds, policy, unit, ttl, adapters)| World {
            policy,
            unit,
            ttl,
            adapters,
            rounds,
        })
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn usage_is_what_the_store_lists(world in world()) {
        block_on(play(world));
    }

    #[test]
    fn closing_races_with_everything_and_loses_nothing(world in world()) {
        block_on(close_at_once(world));
    }
}
