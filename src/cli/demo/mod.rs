//! `hfbucket demo`: the main job, on real bytes.

mod backend;
mod phases;
mod prompts;
mod report;

use self::backend::Backend;
use self::phases::Demo;
use self::prompts::Shape;
use super::Stop;
use super::output::Output;
use super::signals;
use super::size::Size;

#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Chunks per prompt
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    chunks: u32,
    /// Bytes per chunk, such as 2MiB
    #[arg(long, default_value = "2MiB", value_parser = chunk_size)]
    chunk_size: Size,
    /// Prompts to store before the new one comes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    prompts: u32,
    /// What the cache may hold, such as 256MiB; 0 is no limit [default: half more than the prompts]
    #[arg(long)]
    capacity: Option<Size>,
    /// Another number makes other bytes
    #[arg(long, default_value_t = 42)]
    seed: u64,
    #[command(flatten)]
    place: Place,
}

/// Where the chunks go. Without any of these: a local Hub in memory, in this process.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(super) struct Place {
    /// A Hub, with the token of the environment: a private bucket is made there, and deleted at the end
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A store by URL: s3://bucket/prefix, file:///folder, memory:///
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// An adapter's JSON, as LMCache takes it; its capacity and eviction apply
    #[arg(long, value_name = "JSON")]
    l2_adapter: Option<String>,
}

fn chunk_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if !(1..=1 << 30).contains(&size.0) {
        return Err("a chunk has 1 byte to 1GiB".into());
    }
    Ok(size)
}

pub(super) async fn run(args: DemoArgs, output: &Output) -> Result<(), Stop> {
    let shape = Shape {
        seed: args.seed,
        chunks: args.chunks as usize,
        chunk_size: usize::try_from(args.chunk_size.0)?,
    };
    let prompts = u64::from(args.prompts);
    let capacity = args
        .capacity
        .unwrap_or(Size(shape.distinct_bytes(prompts) / 2 * 3));
    let stop = signals::stop()?;
    tokio::pin!(stop);
    let backend = tokio::select! {
        backend = Backend::start(&args.place, capacity) => backend?,
        () = &mut stop => return Err(Stop::Interrupted),
    };
    let outcome = tokio::select! {
        outcome = demonstrate(shape, prompts, capacity, &backend, output) => outcome,
        () = stop => Err(Stop::Interrupted),
    };
    // Whatever happened, nothing of the demo stays behind.
    let name = backend.name().to_owned();
    let cleaned = tokio::select! {
        cleaned = backend.finish() => cleaned,
        () = signals::stop()? => Err("stopped again".into()),
    };
    if let Err(Stop::Failed(error)) = &cleaned {
        let left: Box<dyn std::error::Error> = format!("left behind in {name}: {error}").into();
        output.error(&*left);
    }
    let verified = outcome?;
    if cleaned.is_err() {
        return Err(Stop::Unverified);
    }
    match verified {
        true => Ok(()),
        false => Err(Stop::Unverified),
    }
}

/// A cache that evicts while the demo still fills it would rightly miss what the demo looks up.
fn check_room(shape: Shape, prompts: u64, backend: &Backend) -> Result<(), Stop> {
    let needed = shape.distinct_bytes(prompts);
    let room = backend.room();
    if room.is_some_and(|room| needed >= room.0) {
        let room = room.unwrap_or(Size(0));
        return Err(format!(
            "the prompts need {}, and eviction starts at {room}: give more --capacity (or 0, which \
             is no limit), or fewer --prompts, --chunks or smaller chunks",
            Size(needed)
        )
        .into());
    }
    Ok(())
}

async fn demonstrate(
    shape: Shape,
    prompts: u64,
    capacity: Size,
    backend: &Backend,
    output: &Output,
) -> Result<bool, Stop> {
    check_room(shape, prompts, backend)?;
    backend.prepare().await?;
    let demo = Demo {
        shape,
        adapter: backend.adapter(),
        backend,
        output,
        prompts,
        fill_limit: capacity.0,
    };
    let report = demo.run().await?;
    output.record(&report)?;
    output.line(report.to_text())?;
    Ok(report.verified)
}
