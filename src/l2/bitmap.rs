//! One bit per submitted position.

use std::fmt;
use std::ops::Index;

/// Which positions of a batch hit.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Bitmap(Vec<bool>);

impl Bitmap {
    /// How many positions the batch had.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the batch was empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bit of one position; false beyond the end.
    pub fn get(&self, position: usize) -> bool {
        self.0.get(position).copied().unwrap_or(false)
    }

    /// How many bits are set.
    pub fn count_ones(&self) -> usize {
        self.iter().filter(|bit| *bit).count()
    }

    /// How many bits are set before the first that is not.
    pub fn leading_ones(&self) -> usize {
        self.iter().take_while(|bit| *bit).count()
    }

    /// Whether every bit is set (as in an empty bitmap).
    pub fn all(&self) -> bool {
        self.iter().all(|bit| bit)
    }

    /// The bits in order.
    pub fn iter(&self) -> impl Iterator<Item = bool> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<bool> for Bitmap {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        Self(bits.into_iter().collect())
    }
}

impl Index<usize> for Bitmap {
    type Output = bool;

    /// # Panics
    ///
    /// If the position is beyond the end, as a slice does.
    fn index(&self, position: usize) -> &bool {
        &self.0[position]
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits: String = self.iter().map(|bit| if bit { '1' } else { '0' }).collect();
        write!(f, "Bitmap({digits})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted() {
        let bits: Bitmap = [true, true, false, true].into_iter().collect();
        assert_eq!(
            (bits.len(), bits.count_ones(), bits.leading_ones()),
            (4, 3, 2)
        );
        assert!(bits[3] && bits.get(3) && !bits.get(4) && !bits.all());
        assert_eq!(format!("{bits:?}"), "Bitmap(1101)");
        assert!(Bitmap::default().all());
    }
}
