//! Opening an object, by the version that is known or by its path.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::path::Path;
use object_store::{GetOptions, GetResult};
use tokio::time::Instant;

use crate::l2::adapter::{Inner, known};
use crate::l2::key::ObjectKey;
use crate::l2::question::Asked;

impl Inner {
    /// Opens the object; `None` if there is none.
    pub(super) async fn open_object(
        self: &Arc<Self>,
        key: &ObjectKey,
        path: &Path,
        size: usize,
    ) -> Result<Option<GetResult>, object_store::Error> {
        match self.open_version(key, path, size).await {
            Some(found) => Ok(Some(found)),
            None => self.open_path(key, path).await,
        }
    }

    /// Opens the content that a store or lookup saw lately, if the store names its contents: such a
    /// read need not ask what the path holds now. `None` if the path has to decide.
    async fn open_version(&self, key: &ObjectKey, path: &Path, size: usize) -> Option<GetResult> {
        if self.versions_refused.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.state.lock().known(key, Instant::now())?.cloned()?;
        let version = known.version.filter(|_| known.size == size as u64)?;
        let options = GetOptions::new().with_version(Some(version.text()));
        match self.store.get_opts(path, options).await {
            Ok(found) => (found.meta.size == known.size).then_some(found),
            Err(
                error @ (object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotSupported { .. }
                | object_store::Error::NotImplemented { .. }),
            ) => {
                tracing::info!(%path, %error, "reads by version are refused; not tried again");
                self.versions_refused.store(true, Ordering::Relaxed);
                None
            }
            Err(_) => None,
        }
    }

    /// Opens what the path holds, which corrects what later lookups answer.
    async fn open_path(
        self: &Arc<Self>,
        key: &ObjectKey,
        path: &Path,
    ) -> Result<Option<GetResult>, object_store::Error> {
        let question = self.state.lock().begin(key);
        let asked = Asked::new(self, key, question);
        let found = self.get(path, GetOptions::default()).await?;
        asked.answer(found.as_ref().map(|found| known(found.meta.clone())));
        Ok(found)
    }
}
