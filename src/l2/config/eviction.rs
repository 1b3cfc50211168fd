//! The `eviction` block of a configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::ConfigError;
use super::fields::Fields;

/// When and how keys are evicted.
///
/// The first three fields are LMCache's; the others go beyond it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EvictionConfig {
    /// `eviction_policy`, required.
    pub policy: PolicyName,
    /// `trigger_watermark`, default 0.8: the share of the capacity, or of a salt's quota, at which
    /// eviction starts (reaching it is enough). More than 0 and at most 1, else opening fails.
    pub trigger_watermark: f64,
    /// `eviction_ratio`, default 0.2: the share that one round takes, at least one key. More than 0,
    /// else opening fails; more than 1 is 1.
    pub eviction_ratio: f64,
    /// `eviction_unit`, default `keys`: what the ratio is a share of.
    pub eviction_unit: EvictionUnit,
    /// `salt_quotas_gb`, for `IsolatedLRU`: GiB by salt, kept in bytes, rounded down.
    pub salt_quotas: BTreeMap<String, u64>,
    /// `unregistered_salts`, for `IsolatedLRU`, default `keep`: what becomes of salts without a
    /// quota.
    pub unregistered_salts: UnregisteredSalts,
}

/// The eviction policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyName {
    /// The least recently used key goes first.
    Lru,
    /// Adaptive replacement: recency and frequency, with ghosts.
    Arc,
    /// One LRU per salt, within its quota.
    IsolatedLru,
    /// New keys must be used once to displace older ones: a scan passes through. Beyond LMCache.
    S3Fifo,
    /// Nothing is evicted.
    Noop,
}

/// What an eviction ratio is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum EvictionUnit {
    /// Of the number of keys, as in LMCache: with keys of very different sizes a round may free
    /// little, and more of them follow.
    #[default]
    Keys,
    /// Of their bytes.
    Bytes,
}

/// What becomes of salts without a quota under `IsolatedLRU`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum UnregisteredSalts {
    /// They have no limit of their own, and share what the capacity leaves.
    #[default]
    Keep,
    /// Their quota is 0, as in LMCache: whatever they store is evicted at once.
    Evict,
}

impl PolicyName {
    /// The name as LMCache spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Arc => "ARC",
            Self::IsolatedLru => "IsolatedLRU",
            Self::S3Fifo => "S3-FIFO",
            Self::Noop => "noop",
        }
    }

    fn read(name: &str) -> Option<Self> {
        [
            Self::Lru,
            Self::Arc,
            Self::IsolatedLru,
            Self::S3Fifo,
            Self::Noop,
        ]
        .into_iter()
        .find(|policy| policy.as_str() == name)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const POLICIES: &str = "\"LRU\", \"ARC\", \"IsolatedLRU\", \"S3-FIFO\" or \"noop\"";

impl EvictionConfig {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(block) = fields.block("eviction")? else {
            return Ok(None);
        };
        let refuse = |field, expected| block.refuse_in("eviction.", field, expected);
        let policy = match block.0.get("eviction_policy") {
            Some(Value::String(name)) => PolicyName::read(name),
            Some(_) => None,
            None => {
                return Err(ConfigError::Missing {
                    field: "eviction.eviction_policy",
                    hint: " in an eviction block: LRU, ARC, IsolatedLRU, S3-FIFO or noop",
                });
            }
        };
        let policy = policy.ok_or_else(|| refuse("eviction_policy", POLICIES))?;
        let trigger_watermark = block.python_float("eviction.", "trigger_watermark", 0.8)?;
        let eviction_ratio = block.python_float("eviction.", "eviction_ratio", 0.2)?;
        let eviction_unit = match block.0.get("eviction_unit") {
            None => EvictionUnit::Keys,
            Some(Value::String(unit)) if unit == "keys" => EvictionUnit::Keys,
            Some(Value::String(unit)) if unit == "bytes" => EvictionUnit::Bytes,
            Some(_) => return Err(refuse("eviction_unit", "\"keys\" or \"bytes\"")),
        };
        let unregistered_salts = match block.0.get("unregistered_salts") {
            None => UnregisteredSalts::Keep,
            Some(Value::String(text)) if text == "keep" => UnregisteredSalts::Keep,
            Some(Value::String(text)) if text == "evict" => UnregisteredSalts::Evict,
            Some(_) => return Err(refuse("unregistered_salts", "\"keep\" or \"evict\"")),
        };
        Ok(Some(Self {
            policy,
            trigger_watermark,
            eviction_ratio,
            eviction_unit,
            salt_quotas: read_quotas(&block)?,
            unregistered_salts,
        }))
    }
}

fn read_quotas(block: &Fields<'_>) -> Result<BTreeMap<String, u64>, ConfigError> {
    const FIELD: &str = "salt_quotas_gb";
    let quotas = match block.0.get(FIELD) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(quotas)) => quotas,
        Some(_) => {
            return Err(block.refuse_in("eviction.", FIELD, "an object of GiB by salt"));
        }
    };
    let quotas = quotas.iter().map(|(salt, gib)| {
        let gib = gib
            .as_f64()
            .filter(|gib| *gib >= 0.0)
            .ok_or_else(|| ConfigError::Value {
                field: format!("eviction.{FIELD}.{salt}"),
                expected: "a number of at least 0",
                found: super::fields::show(gib),
            })?;
        Ok((salt.clone(), super::gib_to_bytes(gib)))
    });
    quotas.collect()
}
