//! A random choice of keys that depends on the keys and the seed alone, not on the order in which a
//! store lists them.

use std::collections::BTreeMap;

use hfbucket::l2::KeyEntry;
use sha2::{Digest, Sha256};

/// Keeps those keys whose hashes with the seed are the smallest.
pub(super) struct Sample {
    most: usize,
    seed: u64,
    kept: BTreeMap<[u8; 32], KeyEntry>,
}

impl Sample {
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self {
            most,
            seed,
            kept: BTreeMap::new(),
        }
    }

    pub(super) fn offer(&mut self, entry: KeyEntry) {
        let rank = self.rank(&entry);
        let is_out = self.kept.len() == self.most
            && self
                .kept
                .last_key_value()
                .is_none_or(|(last, _)| rank > *last);
        if is_out {
            return;
        }
        self.kept.insert(rank, entry);
        if self.kept.len() > self.most {
            self.kept.pop_last();
        }
    }

    fn rank(&self, entry: &KeyEntry) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.seed.to_le_bytes());
        // Lengths keep fields apart, so that no two keys are one text.
        let key = &entry.key;
        for field in [
            key.model_name().as_bytes(),
            key.cache_salt().as_bytes(),
            key.chunk_hash(),
            &key.kv_rank().to_le_bytes(),
            &key.object_group_id().to_le_bytes(),
        ] {
            hasher.update((field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        hasher.finalize().into()
    }

    pub(super) fn finish(self) -> Vec<KeyEntry> {
        self.kept.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};

    async fn entries() -> Vec<KeyEntry> {
        let json = r#"{"type": "object_store", "url": "memory:///"}"#;
        let config = L2Config::from_json(json).unwrap();
        let adapter = L2Adapter::open(config).await.unwrap();
        let chunk = bytes::Bytes::from_static(b"x");
        let keys = (0..100_u8).map(|n| ObjectKey::new("m", 1, [n]).unwrap());
        adapter
            .store(keys.map(|key| (key, chunk.clone())).collect())
            .await;
        adapter.list_keys(None, 1000, None).await.unwrap().entries
    }

    fn choose(entries: impl Iterator<Item = KeyEntry>, most: usize, seed: u64) -> Vec<KeyEntry> {
        let mut sample = Sample::new(most, seed);
        entries.for_each(|entry| sample.offer(entry));
        sample.finish()
    }

    #[tokio::test]
    async fn the_seed_chooses_not_the_order() {
        let entries = entries().await;
        let one = choose(entries.iter().cloned(), 10, 7);
        assert_eq!(one.len(), 10);
        assert_eq!(one, choose(entries.iter().rev().cloned(), 10, 7));
        assert_ne!(one, choose(entries.iter().cloned(), 10, 8));
        assert_eq!(choose(entries.iter().cloned(), 1000, 7).len(), 100);
    }
}
