//! `hfbucket l2 evict`: makes room in a pool.

mod confirm;
mod policy;
mod pretend;
mod report;
mod selected;

use std::io::IsTerminal;

use hfbucket::l2::L2Config;

use self::selected::Choice;
use super::super::Stop;
use super::super::output::Output;
use super::super::size::Size;
use super::pool::PoolArgs;
use super::show::Filter;

pub(super) const EXAMPLE: &str = "\
Without a choice, the policy and the watermark of the configuration decide, as they do while an
adapter runs. Objects that are no keys are never touched. Locks are those of other processes and not
known here: use it while nothing loads from the pool, or accept misses.

Examples:
  hfbucket l2 evict --l2-adapter @pool.json --dry-run
  hfbucket l2 evict --l2-adapter @pool.json --to 0.5 --yes
  hfbucket l2 evict --l2-adapter @pool.json --salt tenant-a";

#[derive(Debug, clap::Args)]
pub(super) struct EvictArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Delete nothing; say what would go
    #[arg(long)]
    dry_run: bool,
    /// Delete the oldest until at most this share of the capacity is used, such as 0.5
    #[arg(
        long,
        value_name = "FRACTION",
        value_parser = fraction,
        conflicts_with_all = ["to_bytes", "model", "salt"]
    )]
    to: Option<f64>,
    /// Delete the oldest until at most so many bytes are used, such as 10GiB
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["model", "salt"])]
    to_bytes: Option<Size>,
    #[command(flatten)]
    filter: Filter,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("give a share of the capacity, from 0 to 1".to_owned()),
    }
}

impl EvictArgs {
    /// Whether somebody has to say yes before anything is deleted.
    fn asks(&self) -> bool {
        !self.yes && !self.dry_run
    }

    /// What is to go; `None` if the policy says.
    fn choice(&self, config: &L2Config) -> Result<Option<Choice<'_>>, Stop> {
        if let Some(share) = self.to {
            let capacity = config.max_capacity_bytes();
            if capacity == 0 {
                return Err(
                    "--to is a share of the capacity, and the configuration has none: add \
                            \"max_capacity_gb\", or use --to-bytes"
                        .into(),
                );
            }
            return Ok(Some(Choice::Oldest((capacity as f64 * share) as u64)));
        }
        if let Some(bytes) = self.to_bytes {
            return Ok(Some(Choice::Oldest(bytes.0)));
        }
        let chosen = (!self.filter.is_empty()).then_some(Choice::Keys(&self.filter));
        Ok(chosen)
    }
}

pub(super) async fn run(args: &EvictArgs, output: &Output) -> Result<(), Stop> {
    if args.asks() && !std::io::stdin().is_terminal() {
        return Err(Stop::Wrong(
            "nobody can be asked, since this is no terminal: add --yes to delete, or --dry-run to \
             see what would go"
                .to_owned(),
        ));
    }
    let config = args.pool.config()?;
    match args.choice(&config)? {
        Some(choice) => selected::run(args, config, choice, output).await,
        None => policy::run(args, config, output).await,
    }
}
