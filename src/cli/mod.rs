//! Arguments, and what they lead to.

mod cleanup;
mod demo;
mod l2;
mod noise;
mod output;
mod serve;
mod signals;
mod size;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use self::output::Output;

/// Hugging Face Storage Buckets, and a KV-cache tier over any object store.
#[derive(Debug, Parser)]
#[command(name = "hfbucket", version, about, max_term_width = 100)]
struct Args {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Print JSON for machines instead of tables
    #[arg(long, global = true)]
    json: bool,
    /// Print errors only
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Store, look up, load and evict KV-cache chunks, and verify every byte
    Demo(demo::DemoArgs),
    /// Look at a pool of KV-cache chunks, verify it, make room in it, measure it
    L2(l2::L2Args),
    /// Run a local Hub with the bucket API, for tests without a network
    Serve(serve::ServeArgs),
}

/// Why a command ended early.
#[derive(Debug)]
enum Stop {
    /// Something failed; the message is for people.
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// The arguments do not go together; the message is for people.
    Wrong(String),
    /// Something did not verify, and the report has said what.
    Unverified,
    /// Ctrl-C.
    Interrupted,
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Exit codes: 0 done, 1 failed or not verified, 2 wrong arguments, 130 interrupted.
pub(crate) fn run() -> ExitCode {
    let args = Args::try_parse().unwrap_or_else(|error| without_json(error).exit());
    let output = Output::new(args.output.json, args.output.quiet);
    output::log_to_stderr();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            output.error(&error);
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        match args.command {
            Command::Demo(args) => demo::run(args, &output).await,
            Command::L2(args) => l2::run(args, &output).await,
            Command::Serve(args) => serve::run(args, &output).await,
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(error)) if output::is_reader_gone(&*error) => ExitCode::SUCCESS,
        Err(Stop::Failed(error)) => {
            output.error(&*error);
            ExitCode::FAILURE
        }
        Err(Stop::Wrong(message)) => {
            output.error(&*Box::<dyn std::error::Error>::from(message));
            ExitCode::from(2)
        }
        Err(Stop::Unverified) => ExitCode::FAILURE,
        Err(Stop::Interrupted) => ExitCode::from(130),
    }
}

/// An adapter's JSON in the wrong place would be repeated by clap, with the token it may hold.
fn without_json(error: clap::Error) -> clap::Error {
    let is_json = |(_, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(text) => text.contains('{'),
        ContextValue::Strings(texts) => texts.iter().any(|text| text.contains('{')),
        _ => false,
    };
    if !error.context().any(is_json) {
        return error;
    }
    Args::command().error(
        ErrorKind::UnknownArgument,
        "an argument that looks like JSON is in the wrong place (not shown, since it may hold a \
         token): an adapter's configuration follows --l2-adapter",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
