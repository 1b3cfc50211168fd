//! Which keys go when the cache is full.
//!
//! A [`Policy`] decides, the [controller] acts. A policy hears of keys that were stored,
//! used and deleted, and names victims. It keeps its victims until it hears that they were deleted,
//! so a failed delete loses nothing.

mod adaptive;
pub(super) mod controller;
mod lru;
mod noop;
#[cfg(test)]
mod traces;

use std::fmt;

pub(super) use self::adaptive::Adaptive;
pub(super) use self::lru::Lru;
pub(super) use self::noop::Noop;

/// An eviction policy over keys of type `K`.
///
/// Batches are taken **back to front**: of the keys of one request the last becomes the oldest, so
/// that the chunks at the end of a prompt, which fewer prompts share, go first.
pub(super) trait Policy<K>: fmt::Debug + Send {
    /// Keys were stored, new or again.
    fn created(&mut self, keys: &[K]);

    /// Keys were used. Unknown ones are ignored.
    fn touched(&mut self, keys: &[K]);

    /// Keys are gone. Unknown ones are ignored.
    fn removed(&mut self, keys: &[K]);

    /// Up to `count` keys to delete, the next victim first, none that is not eligible.
    ///
    /// Its cost grows with the victims and the ineligible keys passed over, not with all keys.
    fn select(&mut self, count: usize, eligible: &dyn Fn(&K) -> bool) -> Vec<K>;

    /// Keys that could be selected.
    fn len(&self) -> usize;
}

/// How many of `keys` keys one round takes: the ratio's share rounded down, but at least one.
///
/// The product is formed in floating point, as LMCache does: 100 keys at 0.29 are 28.
pub(super) fn victim_count(keys: usize, ratio: f64) -> usize {
    if keys == 0 || ratio.is_nan() || ratio <= 0.0 {
        return 0;
    }
    // At most `keys`, so the cast loses nothing but the fraction.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let share = (keys as f64 * ratio.min(1.0)) as usize;
    share.max(1)
}
