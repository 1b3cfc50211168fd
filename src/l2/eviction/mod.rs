//! Which keys go when the cache is full.
//!
//! A [`Policy`] decides, the [controller] acts. A policy hears of keys that were stored,
//! used and deleted, and names victims. It keeps its victims until it hears that they were deleted,
//! so a failed delete loses nothing.

mod adaptive;
mod budget;
pub(super) mod controller;
mod isolated_lru;
mod lru;
mod need;
mod noop;
pub(super) mod quotas;
mod run;
mod s3_fifo;
#[cfg(test)]
mod slru;
#[cfg(test)]
mod study;
#[cfg(test)]
mod traces;

use std::fmt;

pub(super) use self::adaptive::Adaptive;
pub(super) use self::isolated_lru::IsolatedLru;
pub(super) use self::lru::Lru;
pub(super) use self::noop::Noop;
pub(super) use self::s3_fifo::S3Fifo;
use super::index::{KeyId, SaltId};

/// A key and the salt it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) key: KeyId,
    pub(super) salt: SaltId,
}

/// Among which keys victims are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    All,
    Salt(SaltId),
}

/// What becomes of a key that a policy proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// It is a victim.
    Take,
    /// It is not, and stays where it is.
    Pass,
    /// Nor is any other: there are enough.
    Stop,
}

/// What a policy selected.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The next victim first.
    pub(super) victims: Vec<KeyId>,
    /// Whether every key of the scope was proposed; if not, asking again may find more.
    pub(super) exhausted: bool,
}

/// An eviction policy over numbered keys.
///
/// Batches are taken **back to front**: of the keys of one request the last becomes the oldest, so
/// that the chunks at the end of a prompt, which fewer prompts share, go first.
pub(super) trait Policy: fmt::Debug + Send {
    /// Keys were stored, new or again.
    fn created(&mut self, keys: &[Placed]);

    /// Keys were found in the store, each older than all that is known and than those before it.
    /// Known ones are ignored.
    fn recovered(&mut self, keys: &[Placed]);

    /// Keys were used. Unknown ones are ignored.
    fn touched(&mut self, keys: &[KeyId]);

    /// Keys are gone. Unknown ones are ignored.
    fn removed(&mut self, keys: &[KeyId]);

    /// Proposes keys of a scope, the next victim first, until it is told to stop or has no more.
    ///
    /// Its cost grows with the keys proposed, not with all keys.
    fn select(&mut self, scope: Scope, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection;

    /// Keys of a scope that could be selected.
    fn len(&self, scope: Scope) -> usize;

    /// Whether the key's number must not be given to another: it is here, or its ghost is.
    fn remembers(&self, key: KeyId) -> bool;

    /// Ghosts that were given up since the last call.
    fn forgotten(&mut self) -> Vec<KeyId> {
        Vec::new()
    }
}

/// Proposes the keys of an order.
fn propose(keys: impl Iterator<Item = KeyId>, visit: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
    let mut victims = Vec::new();
    for key in keys {
        match visit(key) {
            Visit::Take => victims.push(key),
            Visit::Pass => {}
            Visit::Stop => {
                return Selection {
                    victims,
                    exhausted: false,
                };
            }
        }
    }
    Selection {
        victims,
        exhausted: true,
    }
}

/// How many of `keys` keys one round takes: the ratio's share rounded down, but at least one.
///
/// The product is formed in floating point, as LMCache does: 100 keys at 0.29 are 28.
pub(super) fn share(keys: u64, ratio: f64) -> u64 {
    if keys == 0 || ratio.is_nan() || ratio <= 0.0 {
        return 0;
    }
    // At most `keys`, so the cast loses nothing but the fraction.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let share = (keys as f64 * ratio.min(1.0)) as u64;
    share.max(1)
}
