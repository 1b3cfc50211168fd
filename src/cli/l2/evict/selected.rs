//! Eviction past the policy: the oldest keys, or those of a model or salt.

use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};

use super::super::super::Stop;
use super::super::super::output::Output;
use super::super::listing::{self, Object};
use super::super::pool;
use super::super::show::Filter;
use super::EvictArgs;
use super::confirm::confirm;
use super::report::{FIRST, Outcome, Plan};

/// What one request of most stores takes.
const PER_DELETE: usize = 1000;

/// Which keys go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice<'a> {
    /// The oldest, until at most so many bytes are left.
    Oldest(u64),
    /// All of these.
    Keys(&'a Filter),
}

pub(super) async fn run(
    args: &EvictArgs,
    config: L2Config,
    choice: Choice<'_>,
    output: &Output,
) -> Result<(), Stop> {
    let adapter = pool::open_passive(config).await?;
    pool::with_adapter(&adapter, async {
        let (victims, used) = choose(&adapter, choice, output).await?;
        let plan = plan(&adapter, &victims)?;
        if args.dry_run {
            return plan.tell_dry_run(output);
        }
        if args.asks() && plan.objects > 0 {
            output.note(plan.first_text());
            confirm(&plan, &pool::name(&adapter)).await?;
        }
        let mut outcome = delete(&adapter, &victims, &plan, output).await?;
        outcome.used_bytes = used.saturating_sub(outcome.deleted_bytes);
        outcome.done = outcome.deleted == plan.objects;
        outcome.tell(output)
    })
    .await
}

/// The victims, oldest first, and the bytes of all keys of the pool.
async fn choose(
    adapter: &L2Adapter,
    choice: Choice<'_>,
    output: &Output,
) -> Result<(Vec<Object>, u64), Stop> {
    let wanted = |key: &ObjectKey| match choice {
        Choice::Oldest(_) => true,
        Choice::Keys(filter) => filter.takes(key),
    };
    let (mut objects, used) = listing::list(adapter, output, wanted).await?;
    objects.sort_unstable();
    if let Choice::Oldest(target) = choice {
        objects.truncate(to_reach(target, used, &objects));
    }
    Ok((objects, used))
}

/// How many of the oldest must go.
fn to_reach(target: u64, used: u64, oldest_first: &[Object]) -> usize {
    let mut left = used;
    let mut going = 0;
    for object in oldest_first {
        if left <= target {
            break;
        }
        left = left.saturating_sub(object.size);
        going += 1;
    }
    going
}

fn plan(adapter: &L2Adapter, victims: &[Object]) -> Result<Plan, Stop> {
    let mut plan = Plan::default();
    for object in victims.iter().take(FIRST) {
        plan.name(&object.key(adapter)?, object.size);
    }
    plan.objects = victims.len() as u64;
    plan.bytes = victims.iter().map(|object| object.size).sum();
    Ok(plan)
}

async fn delete(
    adapter: &L2Adapter,
    victims: &[Object],
    plan: &Plan,
    output: &Output,
) -> Result<Outcome, Stop> {
    let bar = output.bar(plan.bytes, "delete");
    let mut outcome = Outcome::default();
    for batch in victims.chunks(PER_DELETE) {
        let keys: Result<Vec<_>, _> = batch.iter().map(|object| object.key(adapter)).collect();
        let report = adapter.delete(&keys?).await;
        for (object, result) in batch.iter().zip(&report.outcomes) {
            outcome.count(result, object.size);
        }
        bar.inc(batch.iter().map(|object| object.size).sum());
    }
    bar.finish_and_clear();
    Ok(outcome)
}
