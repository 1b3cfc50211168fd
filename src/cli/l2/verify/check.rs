//! Reads one object in every way that an adapter does.

use std::sync::Arc;

use futures::TryStreamExt;
use hfbucket::l2::{KeyEntry, L2Adapter, LoadOutcome, ObjectKey};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::super::super::Stop;
use super::finding::{Finding, Kind};

/// Bytes of objects in memory at a time. One that is larger is not loaded but streamed.
const MEMORY: u64 = 256 << 20;
/// Of which a permit stands for so many.
const UNIT: u64 = 1 << 10;

pub(super) struct Checker {
    adapter: L2Adapter,
    memory: Semaphore,
}

/// What an object's bytes are.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    bytes: u64,
    hash: [u8; 32],
}

/// Why an object does not pass, or is no longer there to be looked at.
type Fault = (Kind, String);

impl Checker {
    pub(super) fn new(adapter: L2Adapter) -> Self {
        Self {
            adapter,
            memory: Semaphore::new((MEMORY / UNIT) as usize),
        }
    }

    /// What is wrong with a key, if anything.
    pub(super) async fn check(self: Arc<Self>, entry: KeyEntry) -> Result<Option<Finding>, Stop> {
        let path = self.adapter.object_path(&entry.key)?;
        let units = entry.size.min(MEMORY).div_ceil(UNIT);
        // The semaphore is never closed.
        let _memory = self.memory.acquire_many(u32::try_from(units)?).await.ok();
        let checked = self.check_object(&entry, &path).await;
        Ok(checked
            .err()
            .map(|(kind, detail)| Finding::new(kind, &path, detail).of(&entry.key)))
    }

    async fn check_object(&self, entry: &KeyEntry, path: &Path) -> Result<(), Fault> {
        let before = self.meta(path).await?;
        if before.size != entry.size {
            return Err((
                Kind::Size,
                format!(
                    "listed with {} bytes, has {} since {}",
                    entry.size, before.size, before.last_modified
                ),
            ));
        }
        if entry.size > 0 {
            self.look_up(&entry.key, path).await?;
        }
        let first = self.read(entry, path).await?;
        let Some(version) = before.version else {
            return Ok(());
        };
        let options = GetOptions::new().with_version(Some(version.clone()));
        match self.stream(path, options).await {
            Ok(second) if first == second => Ok(()),
            Ok(_) => Err(self.differing(path, &version, "gave other bytes").await),
            Err(object_store::Error::NotFound { .. }) => {
                Err(self.differing(path, &version, "was not found").await)
            }
            // Not given to us, which an adapter can live with.
            Err(
                object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotSupported { .. }
                | object_store::Error::NotImplemented { .. },
            ) => Ok(()),
            Err(error) => Err(fault(&error)),
        }
    }

    async fn meta(&self, path: &Path) -> Result<ObjectMeta, Fault> {
        let found = self.store().head(path).await;
        found.map_err(|error| fault(&error))
    }

    async fn look_up(&self, key: &ObjectKey, path: &Path) -> Result<(), Fault> {
        let found = self
            .adapter
            .lookup_and_lock(std::slice::from_ref(key))
            .await;
        if let Some((_, error)) = found.errors.first() {
            return Err((Kind::Lookup, error.to_string()));
        }
        if found.hits() == 1 {
            return Ok(());
        }
        // Unless it has just gone, the store has it and the adapter does not see it.
        let still = self.meta(path).await?;
        let detail = format!("the store has {} bytes of it", still.size);
        Err((Kind::Lookup, detail))
    }

    /// As a model's server would, unless it is too large to be held.
    async fn read(&self, entry: &KeyEntry, path: &Path) -> Result<Content, Fault> {
        let size = match usize::try_from(entry.size) {
            Ok(size) if entry.size <= MEMORY => size,
            _ => return self.read_large(entry.size, path).await,
        };
        let mut buffers = [vec![0; size]];
        let key = std::slice::from_ref(&entry.key);
        let loaded = self.adapter.load(key, &mut buffers).await;
        match loaded.outcomes.first() {
            Some(LoadOutcome::Hit) => {}
            Some(LoadOutcome::NotFound) => return Err(gone()),
            Some(LoadOutcome::SizeMismatch { actual }) => {
                return Err(wrong_size(entry.size, *actual));
            }
            Some(LoadOutcome::Failed(error)) => return Err((Kind::Unreadable, error.to_string())),
            _ => return Err((Kind::Unreadable, "a load gave no answer".to_owned())),
        }
        Ok(Content {
            bytes: entry.size,
            hash: Sha256::digest(&buffers[0]).into(),
        })
    }

    async fn read_large(&self, size: u64, path: &Path) -> Result<Content, Fault> {
        let content = self.stream(path, GetOptions::new()).await;
        let content = content.map_err(|error| fault(&error))?;
        if content.bytes != size {
            return Err(wrong_size(size, content.bytes));
        }
        Ok(content)
    }

    async fn stream(&self, path: &Path, options: GetOptions) -> object_store::Result<Content> {
        let mut stream = self.store().get_opts(path, options).await?.into_stream();
        let (mut bytes, mut hasher) = (0, Sha256::new());
        while let Some(piece) = stream.try_next().await? {
            bytes += piece.len() as u64;
            hasher.update(&piece);
        }
        let hash = hasher.finalize().into();
        Ok(Content { bytes, hash })
    }

    /// Two reads differ: because the object was replaced between them, or because it is broken.
    async fn differing(&self, path: &Path, version: &str, what: &str) -> Fault {
        match self.meta(path).await {
            Ok(now) if now.version.as_deref() == Some(version) => (
                Kind::Version,
                format!("a second read of version {version} {what}"),
            ),
            Ok(now) => (Kind::Changed, format!("at {}", now.last_modified)),
            Err(fault) => fault,
        }
    }

    fn store(&self) -> &Arc<dyn ObjectStore> {
        self.adapter.object_store()
    }
}

fn fault(error: &object_store::Error) -> Fault {
    match error {
        object_store::Error::NotFound { .. } => gone(),
        error => (Kind::Unreadable, error.to_string()),
    }
}

fn gone() -> Fault {
    (Kind::Gone, "deleted since it was listed".to_owned())
}

fn wrong_size(listed: u64, found: u64) -> Fault {
    let detail = format!("listed with {listed} bytes, {found} were read");
    (Kind::Size, detail)
}

#[cfg(test)]
mod tests;
