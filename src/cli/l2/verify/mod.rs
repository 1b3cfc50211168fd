//! `hfbucket l2 verify`: reads a pool and compares.

mod check;
mod finding;
mod report;
mod sample;

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use hfbucket::l2::{KeyEntry, L2Adapter, MAX_PAGE_SIZE};
use indicatif::ProgressBar;
use tokio_util::task::AbortOnDropHandle;

use self::check::Checker;
use self::finding::{Finding, Kind};
use self::report::{Report, SHOWN, Told};
use self::sample::Sample;
use super::super::Stop;
use super::super::output::Output;
use super::listing;
use super::pool::{self, PoolArgs};

pub(super) const EXAMPLE: &str = "\
For each key that is read: the store has it with the listed size, a lookup finds it, a load fills a
buffer with it, and, where the store names its versions, a second read of that version gives the same
bytes. If not, it is named and the exit code is 1.

Also named, but no failures: objects that are no keys, zero-length objects (lookups call them misses),
names that are longer than --max-name, and keys that went or were replaced meanwhile.

Example:
  hfbucket l2 verify --l2-adapter @pool.json --sample 5000 --seed 1";

#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Read so many keys, chosen at random
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = sample_size,
        conflicts_with = "all"
    )]
    sample: usize,
    /// Read every key
    #[arg(long)]
    all: bool,
    /// Chooses the same keys of the same pool again [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Bytes beyond which an encoded name is told; most file systems take 255
    #[arg(long, value_name = "BYTES", default_value_t = 255)]
    max_name: usize,
}

/// All of them are kept in memory.
fn sample_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=10_000_000).contains(&number) => Ok(number),
        _ => Err("give a number from 1 to 10000000, or --all".to_owned()),
    }
}

pub(super) async fn run(args: &VerifyArgs, output: &Output) -> Result<(), Stop> {
    let adapter = pool::open_passive(args.pool.config()?).await?;
    pool::with_adapter(&adapter, async {
        let recovery = pool::list(&adapter, output).await?;
        let mut verify = Verify::new(&adapter, args, output);
        verify.tell_foreign(recovery.foreign_objects).await?;
        let sample = verify.look_over().await?;
        verify.read(sample).await?;
        verify.finish()
    })
    .await
}

struct Verify<'a> {
    adapter: &'a L2Adapter,
    args: &'a VerifyArgs,
    output: &'a Output,
    report: Report,
    told: Told,
    started: Instant,
}

impl<'a> Verify<'a> {
    fn new(adapter: &'a L2Adapter, args: &'a VerifyArgs, output: &'a Output) -> Self {
        let seed = (!args.all).then(|| args.seed.unwrap_or_else(|| rand::random::<u32>().into()));
        Self {
            adapter,
            args,
            output,
            report: Report::new(seed),
            told: Told::default(),
            started: Instant::now(),
        }
    }

    /// The first few by name; the adapter has only counted them.
    async fn tell_foreign(&mut self, count: u64) -> Result<(), Stop> {
        if count == 0 {
            return Ok(());
        }
        let first = listing::foreign(self.adapter, SHOWN).await?;
        let named = first.len() as u64;
        for meta in first {
            let detail = format!("{} bytes; no key in this layout, left alone", meta.size);
            self.tell(Finding::new(Kind::Foreign, &meta.location, detail))?;
        }
        self.report
            .count(Kind::Foreign, count.saturating_sub(named));
        Ok(())
    }

    /// Looks at the keys without reading, and chooses which to read; `None` for all.
    async fn look_over(&mut self) -> Result<Option<Vec<KeyEntry>>, Stop> {
        let mut sample = self
            .report
            .seed
            .map(|seed| Sample::new(self.args.sample, seed));
        let mut entries = entries(self.adapter);
        while let Some(entry) = entries.try_next().await? {
            self.report.listed_keys += 1;
            self.report.listed_bytes += entry.size;
            self.tell_oddities(&entry)?;
            if let Some(sample) = &mut sample {
                sample.offer(entry);
            }
        }
        Ok(sample.map(Sample::finish))
    }

    fn tell_oddities(&mut self, entry: &KeyEntry) -> Result<(), Stop> {
        let path = self.adapter.object_path(&entry.key)?;
        let name = path.filename().map_or(0, str::len);
        if entry.size == 0 {
            let detail = "lookups call it a miss".to_owned();
            self.tell(Finding::new(Kind::ZeroLength, &path, detail).of(&entry.key))?;
        }
        if name > self.args.max_name {
            let detail = format!("{name} bytes");
            self.tell(Finding::new(Kind::LongName, &path, detail).of(&entry.key))?;
        }
        Ok(())
    }

    async fn read(&mut self, sample: Option<Vec<KeyEntry>>) -> Result<(), Stop> {
        let bytes = match &sample {
            Some(sample) => sample.iter().map(|entry| entry.size).sum(),
            None => self.report.listed_bytes,
        };
        let bar = self.output.bar(bytes, "verify");
        let read = self.read_all(sample, &bar).await;
        bar.finish_and_clear();
        read
    }

    async fn read_all(
        &mut self,
        sample: Option<Vec<KeyEntry>>,
        bar: &ProgressBar,
    ) -> Result<(), Stop> {
        let adapter = self.adapter.clone();
        let at_once = adapter.config().num_workers();
        let checker = Arc::new(Checker::new(adapter));
        let chosen = match sample {
            Some(sample) => stream::iter(sample.into_iter().map(Ok)).boxed(),
            None => entries(self.adapter),
        };
        let checks = chosen.map_ok(|entry| {
            let size = entry.size;
            // On all cores: comparing bytes is work.
            let check = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&checker).check(entry)));
            async move { Ok((size, check.await??)) }
        });
        let mut checks = checks.try_buffer_unordered(at_once);
        while let Some((size, finding)) = checks.try_next().await? {
            self.report.read_keys += 1;
            self.report.read_bytes += size;
            bar.inc(size);
            if let Some(finding) = finding {
                self.tell(finding)?;
            }
        }
        Ok(())
    }

    /// Machines learn of a finding now, people at the end.
    fn tell(&mut self, finding: Finding) -> Result<(), Stop> {
        self.report.count(finding.kind, 1);
        self.output.record(&finding)?;
        self.told.keep(finding);
        Ok(())
    }

    fn finish(mut self) -> Result<(), Stop> {
        self.report.seconds = self.started.elapsed().as_secs_f64();
        self.output.record(&self.report)?;
        self.output.line(self.report.to_text(&self.told))?;
        match self.report.verified {
            true => Ok(()),
            false => Err(Stop::Unverified),
        }
    }
}

/// All keys that the adapter counts.
fn entries(adapter: &L2Adapter) -> BoxStream<'_, Result<KeyEntry, Stop>> {
    let pages = stream::try_unfold(
        Some(None),
        move |cursor: Option<Option<String>>| async move {
            let Some(cursor) = cursor else {
                return Ok(None);
            };
            let page = adapter
                .list_keys(None, MAX_PAGE_SIZE, cursor.as_deref())
                .await?;
            let entries = stream::iter(page.entries.into_iter().map(Ok));
            let next = page.next_page_token.map(Some);
            Ok::<_, Stop>(Some((entries, next)))
        },
    );
    pages.try_flatten().boxed()
}
