//! `hfbucket l2 status`: what a pool holds.

use std::collections::BTreeMap;

use hfbucket::l2::{EvictionConfig, L2Config, PolicyName, Status, UnregisteredSalts, Usage};
use serde::Serialize;

use super::super::Stop;
use super::super::output::{Output, harmless, table};
use super::super::size::Size;
use super::pool::{self, PoolArgs};

pub(super) const EXAMPLE: &str = "\
Lists the pool, and changes nothing in it.

Example:
  hfbucket l2 status --l2-adapter '{\"bucket_handle\": \"hf://buckets/my-org/kv/prod\"}'";

/// Salts that people see one by one.
const SHOWN_SALTS: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    status: Status,
    usage: Usage,
}

pub(super) async fn run(args: &StatusArgs, output: &Output) -> Result<(), Stop> {
    let config = args.pool.config()?;
    let adapter = pool::open_passive(config.clone()).await?;
    let report = pool::with_adapter(&adapter, async {
        pool::list(&adapter, output).await?;
        let mut report = Report {
            status: adapter.status(),
            usage: adapter.usage(),
        };
        report.tell_policy(&config);
        Ok(report)
    })
    .await?;
    output.record(&report)?;
    output.line(report.to_text(&config))?;
    Ok(())
}

impl Report {
    /// The adapter was opened without the policy; the pool has it all the same.
    fn tell_policy(&mut self, config: &L2Config) {
        let Some(eviction) = config.eviction() else {
            return;
        };
        self.status.eviction_policy = Some(eviction.policy.as_str());
        let salts = self.usage.bytes_by_cache_salt.iter();
        self.status.salts_over_quota = salts
            .filter(|(salt, bytes)| {
                quota(eviction, salt).is_some_and(|quota| {
                    **bytes as f64 >= eviction.trigger_watermark * quota as f64
                })
            })
            .count();
    }

    fn to_text(&self, config: &L2Config) -> String {
        let (status, usage) = (&self.status, &self.usage);
        let mut lines = vec![
            ("store", harmless(&status.store)),
            ("prefix", or_dash(&status.object_prefix)),
            ("layout", status.key_layout.to_string()),
            ("policy", policy_text(config)),
            ("capacity", capacity_text(usage)),
            ("used", used_text(usage)),
            ("objects", status.stored_object_count.to_string()),
            (
                "foreign objects",
                status.recovery.foreign_objects.to_string(),
            ),
        ];
        if config.eviction().is_some_and(has_quotas) {
            lines.push(("over quota", format!("{} salts", status.salts_over_quota)));
        }
        let lines = lines
            .iter()
            .map(|(name, value)| format!("{name:<16} {value}\n"));
        let mut text: String = lines.collect();
        if !usage.bytes_by_cache_salt.is_empty() {
            text.push('\n');
            text.push_str(&salts_text(usage, config.eviction()));
        }
        text.trim_end().to_owned()
    }
}

fn has_quotas(eviction: &EvictionConfig) -> bool {
    eviction.policy == PolicyName::IsolatedLru
}

/// The quota of a salt in bytes, if it has one.
fn quota(eviction: &EvictionConfig, salt: &str) -> Option<u64> {
    if !has_quotas(eviction) {
        return None;
    }
    let registered = eviction.salt_quotas.get(salt).copied();
    registered.or(match eviction.unregistered_salts {
        UnregisteredSalts::Evict => Some(0),
        _ => None,
    })
}

fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => harmless(text),
    }
}

fn policy_text(config: &L2Config) -> String {
    match config.eviction() {
        None => "none".to_owned(),
        Some(eviction) => format!(
            "{}, from {:.0}% on",
            eviction.policy,
            eviction.trigger_watermark * 100.
        ),
    }
}

fn capacity_text(usage: &Usage) -> String {
    match usage.total_capacity_bytes {
        0 => "no limit".to_owned(),
        bytes => sized(bytes),
    }
}

fn used_text(usage: &Usage) -> String {
    let used = sized(usage.total_bytes_used);
    match usage.total_capacity_bytes {
        0 => used,
        _ => format!("{used}, {:.1}%", usage.usage_fraction * 100.),
    }
}

fn sized(bytes: u64) -> String {
    match bytes {
        0..1024 => Size(bytes).to_string(),
        _ => format!("{} ({bytes} bytes)", Size(bytes)),
    }
}

/// The largest salts, then the rest in one line.
fn salts_text(usage: &Usage, eviction: Option<&EvictionConfig>) -> String {
    let salts = by_size(&usage.bytes_by_cache_salt);
    let share = |bytes: u64| {
        let share = bytes as f64 / usage.total_bytes_used.max(1) as f64;
        format!("{:.1}%", share * 100.)
    };
    let quotas = eviction.filter(|eviction| has_quotas(eviction));
    let row = |name: String, bytes: u64, limit: Option<u64>| {
        let mut row = vec![name, Size(bytes).to_string(), share(bytes)];
        if quotas.is_some() {
            row.push(limit.map_or("-".to_owned(), |limit| Size(limit).to_string()));
        }
        row
    };
    let (shown, others) = salts.split_at(salts.len().min(SHOWN_SALTS));
    let mut rows: Vec<_> = shown
        .iter()
        .map(|(salt, bytes)| {
            let name = match *salt {
                "" => "(no salt)".to_owned(),
                salt => harmless(salt),
            };
            row(
                name,
                *bytes,
                quotas.and_then(|eviction| quota(eviction, salt)),
            )
        })
        .collect();
    if !others.is_empty() {
        let bytes = others.iter().map(|(_, bytes)| bytes).sum();
        rows.push(row(format!("others ({} salts)", others.len()), bytes, None));
    }
    let mut header = vec!["salt", "bytes", "share"];
    if quotas.is_some() {
        header.push("quota");
    }
    table(&header, &rows)
}

/// Largest first.
fn by_size(salts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut salts: Vec<_> = salts
        .iter()
        .map(|(salt, bytes)| (salt.as_str(), *bytes))
        .collect();
    salts.sort_by(|(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
    salts
}
