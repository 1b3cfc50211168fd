//! The recorded traces of LMCache's policies, replayed.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::adaptive::Reserving;
use super::{IsolatedLru, Lru, Placed, Policy, Scope, Visit, share};
use crate::l2::index::{KeyId, SaltId};

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

fn placed(keys: &[u64], salt: &dyn Fn(u64) -> SaltId) -> Vec<Placed> {
    keys.iter()
        .map(|key| Placed {
            key: id(*key),
            salt: salt(*key),
        })
        .collect()
}

fn id(key: u64) -> KeyId {
    KeyId(u32::try_from(key).unwrap())
}

fn ids(value: &Value) -> Vec<KeyId> {
    keys(value).into_iter().map(id).collect()
}

/// Takes the ratio's share of the eligible keys, as LMCache does.
fn evict(policy: &mut dyn Policy, scope: Scope, op: &Value) -> Vec<u64> {
    let locked: HashSet<u64> = keys(&op["locked"]).into_iter().collect();
    let count = share(policy.len(scope) as u64, op["ratio"].as_f64().unwrap());
    let mut left = count;
    let selection = policy.select(scope, &mut |key| {
        if left == 0 {
            return Visit::Stop;
        }
        if locked.contains(&key.0.into()) {
            return Visit::Pass;
        }
        left -= 1;
        Visit::Take
    });
    selection.victims.iter().map(|key| key.0.into()).collect()
}

/// Applies one operation, and compares the victims of an `evict`.
fn step(policy: &mut dyn Policy, salts: &Salts, op: &Value) {
    let salt = |key: u64| salts.of(key);
    match op["op"].as_str().unwrap() {
        "created" => policy.created(&placed(&keys(&op["keys"]), &salt)),
        "touched" => policy.touched(&ids(&op["keys"])),
        "removed" => policy.removed(&ids(&op["keys"])),
        "evict" => {
            let scope = match op.get("salt") {
                Some(Value::String(name)) => Scope::Salt(salts.named(name)),
                _ => Scope::All,
            };
            // Asking without a salt is an error there; here it names no victim.
            assert_eq!(evict(policy, scope, op), keys(&op["victims"]), "{op}");
            policy.removed(&ids(&op["then_removed"]));
        }
        other => panic!("unknown operation {other}"),
    }
}

/// The salts of a trace, numbered by name.
#[derive(Default)]
struct Salts {
    names: Vec<String>,
    of: HashMap<u64, SaltId>,
}

impl Salts {
    fn of_trace(trace: &Value) -> Self {
        let mut salts = Self::default();
        for (key, name) in trace["salts"].as_object().into_iter().flatten() {
            let name = name.as_str().unwrap();
            if !salts.names.iter().any(|known| known == name) {
                salts.names.push(name.to_owned());
            }
            let id = salts.named(name);
            salts.of.insert(key.parse().unwrap(), id);
        }
        salts
    }

    fn named(&self, name: &str) -> SaltId {
        let at = self.names.iter().position(|known| known == name);
        SaltId(at.unwrap_or(self.names.len()).try_into().unwrap())
    }

    fn of(&self, key: u64) -> SaltId {
        self.of.get(&key).copied().unwrap_or(SaltId(0))
    }
}

#[test]
fn lru() {
    let traces = traces("LRU");
    assert_eq!(traces.len(), 10);
    for trace in traces {
        let mut policy = Lru::default();
        for op in trace["ops"].as_array().unwrap() {
            step(&mut policy, &Salts::default(), op);
        }
        let order = keys(&trace["final"]["order"]);
        assert_eq!(policy.order(), order, "{}", trace["id"]);
    }
}

#[test]
fn isolated_lru() {
    let traces = traces("IsolatedLRU");
    assert_eq!(traces.len(), 9);
    for trace in traces {
        let salts = Salts::of_trace(&trace);
        let mut policy = IsolatedLru::default();
        for op in trace["ops"].as_array().unwrap() {
            step(&mut policy, &salts, op);
        }
        let orders = trace["final"]["order_by_salt"].as_object().unwrap();
        for name in &salts.names {
            let order = orders.get(name).map(keys).unwrap_or_default();
            assert_eq!(policy.order(salts.named(name)), order, "{}", trace["id"]);
        }
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
                Some("reserved") => policy.reserved(&ids(&op["keys"])),
                Some("evict") => {
                    step(&mut policy, &Salts::default(), op);
                    same_target(&policy, &op["target_t1_size"]);
                }
                _ => step(&mut policy, &Salts::default(), op),
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
        assert_eq!(share(keys, ratio), count, "{keys} x {ratio}");
    }
}
