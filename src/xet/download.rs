//! Downloads: a range of one content as a stream that is as long as asked, or ends with an error.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, try_unfold};
use xet::xet_session::{XetDownloadStream, XetFileInfo};

use super::session::DownloadGroup;
use super::{Error, Xet, XetFile};
use crate::hub::Access;

/// How often a download goes on from where it broke. hf-xet has its own retries below this; what
/// remains are refused tokens and groups that an earlier error has poisoned.
const RESUMES: usize = 2;

impl Xet {
    /// The bytes of `range`, which must lie within the content. Nothing is asked of the CAS until
    /// the stream is polled; dropping the stream ends the transfer.
    pub(crate) fn download(
        &self,
        file: XetFile,
        range: Range<u64>,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        debug_assert!(range.start <= range.end && range.end <= file.size);
        let download = Download {
            xet: self.clone(),
            file,
            expected: range.end - range.start,
            rest: range,
            open: None,
            resumes: RESUMES,
        };
        try_unfold(download, |mut download| async move {
            Ok(download.next().await?.map(|bytes| (bytes, download)))
        })
        .boxed()
    }
}

struct Download {
    xet: Xet,
    file: XetFile,
    /// Length of the whole range.
    expected: u64,
    /// What has not arrived yet.
    rest: Range<u64>,
    open: Option<(Arc<DownloadGroup>, XetDownloadStream)>,
    resumes: usize,
}

impl Download {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while !self.rest.is_empty() {
            match self.read().await {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.advance(bytes.len() as u64)?;
                    return Ok(Some(bytes));
                }
                Err(error) => self.resume_after(error)?,
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<Bytes, Error> {
        let what = || format!("read content {}", self.file.hash);
        let (_, stream) = match &mut self.open {
            Some(open) => open,
            None => {
                let group = self.xet.inner.download_group().await?;
                let info = XetFileInfo::new(self.file.hash.clone(), self.file.size);
                let stream = group
                    .group
                    .download_stream(info, Some(self.rest.clone()))
                    .await;
                match stream {
                    Ok(stream) => self.open.insert((group, stream)),
                    Err(e) => {
                        self.xet.inner.discard_group(&group);
                        return Err(Error::from_xet(what(), &e));
                    }
                }
            }
        };
        match stream.next().await {
            Ok(Some(bytes)) => Ok(bytes),
            // hf-xet ends a stream without an error where the CAS answers 416, as some servers do
            // for content they do not know.
            Ok(None) => Err(Error::Truncated {
                what: what(),
                received: self.expected - (self.rest.end - self.rest.start),
                expected: self.expected,
            }),
            Err(e) => Err(Error::from_xet(what(), &e)),
        }
    }

    fn advance(&mut self, len: u64) -> Result<(), Error> {
        let left = self.rest.end - self.rest.start;
        if len > left {
            return Err(Error::Excess {
                what: format!("read content {}", self.file.hash),
                received: self.expected - left + len,
                expected: self.expected,
            });
        }
        self.rest.start += len;
        Ok(())
    }

    /// Goes on with a new group, and with a new token if the old one was refused.
    fn resume_after(&mut self, error: Error) -> Result<(), Error> {
        if let Some((group, _)) = self.open.take() {
            self.xet.inner.discard_group(&group);
            if error.is_auth() {
                self.xet.inner.tokens.reject(Access::Read, &group.token);
            }
        }
        if self.resumes == 0 || !(error.is_auth() || error.is_transient()) {
            return Err(error);
        }
        self.resumes -= 1;
        tracing::debug!(%error, offset = self.rest.start, "a download goes on after an error");
        Ok(())
    }
}
