//! The phases of a bench, each in batches, several at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hfbucket::l2::{L2Adapter, ObjectKey};
use tokio_util::task::AbortOnDropHandle;

use super::super::super::Stop;
use super::super::super::noise::noise;
use super::super::super::output::Output;
use super::BenchArgs;
use super::report::Phase;

/// What a batch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Store,
    LookUpCold,
    LookUpWarm,
    Load,
    Delete,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::LookUpCold => "look up, cold",
            Self::LookUpWarm => "look up, warm",
            Self::Load => "load",
            Self::Delete => "delete",
        }
    }

    fn moves_bytes(self) -> bool {
        matches!(self, Self::Store | Self::Load)
    }
}

pub(super) struct Bench {
    adapter: L2Adapter,
    /// Has stored nothing, and so has to ask.
    newcomer: L2Adapter,
    keys: Vec<ObjectKey>,
    chunk_size: usize,
    batch: usize,
    concurrency: usize,
    /// Keys that a store was begun for; always the first ones.
    begun: AtomicUsize,
    /// Something was not what it should be.
    is_wrong: AtomicBool,
}

impl Bench {
    pub(super) fn new(
        args: &BenchArgs,
        adapter: L2Adapter,
        newcomer: L2Adapter,
        keys: Vec<ObjectKey>,
    ) -> Self {
        Self {
            adapter,
            newcomer,
            keys,
            chunk_size: usize::try_from(args.chunk_size.0).unwrap_or(usize::MAX),
            batch: args.batch as usize,
            concurrency: args.concurrency as usize,
            begun: AtomicUsize::new(0),
            is_wrong: AtomicBool::new(false),
        }
    }

    /// The adapter that stores.
    pub(super) fn adapter(&self) -> &L2Adapter {
        &self.adapter
    }

    /// Keys that may be in the pool.
    pub(super) fn begun(&self) -> &[ObjectKey] {
        let begun = self.begun.load(Ordering::SeqCst).min(self.keys.len());
        self.keys.split_at(begun).0
    }

    /// Whether all keys were found, and all bytes were right.
    pub(super) fn is_verified(&self) -> bool {
        !self.is_wrong.load(Ordering::SeqCst)
    }

    pub(super) async fn run(
        self: Arc<Self>,
        keep: bool,
        output: &Output,
    ) -> Result<Vec<Phase>, Stop> {
        let mut steps = vec![Step::Store, Step::LookUpCold, Step::LookUpWarm, Step::Load];
        if !keep {
            steps.push(Step::Delete);
        }
        let mut phases = Vec::with_capacity(steps.len());
        for step in steps {
            phases.push(self.phase(step, output).await?);
        }
        self.newcomer.close().await;
        Ok(phases)
    }

    async fn phase(self: &Arc<Self>, step: Step, output: &Output) -> Result<Phase, Stop> {
        let bytes = self.keys.len() as u64 * self.chunk_size as u64;
        let bar = output.bar(bytes, step.name());
        let started = Instant::now();
        let batches = (0..self.keys.len()).step_by(self.batch).map(|from| {
            let bench = Arc::clone(self);
            async move {
                // On all cores; given up with this future.
                let work = tokio::spawn(bench.run_batch(step, from));
                AbortOnDropHandle::new(work).await?
            }
        });
        let mut done = stream::iter(batches).buffer_unordered(self.concurrency);
        let mut latencies = Vec::new();
        while let Some(latency) = done.try_next().await? {
            latencies.push(latency);
            bar.inc((self.batch * self.chunk_size) as u64);
        }
        let seconds = started.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let moved = if step.moves_bytes() { bytes } else { 0 };
        Ok(Phase::new(
            step.name(),
            self.keys.len(),
            moved,
            seconds,
            latencies,
        ))
    }

    /// Returns what the call took; making and comparing bytes is not in it.
    async fn run_batch(self: Arc<Self>, step: Step, from: usize) -> Result<Duration, Stop> {
        let to = (from + self.batch).min(self.keys.len());
        let keys = self.keys.get(from..to).unwrap_or_default();
        match step {
            Step::Store => {
                self.begun.fetch_max(to, Ordering::SeqCst);
                self.store(keys).await
            }
            Step::LookUpCold | Step::LookUpWarm => self.look_up(keys).await,
            Step::Load => self.load(keys).await,
            Step::Delete => self.delete(keys).await,
        }
    }

    async fn store(&self, keys: &[ObjectKey]) -> Result<Duration, Stop> {
        let chunks = keys.iter().map(|key| (key.clone(), self.chunk(key)));
        let chunks = chunks.collect();
        let started = Instant::now();
        let report = self.adapter.store(chunks).await;
        let took = started.elapsed();
        match report.first_error() {
            Some(error) => Err(error.clone().into()),
            None => Ok(took),
        }
    }

    /// The first time the newcomer asks the store, the second time it knows.
    async fn look_up(&self, keys: &[ObjectKey]) -> Result<Duration, Stop> {
        let started = Instant::now();
        let found = self.newcomer.lookup_and_lock(keys).await;
        let took = started.elapsed();
        if let Some((_, error)) = found.errors.first() {
            return Err(error.clone().into());
        }
        self.expect(found.hits() == keys.len());
        Ok(took)
    }

    async fn load(&self, keys: &[ObjectKey]) -> Result<Duration, Stop> {
        let mut buffers = vec![vec![0; self.chunk_size]; keys.len()];
        let started = Instant::now();
        let loaded = self.newcomer.load(keys, &mut buffers).await;
        let took = started.elapsed();
        if let Some(error) = loaded.first_error() {
            return Err(error.clone().into());
        }
        self.expect(loaded.is_ok());
        for (key, buffer) in keys.iter().zip(&buffers) {
            self.expect(self.chunk(key) == buffer);
        }
        Ok(took)
    }

    async fn delete(&self, keys: &[ObjectKey]) -> Result<Duration, Stop> {
        let started = Instant::now();
        let report = self.adapter.delete(keys).await;
        let took = started.elapsed();
        if let Some(error) = report.first_error() {
            return Err(error.clone().into());
        }
        self.expect(report.is_ok());
        Ok(took)
    }

    fn expect(&self, is_right: bool) {
        if !is_right {
            self.is_wrong.store(true, Ordering::SeqCst);
        }
    }

    fn chunk(&self, key: &ObjectKey) -> Bytes {
        noise(key.chunk_hash(), self.chunk_size)
    }
}
