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
    state: State,
}

enum State {
    /// Parts may come.
    Open(Running),
    /// The content is on the CAS, and no path refers to it yet: `complete` may be tried again.
    Uploaded(XetFile),
    /// The bytes are lost; there is nothing left to abort.
    Failed,
    Aborted,
    Completed,
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
            state: State::Open(Running { parts, task }),
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
        let State::Open(running) = &self.state else {
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

    /// After an error it may be called again if the bytes had arrived.
    async fn complete(&mut self) -> Result<PutResult> {
        let file = match std::mem::replace(&mut self.state, State::Failed) {
            State::Open(Running { parts, task }) => {
                drop(parts);
                task.await?
                    .map_err(|e| error::from_xet(&self.core.bucket, &self.key, e))?
            }
            State::Uploaded(file) => file,
            ended => {
                self.state = ended;
                return Err(self.ended());
            }
        };
        self.state = State::Uploaded(file.clone());
        let (core, content_type) = (&self.core, self.content_type.clone());
        let file = core.register(&self.key, file, content_type).await?;
        self.state = State::Completed;
        Ok(super::put_result(file))
    }

    async fn abort(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Aborted) {
            State::Open(Running { parts, task }) => {
                drop(parts);
                task.abort();
                match task.await {
                    Err(stopped) if !stopped.is_cancelled() => Err(stopped.into()),
                    // The task had finished: the content is on the CAS, and no path refers to it.
                    _ => Ok(()),
                }
            }
            // Nothing of it is in the bucket. An error here would hide why `complete` failed.
            State::Uploaded(_) | State::Failed | State::Aborted => Ok(()),
            State::Completed => {
                self.state = State::Completed;
                Err(self.ended())
            }
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
