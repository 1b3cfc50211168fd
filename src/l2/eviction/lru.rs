//! The key that was not used for longest goes first.

use std::hash::Hash;

use hashlink::LinkedHashSet;

use super::Policy;

/// Least recently used: one order of keys, oldest first.
#[derive(Debug)]
pub(in crate::l2) struct Lru<K> {
    order: LinkedHashSet<K>,
}

impl<K: Eq + Hash> Default for Lru<K> {
    fn default() -> Self {
        Self {
            order: LinkedHashSet::new(),
        }
    }
}

impl<K> Policy<K> for Lru<K>
where
    K: Clone + Eq + Hash + std::fmt::Debug + Send,
{
    fn created(&mut self, keys: &[K]) {
        for key in keys.iter().rev() {
            // Moves a known key to the young end.
            self.order.insert(key.clone());
        }
    }

    fn touched(&mut self, keys: &[K]) {
        for key in keys.iter().rev() {
            self.order.to_back(key);
        }
    }

    fn removed(&mut self, keys: &[K]) {
        for key in keys {
            self.order.remove(key);
        }
    }

    fn select(&mut self, count: usize, eligible: &dyn Fn(&K) -> bool) -> Vec<K> {
        self.order
            .iter()
            .filter(|key| eligible(key))
            .take(count)
            .cloned()
            .collect()
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
impl<K: Clone> Lru<K> {
    pub(super) fn order(&self) -> Vec<K> {
        self.order.iter().cloned().collect()
    }
}
