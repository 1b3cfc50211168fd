//! What the demo found, for people and for machines.

use hfbucket::local_hub::Requests;
use serde::Serialize;

use super::super::output::table;
use super::super::size::Size;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) store: String,
    pub(super) phases: Vec<Phase>,
    pub(super) lookup: Lookup,
    /// Bytes that were loaded and are what was stored.
    pub(super) verified_bytes: u64,
    /// Absent without a capacity that was filled.
    pub(super) eviction: Option<Eviction>,
    pub(super) verified: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Absent where nobody counts.
    pub(super) requests: Option<Spent>,
}

#[derive(Debug, Serialize)]
pub(super) struct Spent {
    api: u64,
    resolver: u64,
    token: u64,
    cas: u64,
}

impl Spent {
    pub(super) fn of(requests: &Requests) -> Self {
        Self {
            api: requests.api,
            resolver: requests.resolver,
            token: requests.token,
            cas: requests.cas,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Lookup {
    pub(super) chunks: usize,
    pub(super) expected_hits: usize,
    pub(super) prefix_hits: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Eviction {
    pub(super) capacity_bytes: u64,
    pub(super) watermark: f64,
    pub(super) stored_chunks: usize,
    pub(super) evicted_chunks: usize,
    /// What the adapter counts.
    pub(super) usage_bytes: u64,
    /// What the store lists.
    pub(super) listed_bytes: u64,
}

impl Eviction {
    /// Something went, enough of it, and the books are right.
    pub(super) fn holds(&self) -> bool {
        self.evicted_chunks > 0
            && self.usage_bytes == self.listed_bytes
            && self.usage_bytes <= self.limit()
    }

    fn limit(&self) -> u64 {
        (self.capacity_bytes as f64 * self.watermark) as u64
    }
}

impl Report {
    pub(super) fn to_text(&self) -> String {
        let counted = self.phases.iter().any(|phase| phase.requests.is_some());
        let mut header = vec!["phase", "chunks", "bytes", "seconds", "MB/s"];
        if counted {
            header.extend(["API", "resolver", "token", "CAS"]);
        }
        let rows: Vec<_> = self.phases.iter().map(|phase| phase.row(counted)).collect();
        let mut text = table(&header, &rows);
        text.push_str(&format!(
            "\n\nA new prompt of {} chunks: the first {} hit, as {} should.\nVerified: {} loaded, \
             byte for byte.\n",
            self.lookup.chunks,
            self.lookup.prefix_hits,
            self.lookup.expected_hits,
            Size(self.verified_bytes),
        ));
        match &self.eviction {
            Some(eviction) => text.push_str(&format!(
                "Capacity {}, watermark {}: of {} chunks stored, {} were evicted.\nUsage says {}, \
                 and the store lists {}.\n",
                Size(eviction.capacity_bytes),
                Size(eviction.limit()),
                eviction.stored_chunks,
                eviction.evicted_chunks,
                Size(eviction.usage_bytes),
                Size(eviction.listed_bytes),
            )),
            None => text.push_str("No capacity was filled, so nothing was evicted.\n"),
        }
        text.push_str(match self.verified {
            true => "\nAll verified.",
            false => "\nNOT VERIFIED: what is above is not what it should be.",
        });
        text
    }
}

impl Phase {
    fn row(&self, counted: bool) -> Vec<String> {
        let rate = match (self.bytes, self.seconds > 0.) {
            (1.., true) => format!("{:.1}", self.bytes as f64 / self.seconds / 1e6),
            _ => "-".to_owned(),
        };
        let mut row = vec![
            self.name.to_owned(),
            self.chunks.to_string(),
            Size(self.bytes).to_string(),
            format!("{:.2}", self.seconds),
            rate,
        ];
        if counted {
            let requests = self.requests.as_ref();
            let of =
                |count: fn(&Spent) -> u64| requests.map_or("-".into(), |r| count(r).to_string());
            row.extend([
                of(|r| r.api),
                of(|r| r.resolver),
                of(|r| r.token),
                of(|r| r.cas),
            ]);
        }
        row
    }
}
