//! The workload: prompts that share prefixes, cut into chunks as an LLM server cuts its KV cache.

use bytes::Bytes;
use hfbucket::l2::{KeyError, ObjectKey};
use sha2::{Digest, Sha256};

use super::super::noise::noise;

const MODEL: &str = "meta-llama/Llama-3.1-8B";
/// World size 1, global rank 0, local world size 1, local rank 0.
const RANK: u64 = 0x0100_0100;

/// The shape of the workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) seed: u64,
    /// Chunks per prompt.
    pub(super) chunks: usize,
    /// Bytes per chunk.
    pub(super) chunk_size: usize,
}

impl Shape {
    /// Chunks that every prompt begins with: a system prompt, say.
    pub(super) fn shared(&self) -> usize {
        self.chunks.div_ceil(3)
    }

    /// Bytes of so many prompts, what they share counted once.
    pub(super) fn distinct_bytes(&self, prompts: u64) -> u64 {
        let (shared, own) = (self.shared() as u64, (self.chunks - self.shared()) as u64);
        own.saturating_mul(prompts)
            .saturating_add(shared)
            .saturating_mul(self.chunk_size as u64)
    }

    /// The keys of prompt `number`, first chunk first.
    pub(super) fn prompt(&self, number: u64) -> Result<Vec<ObjectKey>, KeyError> {
        self.keys((0..self.chunks).map(|chunk| match chunk < self.shared() {
            true => (0, chunk),
            false => (number + 1, chunk),
        }))
    }

    /// A prompt that begins as prompt `number` does and goes its own way after `known` chunks.
    pub(super) fn follow_up(&self, number: u64, known: usize) -> Result<Vec<ObjectKey>, KeyError> {
        self.keys(
            (0..self.chunks).map(|chunk| match (chunk < self.shared(), chunk < known) {
                (true, _) => (0, chunk),
                (false, true) => (number + 1, chunk),
                (false, false) => (u64::MAX, chunk),
            }),
        )
    }

    /// A chunk's hash covers all chunks before it, so that equal hashes mean equal prefixes.
    fn keys(&self, texts: impl Iterator<Item = (u64, usize)>) -> Result<Vec<ObjectKey>, KeyError> {
        let mut prefix = Sha256::digest(self.seed.to_le_bytes());
        texts
            .map(|(text, chunk)| {
                let mut hasher = Sha256::new();
                hasher.update(prefix);
                hasher.update(text.to_le_bytes());
                hasher.update((chunk as u64).to_le_bytes());
                prefix = hasher.finalize();
                ObjectKey::new(MODEL, RANK, prefix)
            })
            .collect()
    }

    /// The bytes of a chunk: they follow from its key, and do not compress, as KV data does not.
    pub(super) fn data(&self, key: &ObjectKey) -> Bytes {
        noise(key.chunk_hash(), self.chunk_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        seed: 1,
        chunks: 9,
        chunk_size: 1000,
    };

    #[test]
    fn prompts_share_what_they_should() {
        let (a, b) = (SHAPE.prompt(0).unwrap(), SHAPE.prompt(1).unwrap());
        let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        assert_eq!((a.len(), common), (9, 3));
        assert_eq!(SHAPE.distinct_bytes(2), 15_000);
        let follow_up = SHAPE.follow_up(0, 7).unwrap();
        let common = a.iter().zip(&follow_up).take_while(|(a, b)| a == b).count();
        assert_eq!((follow_up.len(), common), (9, 7));
        assert!(!a.contains(&follow_up[8]));
    }

    #[test]
    fn data_follows_from_the_key() {
        let keys = SHAPE.prompt(0).unwrap();
        assert_eq!(SHAPE.data(&keys[0]), SHAPE.data(&keys[0]));
        assert_ne!(SHAPE.data(&keys[0]), SHAPE.data(&keys[1]));
        assert_eq!(SHAPE.data(&keys[0]).len(), 1000);
    }
}
