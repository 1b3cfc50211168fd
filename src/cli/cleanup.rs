//! Leaving a store as it was found.

use futures::{StreamExt, stream};
use hfbucket::l2::{L2Adapter, ObjectKey};

use super::Stop;

/// Deletes the objects of keys past their adapter, which is closed. Those that are not there, because
/// they were evicted or never stored, are fine.
pub(super) async fn delete(adapter: &L2Adapter, keys: &[ObjectKey]) -> Result<(), Stop> {
    let paths: Result<Vec<_>, _> = keys.iter().map(|key| adapter.object_path(key)).collect();
    let paths: Vec<_> = paths?.into_iter().map(Ok).collect();
    let store = adapter.object_store();
    let mut deleted = store.delete_stream(stream::iter(paths).boxed());
    while let Some(outcome) = deleted.next().await {
        match outcome {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
