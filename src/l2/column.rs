//! Values by number, in blocks: a column grows without copying what it holds, and what it reserves
//! beyond that is less than one block, where a vector may reserve as much again.

use std::fmt;

const BLOCK: usize = 4096;

/// See the [module](self). What was never set is the default.
pub(super) struct Column<T> {
    blocks: Vec<Box<[T]>>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<T> fmt::Debug for Column<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column")
            .field("reserved", &(self.blocks.len() * BLOCK))
            .finish()
    }
}

impl<T: Default> Column<T> {
    /// `None` beyond what was ever set.
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        let at = at as usize;
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    /// As [`get`](Self::get), and does not grow.
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let at = at as usize;
        self.blocks.get_mut(at / BLOCK)?.get_mut(at % BLOCK)
    }

    /// Grows as far as is needed.
    pub(super) fn entry(&mut self, at: u32) -> &mut T {
        let at = at as usize;
        while self.blocks.len() <= at / BLOCK {
            self.blocks.push((0..BLOCK).map(|_| T::default()).collect());
        }
        &mut self.blocks[at / BLOCK][at % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_where_it_is_set() {
        let mut column = Column::<u8>::default();
        assert_eq!(column.get(0), None);
        *column.entry(5000) = 7;
        assert_eq!(
            (column.get(5000), column.get(0), column.get(9000)),
            (Some(&7), Some(&0), None)
        );
        assert!(column.get_mut(9000).is_none());
        *column.get_mut(0).unwrap() = 3;
        assert_eq!(column.get(0), Some(&3));
    }
}
