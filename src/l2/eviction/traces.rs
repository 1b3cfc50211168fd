//! The recorded traces of LMCache's policies, replayed.

use std::collections::HashSet;

use serde_json::Value;

use super::{Lru, Policy, victim_count};

const TRACES: &str = include_str!("../../../tests/data/eviction_traces.json");

fn traces(policy: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(TRACES).unwrap();
    all.into_iter()
        .filter(|trace| trace["policy"] == policy)
        .collect()
}

fn keys(value: &Value) -> Vec<u64> {
    match value.as_array() {
        Some(keys) => keys.iter().map(|key| key.as_u64().unwrap()).collect(),
        None => Vec::new(),
    }
}

/// Applies one operation and returns the victims of an `evict`.
fn step(policy: &mut dyn Policy<u64>, op: &Value) {
    match op["op"].as_str().unwrap() {
        "created" => policy.created(&keys(&op["keys"])),
        "touched" => policy.touched(&keys(&op["keys"])),
        "removed" => policy.removed(&keys(&op["keys"])),
        "evict" => {
            let locked: HashSet<u64> = keys(&op["locked"]).into_iter().collect();
            let count = victim_count(policy.len(), op["ratio"].as_f64().unwrap());
            let victims = policy.select(count, &|key| !locked.contains(key));
            assert_eq!(victims, keys(&op["victims"]), "{op}");
            policy.removed(&keys(&op["then_removed"]));
        }
        other => panic!("unknown operation {other}"),
    }
}

#[test]
fn lru() {
    let traces = traces("LRU");
    assert_eq!(traces.len(), 10);
    for trace in traces {
        let mut policy = Lru::default();
        for op in trace["ops"].as_array().unwrap() {
            step(&mut policy, op);
        }
        let order = keys(&trace["final"]["order"]);
        assert_eq!(policy.order(), order, "{}", trace["id"]);
    }
}

#[test]
fn a_share_is_rounded_down_in_floating_point() {
    for (keys, ratio, count) in [
        (100, 0.29, 28),
        (100, 0.57, 56),
        (10, 1e-12, 1),
        (10, 0.0, 0),
        (10, -1.0, 0),
        (10, f64::NAN, 0),
        (10, 7.5, 10),
        (0, 1.0, 0),
    ] {
        assert_eq!(victim_count(keys, ratio), count, "{keys} x {ratio}");
    }
}
