//! Uploads: whole objects together in one commit, or one object as its parts arrive.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use xet::xet_session::XetStreamUpload;

use super::commit::OpenCommit;
use super::{Error, Xet, XetFile};
use crate::hub::{Access, CasToken};

/// Objects chunked and hashed at the same time within one commit (hf-xet's own default).
const CONCURRENT_OBJECTS: usize = 8;

impl Xet {
    /// Uploads the objects, each given as its parts, in one commit; the answers are in the same
    /// order. The bytes are on the CAS when this returns, and in no bucket.
    ///
    /// A refused token is replaced once. Dropping the future aborts the upload; what has reached the
    /// CAS by then is referenced by nothing.
    pub(crate) async fn upload_all(&self, objects: &[Vec<Bytes>]) -> Result<Vec<XetFile>, Error> {
        let mut fresh_token = false;
        loop {
            let commit = self.inner.take_commit().await?;
            let token = Arc::clone(&commit.token);
            match upload_into(commit, objects).await {
                Err(error) if error.is_auth() && !fresh_token => {
                    self.inner.tokens.reject(Access::Write, &token);
                    fresh_token = true;
                }
                result => return result,
            }
        }
    }

    /// Starts one object whose bytes arrive in parts.
    pub(crate) async fn start_upload(&self) -> Result<Upload, Error> {
        let commit = self.inner.take_commit().await?;
        let stream = commit.stream().await?;
        Ok(Upload {
            token: Arc::clone(&commit.token),
            xet: self.clone(),
            commit,
            stream,
            size: 0,
        })
    }
}

async fn upload_into(commit: OpenCommit, objects: &[Vec<Bytes>]) -> Result<Vec<XetFile>, Error> {
    // Futures do nothing until polled, and `buffered` polls a few at a time.
    let uploads: Vec<_> = objects
        .iter()
        .map(|parts| upload_one(&commit, parts))
        .collect();
    let files = futures::stream::iter(uploads)
        .buffered(CONCURRENT_OBJECTS)
        .try_collect()
        .await?;
    commit.commit().await?;
    Ok(files)
}

async fn upload_one(commit: &OpenCommit, parts: &[Bytes]) -> Result<XetFile, Error> {
    let stream = commit.stream().await?;
    for part in parts {
        write(&stream, part.clone()).await?;
    }
    let size = parts.iter().map(|part| part.len() as u64).sum();
    finish(&stream, size).await
}

/// One object on its way: parts in order, then [`finish`](Self::finish). Dropping it aborts.
pub(crate) struct Upload {
    xet: Xet,
    commit: OpenCommit,
    stream: XetStreamUpload,
    token: Arc<CasToken>,
    size: u64,
}

impl Upload {
    /// Appends `part`. hf-xet keeps at most a xorb (64 MiB) of it before it goes out.
    pub(crate) async fn write(&mut self, part: Bytes) -> Result<(), Error> {
        self.size += part.len() as u64;
        let result = write(&self.stream, part).await;
        self.note(result)
    }

    /// Brings the last bytes to the CAS and names the content.
    pub(crate) async fn finish(self) -> Result<XetFile, Error> {
        let file = self.note(finish(&self.stream, self.size).await)?;
        let (xet, token) = (self.xet, self.token);
        self.commit.commit().await.inspect_err(|error| {
            if error.is_auth() {
                xet.inner.tokens.reject(Access::Write, &token);
            }
        })?;
        Ok(file)
    }

    /// Parts that are gone cannot be sent again, but the next upload shall have another token.
    fn note<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && error.is_auth()
        {
            self.xet.inner.tokens.reject(Access::Write, &self.token);
        }
        result
    }
}

async fn write(stream: &XetStreamUpload, part: Bytes) -> Result<(), Error> {
    if part.is_empty() {
        return Ok(());
    }
    stream
        .write(part)
        .await
        .map_err(|e| Error::from_xet("upload a part", &e))
}

async fn finish(stream: &XetStreamUpload, size: u64) -> Result<XetFile, Error> {
    let what = "finish an upload";
    let meta = stream
        .finish()
        .await
        .map_err(|e| Error::from_xet(what, &e))?;
    match meta.xet_info.file_size {
        Some(seen) if seen != size => Err(Error::Failed {
            what: what.into(),
            message: format!("hf-xet took {seen} of {size} bytes"),
        }),
        _ => Ok(XetFile {
            hash: meta.xet_info.hash,
            size,
        }),
    }
}
