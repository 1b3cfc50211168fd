//! Linked lists over numbers: every key is in at most one of them, and joins, leaves or moves in
//! constant time. The links lie beside each other, twelve bytes a key.

use super::column::Column;
use super::index::KeyId;

const NONE: u32 = u32::MAX;

/// A list's number; lists exist as soon as they are named.
pub(super) type ListId = u32;

#[derive(Debug, Clone, Copy)]
struct Node {
    older: u32,
    younger: u32,
    list: ListId,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            older: NONE,
            younger: NONE,
            list: NONE,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    oldest: u32,
    youngest: u32,
    len: usize,
}

const EMPTY: Ends = Ends {
    oldest: NONE,
    youngest: NONE,
    len: 0,
};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Lists {
    nodes: Column<Node>,
    ends: Vec<Ends>,
}

impl Lists {
    /// Puts a key at the young end of a list, out of whichever list it was in.
    pub(super) fn push_young(&mut self, list: ListId, key: KeyId) {
        self.remove(key);
        let ends = self.ends_mut(list);
        let older = std::mem::replace(&mut ends.youngest, key.0);
        ends.len += 1;
        if older == NONE {
            ends.oldest = key.0;
        } else {
            self.nodes.entry(older).younger = key.0;
        }
        *self.nodes.entry(key.0) = Node {
            older,
            younger: NONE,
            list,
        };
    }

    /// The same at the old end.
    pub(super) fn push_old(&mut self, list: ListId, key: KeyId) {
        self.remove(key);
        let ends = self.ends_mut(list);
        let younger = std::mem::replace(&mut ends.oldest, key.0);
        ends.len += 1;
        if younger == NONE {
            ends.youngest = key.0;
        } else {
            self.nodes.entry(younger).older = key.0;
        }
        *self.nodes.entry(key.0) = Node {
            older: NONE,
            younger,
            list,
        };
    }

    /// Takes a key out of its list and says which that was.
    pub(super) fn remove(&mut self, key: KeyId) -> Option<ListId> {
        let node = self.nodes.get_mut(key.0)?;
        let Node {
            older,
            younger,
            list,
        } = std::mem::take(node);
        if list == NONE {
            return None;
        }
        if let Some(older) = self.nodes.get_mut(older) {
            older.younger = younger;
        }
        if let Some(younger) = self.nodes.get_mut(younger) {
            younger.older = older;
        }
        let ends = self.ends_mut(list);
        ends.len -= 1;
        if ends.oldest == key.0 {
            ends.oldest = younger;
        }
        if ends.youngest == key.0 {
            ends.youngest = older;
        }
        Some(list)
    }

    /// Takes the oldest key out of a list.
    pub(super) fn pop_old(&mut self, list: ListId) -> Option<KeyId> {
        let oldest = self.oldest(list)?;
        self.remove(oldest);
        Some(oldest)
    }

    /// The list that a key is in.
    pub(super) fn list_of(&self, key: KeyId) -> Option<ListId> {
        let list = self.nodes.get(key.0)?.list;
        (list != NONE).then_some(list)
    }

    pub(super) fn oldest(&self, list: ListId) -> Option<KeyId> {
        some(self.ends.get(list as usize)?.oldest)
    }

    /// The key that is one younger in the same list.
    pub(super) fn younger(&self, key: KeyId) -> Option<KeyId> {
        some(self.nodes.get(key.0)?.younger)
    }

    pub(super) fn len(&self, list: ListId) -> usize {
        self.ends.get(list as usize).map_or(0, |ends| ends.len)
    }

    /// A list's keys, oldest first.
    pub(super) fn iter(&self, list: ListId) -> impl Iterator<Item = KeyId> {
        std::iter::successors(self.oldest(list), |key| self.younger(*key))
    }

    fn ends_mut(&mut self, list: ListId) -> &mut Ends {
        let list = list as usize;
        if self.ends.len() <= list {
            self.ends.resize(list + 1, EMPTY);
        }
        &mut self.ends[list]
    }
}

fn some(key: u32) -> Option<KeyId> {
    (key != NONE).then_some(KeyId(key))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_what_queues_would_be(
            steps in prop::collection::vec((0u8..5, 0u32..3, 0u32..12), 0..200)
        ) {
            let mut lists = Lists::default();
            let mut model: [VecDeque<u32>; 3] = Default::default();
            for (step, list, key) in steps {
                let at = model.iter().position(|keys| keys.contains(&key));
                prop_assert_eq!(lists.list_of(KeyId(key)), at.map(|at| at as u32));
                let queue = list as usize;
                match step {
                    4 => {
                        let popped = lists.pop_old(list);
                        prop_assert_eq!(popped, model[queue].pop_front().map(KeyId));
                    }
                    _ => {
                        model.iter_mut().for_each(|keys| keys.retain(|other| *other != key));
                        match step {
                            0 => {
                                let was = lists.remove(KeyId(key));
                                prop_assert_eq!(was, at.map(|at| at as u32));
                            }
                            1 => {
                                lists.push_old(list, KeyId(key));
                                model[queue].push_front(key);
                            }
                            _ => {
                                lists.push_young(list, KeyId(key));
                                model[queue].push_back(key);
                            }
                        }
                    }
                }
                for (list, keys) in (0..).zip(&model) {
                    prop_assert_eq!(lists.len(list), keys.len());
                    let order: VecDeque<_> = lists.iter(list).map(|key| key.0).collect();
                    prop_assert_eq!(&order, keys);
                }
            }
        }
    }
}
