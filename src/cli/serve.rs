//! `hfbucket serve`: a local Hub as a process.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use hfbucket::local_hub::{LocalHub, Plan};
use serde::Serialize;
use tempfile::TempDir;

use super::Stop;
use super::output::Output;
use super::signals;

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Keep everything in this folder, over restarts; without it, in memory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Port of the Hub's API; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Address to listen on; any but loopback opens the hub to whoever can reach it
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Enforce the rate limits of a plan
    #[arg(long, value_enum)]
    plan: Option<PlanName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PlanName {
    Anonymous,
    Free,
    Pro,
    Team,
    Enterprise,
    EnterprisePlus,
}

impl From<PlanName> for Plan {
    fn from(name: PlanName) -> Self {
        match name {
            PlanName::Anonymous => Self::Anonymous,
            PlanName::Free => Self::Free,
            PlanName::Pro => Self::Pro,
            PlanName::Team => Self::Team,
            PlanName::Enterprise => Self::Enterprise,
            PlanName::EnterprisePlus => Self::EnterprisePlus,
        }
    }
}

#[derive(Debug, Serialize)]
struct Started<'a> {
    endpoint: &'a str,
    token: &'a str,
    xet_cache: &'a std::path::Path,
}

pub(super) async fn run(args: ServeArgs, output: &Output) -> Result<(), Stop> {
    // hf-xet remembers by address what a server holds; a server that starts empty on the same port
    // must not meet the memory of an earlier one.
    let cache = TempDir::with_prefix("hfbucket-xet-")?;
    let mut builder = LocalHub::builder()
        .with_host(args.host)
        .with_port(args.port);
    if let Some(dir) = &args.data_dir {
        builder = builder.data_dir(dir);
    }
    if let Some(plan) = args.plan {
        builder = builder.with_plan(plan.into());
    }
    if !args.host.is_loopback() {
        output.note(format!(
            "warning: listening on {} over plain http; whoever can reach it may write, since the token is \
             the same for every local Hub",
            args.host
        ));
    }
    let stop = signals::stop()?;
    let hub = builder.start().await?;
    output.record(&Started {
        endpoint: hub.endpoint(),
        token: hub.token(),
        xet_cache: cache.path(),
    })?;
    output.line(format!("Hub     {}", hub.endpoint()))?;
    output.line(format!("token   {}", hub.token()))?;
    output.line("")?;
    output.line(format!("export HF_ENDPOINT={}", hub.endpoint()))?;
    output.line(format!("export HF_TOKEN={}", hub.token()))?;
    output.line(format!("export HF_XET_CACHE={}", cache.path().display()))?;
    output.line("")?;
    output.line("Ctrl-C stops it.")?;
    stop.await;
    output.note("stopping");
    hub.shutdown().await;
    Ok(())
}
