//! `hfbucket l2 ls`: the keys of a pool.

use hfbucket::l2::{L2Adapter, MAX_PAGE_SIZE};

use super::super::Stop;
use super::super::output::Output;
use super::pool::{self, PoolArgs};
use super::show::{Filter, KeyRecord, KeyTable};

pub(super) const EXAMPLE: &str = "\
One key per line, in no particular order; objects that are no keys are left out. With --json one
JSON object per line.

Example, the bytes per model:
  hfbucket l2 ls --l2-adapter @pool.json --json | jq -r '[.model_name, .size] | @tsv'";

#[derive(Debug, clap::Args)]
pub(super) struct LsArgs {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    filter: Filter,
    /// Stop after so many keys
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub(super) async fn run(args: &LsArgs, output: &Output) -> Result<(), Stop> {
    let adapter = pool::open_passive(args.pool.config()?).await?;
    pool::with_adapter(&adapter, async {
        pool::list(&adapter, output).await?;
        print_all(&adapter, args, output).await
    })
    .await
}

async fn print_all(adapter: &L2Adapter, args: &LsArgs, output: &Output) -> Result<(), Stop> {
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut table = KeyTable::default();
    let mut cursor = None;
    while left > 0 {
        let page = adapter
            .list_keys(
                args.filter.model.as_deref(),
                MAX_PAGE_SIZE,
                cursor.as_deref(),
            )
            .await?;
        let chosen = page.entries.into_iter();
        let records: Vec<KeyRecord> = chosen
            .filter(|entry| args.filter.takes(&entry.key))
            .take(left)
            .map(KeyRecord::from)
            .collect();
        left -= records.len();
        output.records(&records)?;
        if !output.is_json() {
            output.lines(&table.lines(&records))?;
        }
        cursor = page.next_page_token;
        if cursor.is_none() {
            break;
        }
    }
    Ok(())
}
