//! A chunk's hash: a few bytes, which mostly fit into the value itself.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// SHA-256 and shorter hashes fit; so much costs no more than the other variant.
const INLINE: usize = 38;

/// Bytes of any length. Compared, ordered and hashed as a slice; a clone copies at most
/// [`INLINE`] of them.
#[derive(Clone)]
pub(super) enum ChunkHash {
    Inline { len: u8, bytes: [u8; INLINE] },
    Shared(Arc<[u8]>),
}

impl ChunkHash {
    pub(super) fn new(hash: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (u8::try_from(hash.len()), bytes.get_mut(..hash.len())) {
            (Ok(len), Some(start)) => {
                start.copy_from_slice(hash);
                Self::Inline { len, bytes }
            }
            _ => Self::Shared(Arc::from(hash)),
        }
    }
}

impl AsRef<[u8]> for ChunkHash {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Default for ChunkHash {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl PartialEq for ChunkHash {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for ChunkHash {}

impl PartialOrd for ChunkHash {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ChunkHash {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(other.as_ref())
    }
}

impl Hash for ChunkHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl fmt::Debug for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::key::to_hex(self.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_is_kept() {
        assert_eq!(size_of::<ChunkHash>(), 40);
        for len in [0, 1, 32, INLINE, INLINE + 1, 300] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let hash = ChunkHash::new(&bytes);
            assert_eq!(hash.as_ref(), bytes);
            assert_eq!(hash, hash.clone());
            assert_eq!(matches!(hash, ChunkHash::Inline { .. }), len <= INLINE);
        }
        assert_ne!(ChunkHash::new(&[0]), ChunkHash::default());
        assert!(ChunkHash::new(&[1, 0]) < ChunkHash::new(&[2]));
    }
}
