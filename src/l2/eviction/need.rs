//! Whether anything must be evicted, and of whose keys how many.

use std::collections::HashSet;

use super::budget::Budget;
use super::controller::Controller;
use super::{Scope, share};
use crate::l2::config::EvictionUnit;
use crate::l2::index::SaltId;
use crate::l2::state::State;
use crate::l2::usage::fraction;

/// A round of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) scope: Scope,
    pub(super) budget: Budget,
}

impl Controller {
    /// The cache as a whole, or a salt, is too full. Not said before the first listing is in order:
    /// until then nobody knows which keys are the oldest.
    pub(super) fn is_over(&self, state: &State) -> bool {
        !state.listing.unordered
            && (self.is_full(state)
                || state
                    .quotas
                    .as_ref()
                    .is_some_and(|quotas| !quotas.over().is_empty()))
    }

    fn is_full(&self, state: &State) -> bool {
        self.capacity > 0 && fraction(state.ledger.total(), self.capacity) >= self.watermark
    }

    /// The next round, not of the scopes in which nothing can be deleted for now.
    pub(super) fn need(&self, state: &State, stuck: &HashSet<Scope>) -> Option<Need> {
        if !self.is_over(state) {
            return None;
        }
        let (scope, ratio) = match &state.quotas {
            None => Some((Scope::All, self.ratio)),
            Some(_) => self.salt(state, stuck),
        }
        .filter(|(scope, _)| !stuck.contains(scope))?;
        let left = match (self.unit, scope) {
            (EvictionUnit::Keys, scope) => share(state.policy.len(scope) as u64, ratio),
            (EvictionUnit::Bytes, Scope::All) => share(state.ledger.total(), ratio),
            (EvictionUnit::Bytes, Scope::Salt(salt)) => share(state.ledger.of_salt(salt), ratio),
        };
        let budget = Budget::new(self.unit, left);
        (!budget.is_spent()).then_some(Need { scope, budget })
    }

    /// A salt over its quota; else, if the whole is too full, the one that exceeds its quota, or
    /// without one nothing, by most bytes.
    fn salt(&self, state: &State, stuck: &HashSet<Scope>) -> Option<(Scope, f64)> {
        let quotas = state.quotas.as_ref()?;
        let limit = |salt: SaltId| {
            let name = state.index.salt(salt)?;
            quotas.limit(name)
        };
        let is_open = |salt: &SaltId| !stuck.contains(&Scope::Salt(*salt));
        if let Some(salt) = quotas.over().iter().copied().find(is_open) {
            let ratio = if limit(salt) == Some(0) {
                1.0
            } else {
                self.ratio
            };
            return Some((Scope::Salt(salt), ratio));
        }
        if !self.is_full(state) {
            return None;
        }
        let excess = |(salt, bytes): &(SaltId, u64)| {
            i128::from(*bytes) - i128::from(limit(*salt).unwrap_or(0))
        };
        state
            .ledger
            .salts()
            .filter(|(salt, _)| is_open(salt))
            .max_by_key(excess)
            .map(|(salt, _)| (Scope::Salt(salt), self.ratio))
    }
}
