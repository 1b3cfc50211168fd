//! The pool that a command is about: its configuration, its adapter, its end.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::time::Duration;

use futures::StreamExt;
use hfbucket::l2::{L2Adapter, L2Config, Recovery};
use indicatif::ProgressBar;
use object_store::path::Path;

use super::super::Stop;
use super::super::output::Output;
use super::super::signals;
use super::super::size::Size;

/// Between two updates of a progress line.
const TICK: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct PoolArgs {
    /// The adapter's JSON, as LMCache takes it, or @FILE to read it from a file
    #[arg(
        long,
        value_name = "JSON|@FILE",
        env = "HFBUCKET_L2_ADAPTER",
        hide_env_values = true
    )]
    l2_adapter: AdapterJson,
}

/// It may hold a token, so it is never shown, and reading it never fails: clap would repeat it.
#[derive(Clone)]
struct AdapterJson(String);

impl FromStr for AdapterJson {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for AdapterJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

impl PoolArgs {
    /// The configuration as it was given.
    pub(super) fn config(&self) -> Result<L2Config, Stop> {
        let given = self.l2_adapter.0.trim();
        if let Some(file) = given.strip_prefix('@') {
            let json = std::fs::read_to_string(file)
                .map_err(|error| format!("--l2-adapter: cannot read '{file}': {error}"))?;
            return Ok(L2Config::from_json(&json)?);
        }
        if !given.starts_with('{') {
            return Err(
                "--l2-adapter is no JSON object (not shown, since it may hold a token): a file is \
                 given as @FILE"
                    .into(),
            );
        }
        Ok(L2Config::from_json(given)?)
    }
}

/// An adapter that only does what it is told: it evicts nothing and lists nothing by itself.
pub(super) async fn open_passive(config: L2Config) -> Result<L2Adapter, Stop> {
    let config = config.without_eviction().without_listings();
    Ok(L2Adapter::open(config).await?)
}

/// Works until done or told to stop, and closes the adapter either way.
pub(super) async fn with_adapter<T>(
    adapter: &L2Adapter,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    let outcome = until_stopped(work).await;
    close(adapter).await?;
    outcome
}

/// Gives the work up when this process is told to stop.
pub(super) async fn until_stopped<T>(
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    let stop = signals::stop()?;
    tokio::select! {
        outcome = work => outcome,
        () = stop => Err(Stop::Interrupted),
    }
}

/// Waits for what the adapter has begun, unless told to stop once more.
pub(super) async fn close(adapter: &L2Adapter) -> Result<(), Stop> {
    let stop = signals::stop()?;
    tokio::select! {
        () = adapter.close() => Ok(()),
        () = stop => Err(Stop::Interrupted),
    }
}

/// Lists the pool. A bucket that does not exist is an error, although an adapter takes it for an
/// empty one: whoever asks what is in it has misspelt it.
pub(super) async fn list(adapter: &L2Adapter, output: &Output) -> Result<Recovery, Stop> {
    let text = || {
        let seen = adapter.recovery();
        let rate = seen.listed_objects as f64 / seen.elapsed.as_secs_f64().max(0.001);
        format!(
            "listing: {} objects, {}, {rate:.0}/s",
            seen.listed_objects,
            Size(seen.listed_bytes)
        )
    };
    let listed = watched(&output.spinner(), text, adapter.recovered()).await?;
    if listed.listed_objects == 0 {
        check_existence(adapter).await?;
    }
    Ok(listed)
}

async fn check_existence(adapter: &L2Adapter) -> Result<(), Stop> {
    let prefix = prefix(adapter)?;
    let below = Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty());
    match adapter.object_store().list(below).next().await {
        Some(Err(error @ object_store::Error::NotFound { .. })) => {
            Err(format!("there is nothing at {}: {error}", adapter.object_store()).into())
        }
        _ => Ok(()),
    }
}

/// Below which all objects of the pool lie.
pub(super) fn prefix(adapter: &L2Adapter) -> Result<Path, Stop> {
    Ok(Path::parse(adapter.config().object_prefix())?)
}

/// The pool's name for people.
pub(super) fn name(adapter: &L2Adapter) -> String {
    let store = adapter.object_store();
    match adapter.config().object_prefix().as_str() {
        "" => store.to_string(),
        prefix => format!("{store}, below {prefix}/"),
    }
}

/// Waits for the work and says meanwhile how far it is.
pub(super) async fn watched<T>(
    line: &ProgressBar,
    text: impl Fn() -> String,
    work: impl Future<Output = T>,
) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                line.finish_and_clear();
                return done;
            }
            () = tokio::time::sleep(TICK) => line.set_message(text()),
        }
    }
}
