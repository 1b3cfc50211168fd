//! What an adapter has done, for [`Status`](super::Status) and for the recorder of the `metrics`
//! crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tokio::time::Instant;

/// Sums since the adapter was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Keys that lookups found.
    pub lookup_hits: u64,
    /// Keys that lookups did not find, or could not ask for.
    pub lookup_misses: u64,
    /// Objects stored.
    pub stored_keys: u64,
    /// Bytes of them.
    pub stored_bytes: u64,
    /// Objects that could not be stored.
    pub failed_stores: u64,
    /// Failed uploads whose object was found in the store nevertheless.
    pub reconciled_stores: u64,
    /// Objects that did not fit, with hard admission.
    pub refused_stores: u64,
    /// Objects loaded.
    pub loaded_keys: u64,
    /// Bytes of them.
    pub loaded_bytes: u64,
    /// Loads that were no hits: not there, another size, or a failure.
    pub failed_loads: u64,
    /// Objects deleted on request.
    pub deleted_keys: u64,
    /// Objects deleted to make room.
    pub evicted_keys: u64,
    /// Bytes of them.
    pub evicted_bytes: u64,
    /// Deletes that failed, on request or to make room.
    pub failed_deletes: u64,
    /// Keys whose locks lapsed.
    pub lapsed_locks: u64,
}

/// The same while it grows. All names of the metrics are here.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// The label `pool`: which adapter of the process.
    pool: Arc<str>,
    lookup_hits: AtomicU64,
    lookup_misses: AtomicU64,
    stored_keys: AtomicU64,
    stored_bytes: AtomicU64,
    failed_stores: AtomicU64,
    reconciled_stores: AtomicU64,
    refused_stores: AtomicU64,
    loaded_keys: AtomicU64,
    loaded_bytes: AtomicU64,
    failed_loads: AtomicU64,
    deleted_keys: AtomicU64,
    evicted_keys: AtomicU64,
    evicted_bytes: AtomicU64,
    failed_deletes: AtomicU64,
    lapsed_locks: AtomicU64,
}

/// What a batch of stores came to.
#[derive(Debug, Default)]
pub(super) struct StoreSums {
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) failed: u64,
    pub(super) reconciled: u64,
    pub(super) refused: u64,
}

/// Adds to a sum here and at the recorder.
macro_rules! add {
    ($self:ident . $field:ident += $amount:expr, $name:literal $(, $label:literal => $value:literal)*) => {{
        let amount: u64 = $amount;
        if amount > 0 {
            $self.$field.fetch_add(amount, Ordering::Relaxed);
            metrics::counter!($name, "pool" => Arc::clone(&$self.pool) $(, $label => $value)*)
                .increment(amount);
        }
    }};
}

impl Stats {
    pub(super) fn new(pool: String) -> Self {
        Self {
            pool: Arc::from(pool),
            ..Self::default()
        }
    }

    pub(super) fn looked_up(&self, keys: usize, hits: usize, started: Instant) {
        let misses = keys.saturating_sub(hits) as u64;
        add!(self.lookup_hits += hits as u64, "hfbucket_l2_lookup_keys_total", "outcome" => "hit");
        add!(self.lookup_misses += misses, "hfbucket_l2_lookup_keys_total", "outcome" => "miss");
        self.took("lookup", started);
    }

    pub(super) fn stored(&self, sums: &StoreSums, started: Instant) {
        add!(self.stored_keys += sums.keys, "hfbucket_l2_store_keys_total", "outcome" => "stored");
        add!(self.failed_stores += sums.failed, "hfbucket_l2_store_keys_total", "outcome" => "failed");
        add!(self.refused_stores += sums.refused, "hfbucket_l2_store_keys_total", "outcome" => "refused");
        add!(
            self.stored_bytes += sums.bytes,
            "hfbucket_l2_stored_bytes_total"
        );
        add!(
            self.reconciled_stores += sums.reconciled,
            "hfbucket_l2_reconciled_stores_total"
        );
        self.took("store", started);
    }

    pub(super) fn loaded(&self, hits: usize, bytes: u64, failed: usize, started: Instant) {
        add!(self.loaded_keys += hits as u64, "hfbucket_l2_load_keys_total", "outcome" => "hit");
        add!(self.failed_loads += failed as u64, "hfbucket_l2_load_keys_total", "outcome" => "miss");
        add!(self.loaded_bytes += bytes, "hfbucket_l2_loaded_bytes_total");
        self.took("load", started);
    }

    pub(super) fn deleted(&self, keys: usize, failed: usize) {
        add!(self.deleted_keys += keys as u64, "hfbucket_l2_deleted_keys_total", "cause" => "request");
        add!(
            self.failed_deletes += failed as u64,
            "hfbucket_l2_failed_deletes_total"
        );
    }

    pub(super) fn evicted(&self, keys: usize, bytes: u64, failed: usize) {
        add!(self.evicted_keys += keys as u64, "hfbucket_l2_deleted_keys_total", "cause" => "eviction");
        add!(
            self.evicted_bytes += bytes,
            "hfbucket_l2_evicted_bytes_total"
        );
        add!(
            self.failed_deletes += failed as u64,
            "hfbucket_l2_failed_deletes_total"
        );
    }

    pub(super) fn lapsed(&self, keys: usize) {
        add!(
            self.lapsed_locks += keys as u64,
            "hfbucket_l2_lapsed_locks_total"
        );
    }

    /// What is counted now.
    pub(super) fn used(&self, bytes: u64, keys: usize) {
        metrics::gauge!("hfbucket_l2_used_bytes", "pool" => Arc::clone(&self.pool))
            .set(bytes as f64);
        metrics::gauge!("hfbucket_l2_tracked_keys", "pool" => Arc::clone(&self.pool))
            .set(keys as f64);
    }

    pub(super) fn took(&self, operation: &'static str, started: Instant) {
        metrics::histogram!(
            "hfbucket_l2_operation_seconds",
            "pool" => Arc::clone(&self.pool),
            "operation" => operation
        )
        .record(started.elapsed().as_secs_f64());
    }

    pub(super) fn totals(&self) -> Totals {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Totals {
            lookup_hits: read(&self.lookup_hits),
            lookup_misses: read(&self.lookup_misses),
            stored_keys: read(&self.stored_keys),
            stored_bytes: read(&self.stored_bytes),
            failed_stores: read(&self.failed_stores),
            reconciled_stores: read(&self.reconciled_stores),
            refused_stores: read(&self.refused_stores),
            loaded_keys: read(&self.loaded_keys),
            loaded_bytes: read(&self.loaded_bytes),
            failed_loads: read(&self.failed_loads),
            deleted_keys: read(&self.deleted_keys),
            evicted_keys: read(&self.evicted_keys),
            evicted_bytes: read(&self.evicted_bytes),
            failed_deletes: read(&self.failed_deletes),
            lapsed_locks: read(&self.lapsed_locks),
        }
    }
}
