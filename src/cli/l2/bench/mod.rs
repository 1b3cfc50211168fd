//! `hfbucket l2 bench`: what a pool can do, measured with chunks of its own.

mod phases;
mod report;

use std::sync::Arc;

use hfbucket::l2::{Admission, L2Adapter, ObjectKey};

use self::phases::Bench;
use self::report::Report;
use super::super::output::Output;
use super::super::size::Size;
use super::super::{Stop, cleanup};
use super::pool::{self, PoolArgs};

pub(super) const EXAMPLE: &str = "\
Random chunks are stored under a salt of their own, looked up, loaded, compared and deleted. Nothing
is evicted meanwhile, so no other key is touched; the pool needs room for the chunks.

Example:
  hfbucket l2 bench --l2-adapter @pool.json --chunks 256 --chunk-size 4MiB --batch 32";

const MODEL: &str = "hfbucket-bench";
/// World size 1, global rank 0, local world size 1, local rank 0.
const RANK: u64 = 0x0100_0100;

#[derive(Debug, clap::Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Chunks to store
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunks: u32,
    /// Bytes per chunk, such as 2MiB
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = chunk_size)]
    chunk_size: Size,
    /// Chunks per call
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Calls at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Leave the chunks in the pool
    #[arg(long)]
    keep: bool,
}

fn chunk_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if !(1..=1 << 30).contains(&size.0) {
        return Err("a chunk has 1 byte to 1GiB".into());
    }
    Ok(size)
}

pub(super) async fn run(args: &BenchArgs, output: &Output) -> Result<(), Stop> {
    let config = args.pool.config()?.without_eviction();
    let adapter = pool::open_passive(config.clone()).await?;
    if config.admission() != Admission::Soft {
        // What is there already counts before anything is sent.
        pool::until_stopped(pool::list(&adapter, output)).await?;
    }
    // The same store, seen by an adapter that knows nothing of it yet.
    let store = Arc::clone(adapter.object_store());
    let newcomer = L2Adapter::with_store(store, config.without_listings()).await?;
    let salt = format!("bench-{:016x}", rand::random::<u64>());
    let bench = Arc::new(Bench::new(
        args,
        adapter.clone(),
        newcomer,
        keys(args, &salt)?,
    ));
    output.line(format!(
        "Store: {}\n{} chunks of {} under the salt {salt}, {} per call, {} calls at a time\n",
        pool::name(&adapter),
        args.chunks,
        args.chunk_size,
        args.batch,
        args.concurrency
    ))?;
    let phases = pool::until_stopped(Arc::clone(&bench).run(args.keep, output)).await;
    clean_up(&bench, phases.is_ok(), args.keep, output).await?;
    let report = Report {
        store: pool::name(&adapter),
        salt,
        kept: args.keep,
        verified: bench.is_verified(),
        phases: phases?,
    };
    output.record(&report)?;
    output.line(report.to_text())?;
    match report.verified {
        true => Ok(()),
        false => Err(Stop::Unverified),
    }
}

fn keys(args: &BenchArgs, salt: &str) -> Result<Vec<ObjectKey>, Stop> {
    let key = |_| {
        let hash: [u8; 32] = rand::random();
        ObjectKey::new(MODEL, RANK, hash)?.with_cache_salt(salt)
    };
    Ok((0..args.chunks).map(key).collect::<Result<_, _>>()?)
}

/// Deletes what is left, unless it is meant to stay.
async fn clean_up(bench: &Bench, is_done: bool, keep: bool, output: &Output) -> Result<(), Stop> {
    // Stores that were given up go on in the background. Closing waits for them, and only then it is
    // known what was begun.
    let closed = pool::close(bench.adapter()).await;
    let begun = bench.begun();
    let Some(salt) = begun.first().map(|key| key.cache_salt().to_owned()) else {
        return closed;
    };
    if keep {
        output.note(left("Chunks stay in the pool", &salt));
        return closed;
    }
    if is_done {
        return closed;
    }
    let deleted = pool::until_stopped(async {
        closed?;
        cleanup::delete(bench.adapter(), begun).await
    });
    deleted.await.map_err(|stop| match stop {
        Stop::Failed(error) => left(&format!("{error}; chunks may be left"), &salt).into(),
        stop => {
            output.note(left("Stopped again: chunks may be left", &salt));
            stop
        }
    })
}

fn left(what: &str, salt: &str) -> String {
    format!("{what} under the salt {salt}: `hfbucket l2 evict --salt {salt}` deletes them")
}
