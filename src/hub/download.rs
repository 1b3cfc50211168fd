//! Downloads over plain HTTP: through the Hub's redirect to a signed URL, counting the bytes.

use std::ops::Range;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, RANGE};
use thiserror::Error as ThisError;
use tracing::debug;

use super::call::Call;
use super::client::HubClient;
use super::error::{Error, ErrorKind};
use super::redirect::Redirects;
use super::reply::{number, text};
use super::retry::{Backoff, Failure, run};
use super::send::{Arrived, transport};
use super::types::{BucketId, Download};

/// A body that brought this much before it broke off is worth another full round of retries: a time
/// limit per request cuts large objects into pieces.
const PROGRESS: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq, ThisError)]
enum DownloadError {
    #[error("the answer does not tell the object's size")]
    NoSize,
    #[error("the object is said to have {linked} bytes, but the answer is about {answered}")]
    Sizes { linked: u64, answered: u64 },
    #[error("bytes {}..{} were asked for, but the answer holds {}..{}",
        asked.start, asked.end, answered.start, answered.end)]
    Range {
        asked: Range<u64>,
        answered: Range<u64>,
    },
    #[error("a part was answered that nobody asked for")]
    Unasked,
    #[error("the range starts at {start}, but the object has {size} bytes")]
    PastTheEnd { start: u64, size: u64 },
    #[error("the download ended early: {missing} bytes of {wanted} are missing")]
    Short { missing: u64, wanted: u64 },
    #[error("the download went on after the {wanted} bytes that were due")]
    Long { wanted: u64 },
    #[error("the answer is compressed ({0}), which was not asked for")]
    Encoded(String),
    #[error("the object was overwritten during the download")]
    Overwritten,
}

