//! The recorded traces of LMCache's policies, replayed.

use std::collections::HashSet;

use serde_json::Value;

use super::adaptive::Reserving;
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
fn adaptive() {
    let traces = traces("ARC");
    assert_eq!(traces.len(), 12);
    for trace in traces {
        let id = &trace["id"];
        let mut policy = Reserving::default();
        let same_target = |policy: &Reserving, target: &Value| {
            let target = target.as_f64().unwrap();
            assert!((policy.target() - target).abs() < 1e-12, "{id}: {policy:?}");
        };
        for op in trace["ops"].as_array().unwrap() {
            match op["op"].as_str() {
                Some("reserved") => policy.reserved(&keys(&op["keys"])),
                Some("evict") => {
                    step(&mut policy, op);
                    same_target(&policy, &op["target_t1_size"]);
                }
                _ => step(&mut policy, op),
            }
        }
        let last = &trace["final"];
        let lists = ["t1", "t2", "b1", "b2"].map(|list| keys(&last[list]));
        let capacity = usize::try_from(last["capacity"].as_u64().unwrap()).unwrap();
        assert_eq!(policy.lists(), (lists, capacity), "{id}");
        same_target(&policy, &last["target_t1_size"]);
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
