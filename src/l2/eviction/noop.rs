//! Nothing is ever evicted.

use super::{Placed, Policy, Scope, Selection, Visit};
use crate::l2::index::KeyId;

/// Tracks nothing and names no victim.
#[derive(Debug, Default)]
pub(in crate::l2) struct Noop;

impl Policy for Noop {
    fn created(&mut self, _: &[Placed]) {}

    fn recovered(&mut self, _: &[Placed]) {}

    fn touched(&mut self, _: &[KeyId]) {}

    fn removed(&mut self, _: &[KeyId]) {}

    fn select(&mut self, _: Scope, _: &mut dyn FnMut(KeyId) -> Visit) -> Selection {
        Selection {
            exhausted: true,
            ..Selection::default()
        }
    }

    fn len(&self, _: Scope) -> usize {
        0
    }

    fn remembers(&self, _: KeyId) -> bool {
        false
    }
}
