//! What a bench measured.

use std::time::Duration;

use serde::Serialize;

use super::super::super::output::table;
use super::super::super::size::Size;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) store: String,
    /// Under which the chunks are, or were.
    pub(super) salt: String,
    pub(super) kept: bool,
    pub(super) phases: Vec<Phase>,
    pub(super) verified: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Phase {
    name: &'static str,
    keys: usize,
    bytes: u64,
    seconds: f64,
    keys_per_second: f64,
    /// Millions of bytes; null where none are moved.
    mb_per_second: Option<f64>,
    /// Of a batch.
    p50_ms: f64,
    p99_ms: f64,
}

impl Phase {
    pub(super) fn new(
        name: &'static str,
        keys: usize,
        bytes: u64,
        seconds: f64,
        mut latencies: Vec<Duration>,
    ) -> Self {
        latencies.sort_unstable();
        // A clock may not see the fastest phases move.
        let per_second = |amount: f64| amount / seconds.max(1e-9);
        Self {
            name,
            keys,
            bytes,
            seconds,
            keys_per_second: per_second(keys as f64),
            mb_per_second: (bytes > 0).then(|| per_second(bytes as f64 / 1e6)),
            p50_ms: percentile(&latencies, 50),
            p99_ms: percentile(&latencies, 99),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            self.keys.to_string(),
            Size(self.bytes).to_string(),
            format!("{:.2}", self.seconds),
            self.mb_per_second
                .map_or("-".to_owned(), |rate| format!("{rate:.1}")),
            format!("{:.0}", self.keys_per_second),
            format!("{:.1}", self.p50_ms),
            format!("{:.1}", self.p99_ms),
        ]
    }
}

/// Milliseconds below or at which so many per cent are: one of them, by nearest rank.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    let found = sorted.get(rank - 1).copied().unwrap_or_default();
    found.as_secs_f64() * 1e3
}

impl Report {
    pub(super) fn to_text(&self) -> String {
        let header = [
            "phase",
            "keys",
            "bytes",
            "seconds",
            "MB/s",
            "keys/s",
            "p50 ms/call",
            "p99 ms/call",
        ];
        let rows: Vec<_> = self.phases.iter().map(Phase::row).collect();
        let mut text = table(&header, &rows);
        text.push_str(match self.verified {
            true => "\n\nAll keys were found, and every byte is right.",
            false => "\n\nNOT VERIFIED: keys were missing, or bytes were wrong.",
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), 100.);
        assert_eq!(percentile(&sorted, 99), 198.);
        assert_eq!(percentile(&sorted[..1], 99), 1.);
        assert_eq!(percentile(&[], 50), 0.);
    }

    #[test]
    fn rates_are_per_second() {
        let phase = Phase::new("store", 10, 5_000_000, 2., vec![Duration::from_millis(7)]);
        assert_eq!(phase.keys_per_second, 5.);
        assert_eq!(phase.mb_per_second, Some(2.5));
        let looked_up = Phase::new("look up", 10, 0, 2., Vec::new());
        assert_eq!(looked_up.mb_per_second, None);
    }
}
