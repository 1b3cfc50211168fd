//! Nothing is ever evicted.

use super::Policy;

/// Tracks nothing and names no victim.
#[derive(Debug, Default)]
pub(in crate::l2) struct Noop;

impl<K> Policy<K> for Noop {
    fn created(&mut self, _: &[K]) {}

    fn touched(&mut self, _: &[K]) {}

    fn removed(&mut self, _: &[K]) {}

    fn select(&mut self, _: usize, _: &dyn Fn(&K) -> bool) -> Vec<K> {
        Vec::new()
    }

    fn len(&self) -> usize {
        0
    }
}
