//! Downloads: a range of one content as a stream that is as long as asked, or ends with an error.
//!
//! hf-xet hands out a content in the pieces in which the CAS stores it, of up to 64 MiB each, however
//! slowly they are taken. So a long range is asked for in windows: one is read while a few more are on
//! their way, and all downloads of a store share what may be ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, try_unfold};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use xet::xet_session::{XetDownloadStream, XetFileInfo};

use super::session::DownloadGroup;
use super::{Error, Xet, XetFile};
use crate::hub::Access;

/// How often a download goes on from where it broke. hf-xet has its own retries below this; what
/// remains are refused tokens and groups that an earlier error has poisoned.
const RESUMES: usize = 2;

/// Bytes that are asked for at a time. Chunks at the edges, of 64 KiB on average, are sent twice.
pub(super) const WINDOW: u64 = 4 << 20;

impl Xet {
    /// The bytes of `range`, which must lie within the content. Nothing is asked of the CAS until
    /// the stream is polled; dropping the stream ends the transfer.
    pub(crate) fn download(
        &self,
        file: XetFile,
        range: Range<u64>,
    ) -> BoxStream<'static, Result<Bytes, Error>> {
        debug_assert!(range.start <= range.end && range.end <= file.size);
        let windows = Windows {
            ahead: VecDeque::new(),
            read_ahead: Arc::clone(&self.inner.read_ahead),
            xet: self.clone(),
            file,
            rest: range,
        };
        try_unfold(windows, |mut windows| async move {
            Ok(windows.next().await?.map(|bytes| (bytes, windows)))
        })
        .boxed()
    }
}

/// A range, window by window.
struct Windows {
    xet: Xet,
    file: XetFile,
    /// What has not been asked for yet.
    rest: Range<u64>,
    /// The window that is read, and those on their way behind it.
    ahead: VecDeque<Window>,
    /// Windows that may be on their way beyond the first of each download.
    read_ahead: Arc<Semaphore>,
}

struct Window {
    download: Download,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Windows {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            self.ask_ahead().await;
            let Some(first) = self.ahead.front_mut() else {
                return Ok(None);
            };
            if let Some(bytes) = first.download.next().await? {
                return Ok(Some(bytes));
            }
            self.ahead.pop_front();
        }
    }

    /// Each download may always have one window, so that none waits for another's reader; further ones
    /// as far as the store's share for reading ahead goes.
    async fn ask_ahead(&mut self) {
        while !self.rest.is_empty() {
            let permit = match self.ahead.is_empty() {
                true => None,
                false => match Arc::clone(&self.read_ahead).try_acquire_owned() {
                    Ok(permit) => Some(permit),
                    Err(_) => return,
                },
            };
            let end = self.rest.end.min(self.rest.start.saturating_add(WINDOW));
            let range = self.rest.start..end;
            self.rest.start = end;
            let is_first = self.ahead.is_empty();
            let mut download = Download::new(&self.xet, self.file.clone(), range);
            // What cannot be started now is tried again when its turn comes.
            if !is_first && let Err(error) = download.start().await {
                tracing::debug!(%error, "a window could not be asked for ahead");
            }
            self.ahead.push_back(Window {
                download,
                _permit: permit,
            });
        }
    }
}

/// One window.
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
    fn new(xet: &Xet, file: XetFile, range: Range<u64>) -> Self {
        Self {
            xet: xet.clone(),
            file,
            expected: range.end - range.start,
            rest: range,
            open: None,
            resumes: RESUMES,
        }
    }

    fn what(&self) -> String {
        format!("read content {}", self.file.hash)
    }

    /// Lets hf-xet begin, which goes on by itself.
    async fn start(&mut self) -> Result<(), Error> {
        if self.open.is_none() {
            let group = self.xet.inner.download_group().await?;
            let info = XetFileInfo::new(self.file.hash.clone(), self.file.size);
            let stream = group
                .group
                .download_stream(info, Some(self.rest.clone()))
                .await;
            match stream {
                Ok(mut stream) => {
                    stream.start();
                    self.open = Some((group, stream));
                }
                Err(e) => {
                    self.xet.inner.discard_group(&group);
                    return Err(Error::from_xet(self.what(), &e));
                }
            }
        }
        Ok(())
    }

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
        self.start().await?;
        let next = match &mut self.open {
            Some((_, stream)) => stream.next().await,
            None => Ok(None),
        };
        match next {
            Ok(Some(bytes)) => Ok(bytes),
            // hf-xet ends a stream without an error where the CAS answers 416, as some servers do
            // for content they do not know.
            Ok(None) => Err(Error::Truncated {
                what: self.what(),
                received: self.expected - (self.rest.end - self.rest.start),
                expected: self.expected,
            }),
            Err(e) => Err(Error::from_xet(self.what(), &e)),
        }
    }

    fn advance(&mut self, len: u64) -> Result<(), Error> {
        let left = self.rest.end - self.rest.start;
        if len > left {
            return Err(Error::Excess {
                what: self.what(),
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
