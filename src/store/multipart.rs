//! Multipart uploads: parts stream to Xet in the order in which they were made.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use object_store::{
    Error as StoreError, MultipartUpload, PutPayload, PutResult, Result, UploadPart,
};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::core::Core;
use super::error;
use crate::xet::{self, Upload, XetFile};

#[derive(Debug, Error)]
enum Error {
    #[error("the upload of '{path}' is already completed or aborted; start a new one")]
    Ended { path: String },
}

/// Callers may await parts in any order, but Xet takes bytes front to back. So a task owns the
/// upload and writes the parts in the order of `put_part`, whoever awaits them. The queue holds only
/// parts that the caller has made and not yet seen written, which is the caller's to bound, as with
/// every other store.
pub(super) struct HfMultipartUpload {
    core: Arc<Core>,
    key: String,
    content_type: Option<String>,
    running: Option<Running>,
}

struct Running {
    parts: mpsc::UnboundedSender<Part>,
    /// Dropping it aborts the task and with it the upload: nothing of it is in the bucket.
    task: AbortOnDropHandle<Result<XetFile, xet::Error>>,
}

struct Part {
    payload: PutPayload,
    written: oneshot::Sender<Result<(), xet::Error>>,
}

impl HfMultipartUpload {
    pub(super) async fn start(
        core: Arc<Core>,
        key: String,
        content_type: Option<String>,
    ) -> Result<Self> {
        let upload = core.start_upload(&key).await?;
        let (parts, queue) = mpsc::unbounded_channel();
        let task = AbortOnDropHandle::new(tokio::spawn(write_parts(upload, queue)));
        Ok(Self {
            core,
            key,
            content_type,
            running: Some(Running { parts, task }),
        })
    }

    fn ended(&self) -> StoreError {
        error::generic(Error::Ended {
            path: self.key.clone(),
        })
    }
}

/// Writes parts until `complete` closes the queue. After a failure all later parts fail alike.
async fn write_parts(
    mut upload: Upload,
    mut queue: mpsc::UnboundedReceiver<Part>,
) -> Result<XetFile, xet::Error> {
    let mut state = Ok(());
    while let Some(part) = queue.recv().await {
        if state.is_ok() {
            state = write_part(&mut upload, part.payload).await;
        }
        // A caller may drop the future of a part; `complete` still tells it of the failure.
        let _ = part.written.send(state.clone());
    }
    state?;
    upload.finish().await
}

async fn write_part(upload: &mut Upload, payload: PutPayload) -> Result<(), xet::Error> {
    for bytes in payload {
        upload.write(bytes).await?;
    }
    Ok(())
}

#[async_trait]
impl MultipartUpload for HfMultipartUpload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let Some(running) = &self.running else {
            let ended = self.ended();
            return async { Err(ended) }.boxed();
        };
        let (written, answer) = oneshot::channel();
        let sent = running.parts.send(Part { payload, written });
        let (core, key) = (Arc::clone(&self.core), self.key.clone());
        async move {
            let ended = || error::generic(Error::Ended { path: key.clone() });
            sent.map_err(|_| ended())?;
            answer
                .await
                .map_err(|_| ended())?
                .map_err(|e| error::from_xet(&core.bucket, &key, e))
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some(Running { parts, task }) = self.running.take() else {
            return Err(self.ended());
        };
        drop(parts);
        let file = task
            .await?
            .map_err(|e| error::from_xet(&self.core.bucket, &self.key, e))?;
        let file = self
            .core
            .register(&self.key, file, self.content_type.clone())
            .await?;
        Ok(super::put_result(file))
    }

    async fn abort(&mut self) -> Result<()> {
        let Some(Running { parts, task }) = self.running.take() else {
            return Err(self.ended());
        };
        drop(parts);
        task.abort();
        match task.await {
            Err(stopped) if !stopped.is_cancelled() => Err(stopped.into()),
            // The task had finished: the content is on the CAS, and no path refers to it.
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for HfMultipartUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HfMultipartUpload")
            .field("bucket", &self.core.bucket.to_string())
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
