//! An adapter's books without a store, so that a bench can measure them alone.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::PolicyName;
use super::eviction::{Scope, Visit};
use super::index::KeyId;
use super::key::ObjectKey;
use super::metadata_cache::{Known, Version};
use super::open;
use super::state::{Parts, State};

/// What an adapter does under its lock. Only for the benches of this package; it may change at any
/// time.
#[derive(Debug)]
pub struct Bookkeeping {
    state: Mutex<State>,
}

impl Bookkeeping {
    /// Books with a policy, and a metadata cache whose entries live so long.
    pub fn new(policy: PolicyName, cache_ttl: Duration) -> Self {
        let parts = Parts {
            hit_ttl: cache_ttl,
            miss_ttl: cache_ttl,
            lease: None,
            policy: open::policy(policy),
            quotas: None,
        };
        Self {
            state: Mutex::new(State::new(parts, Instant::now())),
        }
    }

    /// A batch was stored, each object with a version if the store names its contents.
    pub fn store(&self, keys: &[ObjectKey], size: u64, version: Option<&str>) {
        let mut state = self.state.lock();
        let now = Instant::now();
        for key in keys {
            let known = Known {
                size,
                version: version.map(|text| Version::from(text.to_owned())),
            };
            state.stored(key, known, now);
        }
        state.created(keys);
    }

    /// A batch was found by a lookup, locked and unlocked again; returns the hits.
    pub fn touch(&self, keys: &[ObjectKey]) -> usize {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = Instant::now();
        let mut hits = 0;
        for key in keys {
            let held = state.locks.acquire(&mut state.index, key, now);
            hits += usize::from(matches!(state.known(key, now), Some(Some(_))));
            if let Some(held) = held {
                state.locks.release(&mut state.index, held);
            }
        }
        state.touched(keys);
        hits
    }

    /// Selects so many victims and forgets them; returns how many there were.
    pub fn evict(&self, count: usize) -> usize {
        let mut state = self.state.lock();
        let mut left = count;
        let selection = state.policy.select(Scope::All, &mut |_: KeyId| {
            let take = left > 0;
            left = left.saturating_sub(1);
            if take { Visit::Take } else { Visit::Stop }
        });
        for victim in &selection.victims {
            state.untrack(*victim);
        }
        selection.victims.len()
    }

    /// Keys tracked.
    pub fn keys(&self) -> usize {
        self.state.lock().ledger.len()
    }
}
