//! Which policy resists scans: hit ratios on a Zipf trace, without scans and with.
//!
//! `cargo test --all-features --lib hit_ratios -- --nocapture` prints the table that
//! `BENCHMARKS.md` has.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::slru::Slru;
use super::{Adaptive, Lru, Placed, Policy, S3Fifo, Scope, Visit, share};
use crate::l2::index::{KeyId, SaltId};

const KEYS: u32 = 20_000;
const REQUESTS: usize = 120_000;
const SCAN_EVERY: usize = 5_000;
const SCAN: u32 = 2_000;

/// Requests for keys, a power law; `scans` puts runs of keys between that are never asked for again.
fn trace(exponent: f64, scans: bool) -> Vec<u32> {
    let mut cumulated: Vec<f64> = Vec::with_capacity(KEYS as usize);
    for rank in 1..=KEYS {
        let before = cumulated.last().copied().unwrap_or(0.0);
        cumulated.push(before + f64::from(rank).powf(-exponent));
    }
    let total = cumulated.last().copied().unwrap_or(1.0);
    let mut random = SmallRng::seed_from_u64(1);
    let mut fresh = KEYS;
    let mut requests = Vec::new();
    for n in 0..REQUESTS {
        if scans && n % SCAN_EVERY == 0 {
            requests.extend(fresh..fresh + SCAN);
            fresh += SCAN;
        }
        let at = random.random::<f64>() * total;
        requests.push(cumulated.partition_point(|sum| *sum < at) as u32);
    }
    requests
}

/// The share of the requests for keys that are asked for more than once which find their key, in
/// percent; a tenth is evicted at a time.
fn hit_ratio(policy: &mut dyn Policy, trace: &[u32], capacity: usize) -> f64 {
    let (mut hits, mut asked) = (0usize, 0usize);
    let mut stored = std::collections::HashSet::new();
    for key in trace {
        let id = KeyId(*key);
        let counts = *key < KEYS;
        asked += usize::from(counts);
        if stored.contains(&id) {
            hits += usize::from(counts);
            policy.touched(&[id]);
            continue;
        }
        stored.insert(id);
        let salt = SaltId(0);
        policy.created(&[Placed { key: id, salt }]);
        while policy.len(Scope::All) >= capacity {
            let mut left = share(policy.len(Scope::All) as u64, 0.1);
            let selection = policy.select(Scope::All, &mut |_| {
                let take = left > 0;
                left = left.saturating_sub(1);
                if take { Visit::Take } else { Visit::Stop }
            });
            policy.removed(&selection.victims);
            for victim in &selection.victims {
                stored.remove(victim);
            }
        }
    }
    100.0 * hits as f64 / asked as f64
}

#[test]
fn hit_ratios() {
    println!("| exponent | capacity | scans | LRU | ARC | SLRU | S3-FIFO |");
    println!("|---|---|---|---|---|---|---|");
    for exponent in [0.7, 1.0] {
        for capacity in [200, 2000] {
            for scans in [false, true] {
                let trace = trace(exponent, scans);
                let mut policies: [Box<dyn Policy>; 4] = [
                    Box::new(Lru::default()),
                    Box::new(Adaptive::default()),
                    Box::new(Slru::default()),
                    Box::new(S3Fifo::default()),
                ];
                let [lru, arc, slru, s3_fifo] = policies
                    .each_mut()
                    .map(|policy| hit_ratio(policy.as_mut(), &trace, capacity));
                println!(
                    "| {exponent} | {:.0} % | {} | {lru:.1} % | {arc:.1} % | {slru:.1} % | {s3_fifo:.1} % |",
                    100.0 * capacity as f64 / f64::from(KEYS),
                    if scans { "yes" } else { "no" },
                );
                assert!(s3_fifo > lru, "{s3_fifo} {lru}");
                if scans {
                    assert!(s3_fifo >= slru, "{s3_fifo} {slru}");
                }
            }
        }
    }
}
