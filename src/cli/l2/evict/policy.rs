//! Eviction as the configuration says.

use std::sync::Arc;

use hfbucket::l2::{EventKind, Events, L2Adapter, L2Config, Notice, PolicyName};

use super::super::super::Stop;
use super::super::super::output::Output;
use super::super::super::size::Size;
use super::super::pool;
use super::EvictArgs;
use super::confirm::confirm;
use super::pretend::Pretend;
use super::report::{Outcome, Plan};

pub(super) async fn run(args: &EvictArgs, config: L2Config, output: &Output) -> Result<(), Stop> {
    check(&config)?;
    let config = config.without_listings();
    if args.dry_run || args.asks() {
        let (plan, name) = preview(&config, output).await?;
        if args.dry_run {
            return plan.tell_dry_run(output);
        }
        if plan.objects > 0 {
            output.note(plan.first_text());
            pool::until_stopped(confirm(&plan, &name)).await?;
        }
    }
    evict(config, output).await?.tell(output)
}

/// Says what a configuration lacks with which nothing would ever be evicted.
fn check(config: &L2Config) -> Result<(), Stop> {
    let policy = config.eviction().map(|eviction| eviction.policy);
    let lacks_policy = policy.is_none_or(|policy| policy == PolicyName::Noop);
    // That policy has quotas, which can do without a capacity.
    let lacks_capacity =
        config.max_capacity_bytes() == 0 && policy != Some(PolicyName::IsolatedLru);
    let policy = "\"eviction\": {\"eviction_policy\": \"LRU\"}";
    let lacking = match (lacks_policy, lacks_capacity) {
        (false, false) => return Ok(()),
        (true, false) => policy.to_owned(),
        (false, true) => "\"max_capacity_gb\"".to_owned(),
        (true, true) => format!("\"max_capacity_gb\" and {policy}"),
    };
    Err(format!(
        "the configuration never evicts: add {lacking}, or choose what goes with --to-bytes, --model \
         or --salt"
    )
    .into())
}

/// Evicts from a store that only pretends to delete, so that the policy itself says what would go.
async fn preview(config: &L2Config, output: &Output) -> Result<(Plan, String), Stop> {
    let passive = pool::open_passive(config.clone()).await?;
    let store = Arc::new(Pretend::new(passive.object_store()));
    let name = pool::name(&passive);
    pool::close(&passive).await?;
    let adapter = L2Adapter::with_store(store, config.clone()).await?;
    let plan = pool::with_adapter(&adapter, async {
        let mut plan = Plan::default();
        let mut events = adapter.events();
        let evict = async {
            pool::list(&adapter, output).await?;
            adapter.evict().await;
            Ok::<_, Stop>(())
        };
        tokio::pin!(evict);
        loop {
            tokio::select! {
                biased;
                Some(notice) = events.next() => note(&notice, &mut plan),
                evicted = &mut evict => break evicted?,
            }
        }
        drain(&mut events, &mut plan);
        // Events may have been missed, totals miss nothing.
        let totals = adapter.status().totals;
        (plan.objects, plan.bytes) = (totals.evicted_keys, totals.evicted_bytes);
        Ok(plan)
    })
    .await?;
    Ok((plan, name))
}

fn drain(events: &mut Events, plan: &mut Plan) {
    while let Some(notice) = events.try_next() {
        note(&notice, plan);
    }
}

fn note(notice: &Notice, plan: &mut Plan) {
    let Notice::Event(event) = notice else {
        return;
    };
    if event.kind == EventKind::Evicted {
        for entry in &event.entries {
            plan.name(&entry.key, entry.bytes);
        }
    }
}

async fn evict(config: L2Config, output: &Output) -> Result<Outcome, Stop> {
    let watermark = config
        .eviction()
        .map_or(1.0, |eviction| eviction.trigger_watermark);
    let adapter = L2Adapter::open(config).await?;
    pool::with_adapter(&adapter, async {
        pool::list(&adapter, output).await?;
        let text = || {
            let totals = adapter.status().totals;
            let (keys, bytes) = (totals.evicted_keys, totals.evicted_bytes);
            format!("evicting: {keys} objects, {}", Size(bytes))
        };
        pool::watched(&output.spinner(), text, adapter.evict()).await;
        Ok(outcome(&adapter, watermark))
    })
    .await
}

fn outcome(adapter: &L2Adapter, watermark: f64) -> Outcome {
    let (status, usage) = (adapter.status(), adapter.usage());
    let is_full = usage.total_capacity_bytes > 0 && usage.usage_fraction >= watermark;
    Outcome {
        deleted: status.totals.evicted_keys,
        deleted_bytes: status.totals.evicted_bytes,
        failed: status.totals.failed_deletes,
        used_bytes: usage.total_bytes_used,
        done: !is_full && status.salts_over_quota == 0,
        ..Outcome::default()
    }
}