impl From<DownloadError> for Error {
    fn from(error: DownloadError) -> Self {
        let kind = match error {
            DownloadError::PastTheEnd { .. } => ErrorKind::RangeNotSatisfiable,
            DownloadError::Overwritten => ErrorKind::PreconditionFailed,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// A download that has begun.
struct Opened {
    size: u64,
    range: Range<u64>,
    xet_hash: Option<String>,
    body: Body,
}

type Body = BoxStream<'static, Result<Bytes, Error>>;

impl HubClient {
    /// Downloads a file, or the part of it that lies in `range`.
    ///
    /// The stream yields exactly the bytes that [`Download::range`] says, or ends with an error. A
    /// body that breaks off is continued from where it broke, as long as the object is the same.
    pub(crate) async fn download(
        &self,
        id: &BucketId,
        path: &str,
        range: Option<Range<u64>>,
    ) -> Result<Download, Error> {
        // HTTP has no way to ask for nothing.
        if let Some(range) = range.as_ref().filter(|range| range.is_empty()) {
            return self.download_nothing(id, path, range.start).await;
        }
        let opened = self.open(id, path, range).await?;
        let wanted = opened.range.clone();
        let (size_of_object, xet_hash) = (opened.size, opened.xet_hash.clone());
        let reading = Reading {
            client: self.clone(),
            id: id.clone(),
            path: path.to_owned(),
            xet_hash: opened.xet_hash,
            next: wanted.start,
            wanted: wanted.clone(),
            body: opened.body,
            resumes: 0,
            resumed_at: wanted.start,
            backoff: Backoff::new(self.retry_policy()),
        };
        let stream = stream::try_unfold(reading, |mut reading| async move {
            let chunk = reading.next().await?;
            Ok(chunk.map(|chunk| (chunk, reading)))
        });
        Ok(Download {
            size_of_object,
            range: wanted,
            xet_hash,
            stream: stream.boxed(),
        })
    }

    async fn download_nothing(
        &self,
        id: &BucketId,
        path: &str,
        start: u64,
    ) -> Result<Download, Error> {
        let info = self.resolve(id, path).await?;
        if start > info.size {
            let error = DownloadError::PastTheEnd {
                start,
                size: info.size,
            };
            return Err(Error::from(error).in_bucket(id).at_path(path));
        }
        Ok(Download {
            size_of_object: info.size,
            range: start..start,
            xet_hash: info.xet_hash,
            stream: stream::empty().boxed(),
        })
    }

    async fn open(
        &self,
        id: &BucketId,
        path: &str,
        range: Option<Range<u64>>,
    ) -> Result<Opened, Error> {
        let mut call = Call::resolve(self.endpoint(), id, path)?
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        call.redirects = Redirects::Anywhere;
        if let Some(range) = &range {
            let value = HeaderValue::from_str(&range_header(range))
                .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
            call = call.header(RANGE, value);
        }
        self.check_online(&call)?;
        let (call, range) = (&call, &range);
        let deadline = self.retry_policy().deadline();
        run(self.retry_policy(), deadline, call.safety, || async move {
            let arrived = self.dispatch(call, deadline).await?;
            let status = arrived.response.status();
            opened(call, range.as_ref(), arrived)
                .map_err(|error| Failure::last(Error::from(error).with_status(status)))
        })
        .await
        .map_err(|gave_up| call.describe(gave_up.error))
    }
}

/// Ends that are meant as "to the end" stay open: servers with signed integers choke on them.
fn range_header(range: &Range<u64>) -> String {
    if range.end > i64::MAX as u64 {
        return format!("bytes={}-", range.start);
    }
    format!("bytes={}-{}", range.start, range.end - 1)
}

fn opened(
    call: &Call<'_>,
    asked: Option<&Range<u64>>,
    arrived: Arrived,
) -> Result<Opened, DownloadError> {
    let Arrived {
        response,
        described,
        ..
    } = arrived;
    let headers = response.headers();
    if let Some(encoding) = text(headers, "content-encoding")
        && encoding != "identity"
    {
        return Err(DownloadError::Encoded(encoding));
    }
    let described = described.as_ref().unwrap_or(headers);
    let linked = number(described, "x-linked-size");
    let layout = layout(response.status(), headers, linked, asked)?;
    let xet_hash = text(described, "x-xet-hash");
    let template = call.describe(Error::new(ErrorKind::Transport, ""));
    let body = response.bytes_stream().map(move |chunk| {
        chunk.map_err(|error| {
            let Failure { error, .. } = transport(error);
            template
                .clone()
                .with_message(error.message())
                .with_kind(error.kind())
        })
    });
    Ok(Opened {
        size: layout.size,
        xet_hash,
        body: window(body.boxed(), layout.skip, &layout.range),
        range: layout.range,
    })
}

/// Where the wanted bytes are in an answer.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    size: u64,
    range: Range<u64>,
    /// Bytes of the answer before the wanted ones; `None` if the answer is the wanted ones.
    skip: Option<u64>,
}

fn layout(
    status: StatusCode,
    headers: &HeaderMap,
    linked: Option<u64>,
    asked: Option<&Range<u64>>,
) -> Result<Layout, DownloadError> {
    if status == StatusCode::PARTIAL_CONTENT {
        let asked = asked.ok_or(DownloadError::Unasked)?;
        let (answered, total) = content_range(headers).ok_or(DownloadError::NoSize)?;
        let size = agreed(linked, total)?;
        let clamped = asked.start..asked.end.min(size);
        if answered != clamped {
            return Err(DownloadError::Range {
                asked: clamped,
                answered,
            });
        }
        return Ok(Layout {
            size,
            range: clamped,
            skip: None,
        });
    }
    let size = agreed(linked, number(headers, "content-length"))?;
    let Some(asked) = asked else {
        return Ok(Layout {
            size,
            range: 0..size,
            skip: None,
        });
    };
    // The range was ignored. Whether the Hub's own answers (without a redirect) know ranges is not
    // documented.
    if asked.start >= size {
        return Err(DownloadError::PastTheEnd {
            start: asked.start,
            size,
        });
    }
    Ok(Layout {
        size,
        range: asked.start..asked.end.min(size),
        skip: Some(asked.start),
    })
}

fn agreed(linked: Option<u64>, answered: Option<u64>) -> Result<u64, DownloadError> {
    match (linked, answered) {
        (Some(linked), Some(answered)) if linked != answered => {
            Err(DownloadError::Sizes { linked, answered })
        }
        (Some(size), _) | (None, Some(size)) => Ok(size),
        (None, None) => Err(DownloadError::NoSize),
    }
}

/// `bytes 3-9/100`, or `bytes 3-9/*` if the size is not told.
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, Option<u64>)> {
    let text = text(headers, "content-range")?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.trim().split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let total = match total.trim() {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    Some((first..last.checked_add(1)?, total))
}

/// Cuts the wanted bytes out of an answer that holds the whole object.
fn window(body: Body, skip: Option<u64>, range: &Range<u64>) -> Body {
    let Some(skip) = skip else { return body };
    let start = (body, skip, range.end - range.start);
    stream::try_unfold(start, |(mut body, mut skip, mut take)| async move {
        while take > 0 {
            let Some(mut chunk) = body.next().await.transpose()? else {
                break;
            };
            let skipped = skip.min(chunk.len() as u64);
            skip -= skipped;
            // Both casts fit: neither number exceeds the length of the chunk.
            let mut rest = chunk.split_off(skipped as usize);
            rest.truncate(take.min(rest.len() as u64) as usize);
            take -= rest.len() as u64;
            if !rest.is_empty() {
                return Ok(Some((rest, (body, skip, take))));
            }
        }
        Ok(None)
    })
    .boxed()
}

/// A stream under way.
struct Reading {
    client: HubClient,
    id: BucketId,
    path: String,
    xet_hash: Option<String>,
    wanted: Range<u64>,
    /// The offset of the next byte.
    next: u64,
    body: Body,
    /// Since the last progress worth the name.
    resumes: usize,
    /// Where the last one began.
    resumed_at: u64,
    backoff: Backoff,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let left = self.wanted.end - self.next;
            let fault = match self.body.next().await {
                Some(Ok(chunk)) if chunk.is_empty() => continue,
                Some(Ok(chunk)) if chunk.len() as u64 > left => {
                    return Err(self.fault(DownloadError::Long {
                        wanted: self.wanted.end - self.wanted.start,
                    }));
                }
                Some(Ok(chunk)) => {
                    self.next += chunk.len() as u64;
                    return Ok(Some(chunk));
                }
                // All that was due is here.
                None | Some(Err(_)) if left == 0 => return Ok(None),
                None => self.fault(DownloadError::Short {
                    missing: left,
                    wanted: self.wanted.end - self.wanted.start,
                }),
                Some(Err(error)) => error,
            };
            self.resume(fault).await?;
        }
    }

