//! What an L2 adapter's books cost: memory per key and time per operation with 10 000 000 keys, and
//! how long it takes to recover 1 000 000 objects from a listing.
//!
//! `cargo bench --all-features --bench l2_bookkeeping [-- <keys>]`

#[path = "../tests/support/l2_listed.rs"]
mod l2_listed;

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hfbucket::l2::{Bookkeeping, L2Adapter, L2Config, ObjectKey, PolicyName};
use l2_listed::Listed;
use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAlloc, PeakMemAllocTrait};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[global_allocator]
static ALLOCATOR: &PeakMemAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Chunks of one prompt.
const BATCH: usize = 16;
const MODELS: [&str; 3] = [
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-32B",
    "deepseek-ai/DeepSeek-V3",
];

fn main() {
    // `cargo bench` passes `--bench`.
    let keys = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(10_000_000);
    println!("| policy | keys | cached | bytes per key, at most | store | touch | evict |");
    println!("|---|---|---|---|---|---|---|");
    let hour = Duration::from_secs(3600);
    for policy in [PolicyName::Lru, PolicyName::Arc, PolicyName::S3Fifo] {
        books(policy, keys, Duration::ZERO);
        books(policy, keys, hour);
    }
    let objects = keys.min(1_000_000);
    recover(objects);
}

/// The keys of a prompt: 32 bytes of hash each.
fn prompt(n: usize) -> Vec<ObjectKey> {
    let mut random = SmallRng::seed_from_u64(n as u64);
    let model = MODELS[n % MODELS.len()];
    (0..BATCH)
        .map(|_| ObjectKey::new(model, 0x0100_0100, random.random::<[u8; 32]>()).unwrap())
        .collect()
}

fn books(policy: PolicyName, keys: usize, cache_ttl: Duration) {
    let version = "0123456789abcdef".repeat(4);
    let books = Bookkeeping::new(policy, cache_ttl);
    let prompts = keys / BATCH;
    ALLOCATOR.reset_peak_memory();
    let mut storing = Duration::ZERO;
    for n in 0..prompts {
        let keys = prompt(n);
        let started = Instant::now();
        books.store(&keys, 1 << 20, Some(&version));
        storing += started.elapsed();
    }
    let peak = ALLOCATOR.get_peak_memory();
    assert_eq!(books.keys(), prompts * BATCH);

    let mut random = SmallRng::seed_from_u64(7);
    let touches = prompts.min(100_000);
    let mut touching = Duration::ZERO;
    for _ in 0..touches {
        let keys = prompt(random.random_range(0..prompts));
        let started = Instant::now();
        books.touch(&keys);
        touching += started.elapsed();
    }

    let victims = keys / 100;
    let started = Instant::now();
    let mut evicted = 0;
    while evicted < victims {
        evicted += books.evict(1000);
    }
    let evicting = started.elapsed();
    println!(
        "| {policy} | {} | {} | {:.0} | {:.0} ns | {:.0} ns | {:.0} ns |",
        books.keys() + evicted,
        if cache_ttl.is_zero() { "no" } else { "all" },
        peak as f64 / (prompts * BATCH) as f64,
        per(storing, prompts * BATCH),
        per(touching, touches * BATCH),
        per(evicting, evicted),
    );
}

fn per(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

fn recover(objects: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let config = L2Config::from_json(
            r#"{"bucket_handle": "hf://buckets/o/b/pool", "max_capacity_gb": 1e6,
                "eviction": {"eviction_policy": "LRU"}}"#,
        );
        ALLOCATOR.reset_peak_memory();
        let started = Instant::now();
        let adapter = L2Adapter::with_store(Arc::new(Listed::new(objects)), config.unwrap())
            .await
            .unwrap();
        // How long anyone else on the same thread has to wait for a turn.
        let stalls = tokio::spawn(async {
            let mut longest = Duration::ZERO;
            loop {
                let before = Instant::now();
                tokio::task::yield_now().await;
                longest = longest.max(before.elapsed());
                if before.elapsed() > Duration::from_secs(3600) {
                    return longest;
                }
                LONGEST.store(longest.as_micros() as u64, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let recovery = adapter.recovered().await.unwrap();
        stalls.abort();
        assert_eq!(recovery.recovered_keys as usize, objects);
        println!(
            "\nrecovered {objects} objects in {:.2} s on one thread, longest stall {:.1} ms, at most {:.0} bytes per key",
            started.elapsed().as_secs_f64(),
            LONGEST.load(std::sync::atomic::Ordering::Relaxed) as f64 / 1000.0,
            ALLOCATOR.get_peak_memory() as f64 / objects as f64,
        );
    });
}

static LONGEST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
