//! The demo's phases, each measured and checked.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use hfbucket::l2::{L2Adapter, ObjectKey};
use indicatif::ProgressBar;

use super::super::Stop;
use super::super::output::Output;
use super::super::size::Size;
use super::backend::Backend;
use super::prompts::Shape;
use super::report::{Eviction, Lookup, Phase, Report, Spent};

pub(super) struct Demo<'a> {
    pub(super) shape: Shape,
    pub(super) adapter: &'a L2Adapter,
    pub(super) backend: &'a Backend,
    pub(super) output: &'a Output,
    pub(super) prompts: u64,
    /// Bytes that the demo may store to go over the watermark.
    pub(super) fill_limit: u64,
}

/// A prompt's chunks in the making: stored, or found where they are.
#[derive(Default)]
struct Filled {
    chunks: u64,
    bytes: u64,
}

impl Demo<'_> {
    pub(super) async fn run(&self) -> Result<Report, Stop> {
        self.output.line(format!(
            "Store: {}\nWorkload: {} prompts of {} chunks of {}, the first {} chunks shared\n",
            self.backend.name(),
            self.prompts,
            self.shape.chunks,
            Size(self.shape.chunk_size as u64),
            self.shape.shared(),
        ))?;
        let mut phases = Vec::new();
        let fill = self.phase("store", &mut phases, self.fill(0..self.prompts));
        fill.await?;
        let known = self.shape.shared() + (self.shape.chunks - self.shape.shared()) / 2;
        let follow_up = self.shape.follow_up(self.prompts - 1, known)?;
        // Holds the locks of the hits until they are loaded.
        let found = self
            .phase("look up", &mut phases, self.look_up(&follow_up))
            .await?;
        let hits = found.prefix_hits();
        let lookup = Lookup {
            chunks: follow_up.len(),
            expected_hits: known,
            prefix_hits: hits,
        };
        let loaded = self
            .phase("load", &mut phases, self.load(&follow_up[..hits]))
            .await?;
        drop(found);
        let eviction = match self.overfillable() {
            None => None,
            Some(capacity) => Some(self.overfill(capacity, &mut phases).await?),
        };
        let verified = lookup.prefix_hits == lookup.expected_hits
            && loaded == (hits * self.shape.chunk_size) as u64
            && eviction.as_ref().is_none_or(Eviction::holds);
        Ok(Report {
            store: self.backend.name().to_owned(),
            lookup,
            verified_bytes: loaded,
            eviction,
            phases,
            verified,
        })
    }

    /// Runs one phase, and counts its time and requests.
    async fn phase<T: Measured>(
        &self,
        name: &'static str,
        phases: &mut Vec<Phase>,
        work: impl Future<Output = Result<T, Stop>>,
    ) -> Result<T, Stop> {
        let before = self.backend.requests();
        let start = Instant::now();
        let result = work.await?;
        let seconds = start.elapsed().as_secs_f64();
        let spent = self.backend.requests().zip(before);
        let (chunks, bytes) = result.amount(self.shape.chunk_size);
        phases.push(Phase {
            name,
            chunks,
            bytes,
            seconds,
            requests: spent.map(|(now, before)| Spent::of(&now.since(&before))),
        });
        Ok(result)
    }

    /// Stores prompts as an LLM server does: looks up what is there, and stores the rest.
    async fn fill(&self, prompts: Range<u64>) -> Result<Filled, Stop> {
        let mut filled = Filled::default();
        let new = self.shape.chunks - self.shape.shared();
        let chunks = self.shape.shared() + new * usize::try_from(prompts.end - prompts.start)?;
        let bar = self.bar(chunks, "store");
        for number in prompts {
            let keys = self.shape.prompt(number)?;
            self.backend.remember(&keys);
            let found = self.adapter.lookup_and_lock(&keys).await;
            let missing: Vec<_> = keys[found.prefix_hits()..].to_vec();
            let entries = missing
                .iter()
                .map(|key| (key.clone(), self.shape.data(key)))
                .collect();
            let report = self.adapter.store(entries).await;
            if let Some(error) = report.first_error() {
                return Err(error.clone().into());
            }
            bar.inc(report.bytes_transferred);
            filled.chunks += missing.len() as u64;
            filled.bytes += report.bytes_transferred;
            drop(found);
        }
        bar.finish_and_clear();
        Ok(filled)
    }

    async fn look_up(&self, keys: &[ObjectKey]) -> Result<hfbucket::l2::Lookup, Stop> {
        let found = self.adapter.lookup_and_lock(keys).await;
        if let Some((_, error)) = found.errors.first() {
            return Err(error.clone().into());
        }
        Ok(found)
    }

    /// Loads the chunks and compares every byte; returns how many were right.
    async fn load(&self, keys: &[ObjectKey]) -> Result<u64, Stop> {
        let bar = self.bar(keys.len(), "load");
        let mut verified = 0;
        for batch in keys.chunks(8) {
            let mut buffers = vec![vec![0; self.shape.chunk_size]; batch.len()];
            let loaded = self.adapter.load(batch, &mut buffers).await;
            if let Some(error) = loaded.first_error() {
                return Err(error.clone().into());
            }
            for ((key, buffer), outcome) in batch.iter().zip(&buffers).zip(&loaded.outcomes) {
                if outcome.is_hit() && self.shape.data(key) == *buffer {
                    verified += buffer.len() as u64;
                }
            }
            bar.inc((batch.len() * self.shape.chunk_size) as u64);
        }
        bar.finish_and_clear();
        Ok(verified)
    }

    /// The capacity, if the adapter keeps one by evicting and a demo may well fill it.
    fn overfillable(&self) -> Option<u64> {
        self.backend.room()?;
        let capacity = self.adapter.usage().total_capacity_bytes;
        if capacity > self.fill_limit {
            self.output.note(format!(
                "The capacity is {}: left unfilled. Raise --capacity to fill as much.",
                Size(capacity)
            ));
            return None;
        }
        Some(capacity)
    }

    /// Goes on storing until the watermark is passed, and looks at what is left.
    async fn overfill(&self, capacity: u64, phases: &mut Vec<Phase>) -> Result<Eviction, Stop> {
        let per_prompt = (self.shape.chunks - self.shape.shared()) * self.shape.chunk_size;
        let more = capacity.div_ceil(per_prompt.max(1) as u64).max(1);
        let watermark = self.watermark();
        let used = self.adapter.usage().total_bytes_used;
        let room = (capacity as f64 * watermark) as u64;
        let prompts = (room.saturating_sub(used) / per_prompt.max(1) as u64 + 1).min(more);
        let numbers = self.prompts..self.prompts + prompts;
        self.phase("overfill", phases, self.fill(numbers)).await?;
        self.adapter.eviction_idle().await;
        let ours = self.backend.ours();
        let listed = self.listed(&ours).await?;
        let usage = self.adapter.usage();
        Ok(Eviction {
            capacity_bytes: capacity,
            watermark,
            stored_chunks: ours.len(),
            evicted_chunks: ours.len() - listed.len(),
            usage_bytes: usage.total_bytes_used,
            listed_bytes: listed.iter().map(|(_, size)| size).sum(),
        })
    }

    fn watermark(&self) -> f64 {
        let eviction = self.adapter.config().eviction();
        eviction.map_or(1.0, |eviction| eviction.trigger_watermark)
    }

    /// What the store lists of the demo's own objects.
    async fn listed(&self, ours: &[ObjectKey]) -> Result<Vec<(String, u64)>, Stop> {
        let paths = ours
            .iter()
            .map(|key| Ok(self.adapter.object_path(key)?.to_string()))
            .collect::<Result<BTreeSet<_>, hfbucket::l2::L2Error>>()?;
        let mut listed = self.backend.list().await?;
        listed.retain(|(path, _)| paths.contains(path));
        Ok(listed)
    }

    fn bar(&self, chunks: usize, message: &'static str) -> ProgressBar {
        let bytes = (chunks * self.shape.chunk_size) as u64;
        self.output.bar(bytes, message)
    }
}

/// What a phase has to show for its time: chunks and bytes.
trait Measured {
    fn amount(&self, chunk_size: usize) -> (u64, u64);
}

impl Measured for Filled {
    fn amount(&self, _: usize) -> (u64, u64) {
        (self.chunks, self.bytes)
    }
}

/// Moves no bytes.
impl Measured for hfbucket::l2::Lookup {
    fn amount(&self, _: usize) -> (u64, u64) {
        (self.prefix_hits() as u64, 0)
    }
}

/// Bytes loaded.
impl Measured for u64 {
    fn amount(&self, chunk_size: usize) -> (u64, u64) {
        (self / chunk_size.max(1) as u64, *self)
    }
}
