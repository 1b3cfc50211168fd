//! `hfbucket l2`: a pool of KV-cache chunks, as its operators look at it and look after it.

mod bench;
mod evict;
mod listing;
mod ls;
mod pool;
mod show;
mod status;
mod verify;

use clap::Subcommand;

use super::Stop;
use super::output::Output;

#[derive(Debug, clap::Args)]
pub(super) struct L2Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what the pool holds: bytes, objects, salts, and how full it is
    #[command(after_help = status::EXAMPLE)]
    Status(status::StatusArgs),
    /// List the keys of the pool
    #[command(after_help = ls::EXAMPLE)]
    Ls(ls::LsArgs),
    /// Read the pool and check that every object is what the adapter takes it for
    #[command(after_help = verify::EXAMPLE)]
    Verify(verify::VerifyArgs),
    /// Delete keys: those that the eviction policy picks, the oldest, or those of a model or salt
    #[command(after_help = evict::EXAMPLE)]
    Evict(evict::EvictArgs),
    /// Measure the pool with chunks of its own, and delete them again
    #[command(after_help = bench::EXAMPLE)]
    Bench(bench::BenchArgs),
}

pub(super) async fn run(args: L2Args, output: &Output) -> Result<(), Stop> {
    match args.command {
        Command::Status(args) => status::run(&args, output).await,
        Command::Ls(args) => ls::run(&args, output).await,
        Command::Verify(args) => verify::run(&args, output).await,
        Command::Evict(args) => evict::run(&args, output).await,
        Command::Bench(args) => bench::run(&args, output).await,
    }
}