    /// Opens the rest anew. Only by the hash is it known to be the rest of the same object.
    async fn resume(&mut self, fault: Error) -> Result<(), Error> {
        if self.next - self.resumed_at >= PROGRESS {
            self.resumes = 0;
            self.backoff = Backoff::new(self.client.retry_policy());
        }
        self.resumed_at = self.next;
        self.resumes += 1;
        if self.resumes > self.client.retry_policy().max_retries || self.xet_hash.is_none() {
            return Err(fault);
        }
        debug!(%fault, at = self.next, "download broke off: going on from there");
        tokio::time::sleep(self.backoff.next()).await;
        let rest = Some(self.next..self.wanted.end);
        let opened = self.client.open(&self.id, &self.path, rest.clone()).await?;
        if opened.xet_hash != self.xet_hash {
            return Err(self.fault(DownloadError::Overwritten));
        }
        if Some(&opened.range) != rest.as_ref() {
            return Err(fault);
        }
        self.body = opened.body;
        Ok(())
    }

    fn fault(&self, error: DownloadError) -> Error {
        Error::from(error).in_bucket(&self.id).at_path(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn ranges_are_written_and_read() {
        assert_eq!(range_header(&(0..1)), "bytes=0-0");
        assert_eq!(range_header(&(3..u64::MAX)), "bytes=3-");
        let read = |text: &str| content_range(&headers(&[("content-range", text)]));
        assert_eq!(read("bytes 3-9/100"), Some((3..10, Some(100))));
        assert_eq!(read("bytes 3-9/*"), Some((3..10, None)));
        for bad in [
            "3-9/100",
            "bytes 3-9",
            "bytes 3/9",
            "bytes */9",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_part_without_a_total_needs_the_linked_size() {
        let part = headers(&[("content-range", "bytes 3-9/*")]);
        let status = StatusCode::PARTIAL_CONTENT;
        let layout = |linked| layout(status, &part, linked, Some(&(3..99)));
        assert_eq!(layout(Some(10)).unwrap().range, 3..10);
        assert_eq!(layout(None), Err(DownloadError::NoSize));
    }
}
