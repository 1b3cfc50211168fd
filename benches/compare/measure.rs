//! Time, Hub calls and peak memory of a piece of work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAlloc, PeakMemAllocTrait};

use crate::hub::Hub;

static ALLOCATOR: &PeakMemAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counts all but what is only reserved: to merge the shards of a commit, hf-xet allocates three
/// buffers of this very size and writes a few kilobytes into them, so the system never provides the
/// rest.
struct Used;

const RESERVED: usize = 64 << 20;

#[global_allocator]
static GLOBAL: Used = Used;

// SAFETY: each block goes to the allocator that its size names, both when it comes and when it goes;
// `realloc` and `alloc_zeroed` are the trait's own, made of these two.
unsafe impl GlobalAlloc for Used {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match layout.size() {
                RESERVED => System.alloc(layout),
                _ => ALLOCATOR.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe {
            match layout.size() {
                RESERVED => System.dealloc(block, layout),
                _ => ALLOCATOR.dealloc(block, layout),
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub time: Duration,
    pub calls: u64,
    /// Bytes allocated beyond what was allocated before.
    pub peak: usize,
}

pub async fn measure<T>(hub: &Hub, work: impl Future<Output = T>) -> (T, Figures) {
    let calls = hub.calls();
    ALLOCATOR.reset_peak_memory();
    let started = Instant::now();
    let result = work.await;
    let time = started.elapsed();
    let figures = Figures {
        time,
        calls: hub.calls() - calls,
        peak: ALLOCATOR.get_peak_memory(),
    };
    (result, figures)
}

pub fn median(figures: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = figures.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn megabytes_per_second(bytes: f64, figures: &[Figures]) -> String {
    if figures.is_empty() {
        return "–".to_owned();
    }
    let seconds = median(figures, |one| one.time.as_secs_f64());
    format!("{:.0} MB/s", bytes / seconds / 1e6)
}

pub fn per_second(count: usize, figures: &[Figures]) -> String {
    if figures.is_empty() {
        return "–".to_owned();
    }
    let seconds = median(figures, |one| one.time.as_secs_f64());
    format!("{:.0}/s", count as f64 / seconds)
}

pub fn calls(figures: &[Figures]) -> String {
    if figures.is_empty() {
        return "–".to_owned();
    }
    format!("{:.0}", median(figures, |one| one.calls as f64))
}

pub fn peak(figures: &[Figures]) -> String {
    if figures.is_empty() {
        return "–".to_owned();
    }
    format!("{:.0} MB", median(figures, |one| one.peak as f64) / 1e6)
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        // splitmix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        out.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    out.truncate(len);
    Bytes::from(out)
}

/// A check that costs little beside a transfer.
pub fn sum(data: &[u8]) -> u64 {
    data.chunks_exact(8)
        .filter_map(|word| <[u8; 8]>::try_from(word).ok())
        .fold(data.len() as u64, |sum, word| {
            sum.wrapping_add(u64::from_le_bytes(word) & 0xFFFF_FFFF)
        })
}
