//! One error for the whole layer: what was tried, on what, how often, what the Hub said, and what
//! to do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use url::Url;

use super::types::BucketId;

/// What went wrong, as far as a caller may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ErrorKind {
    BucketNotFound,
    EntryNotFound,
    /// 401: no token, or one that the Hub does not know.
    Unauthenticated,
    /// 403: the token lacks the right.
    PermissionDenied,
    /// 409.
    Conflict,
    /// 412, or the object was overwritten while it was read.
    PreconditionFailed,
    /// 416.
    RangeNotSatisfiable,
    /// 400 and 422, and what is refused before any request.
    Invalid,
    /// 429, after waiting as told within the time allowed.
    RateLimited,
    /// 5xx.
    Server,
    Timeout,
    Transport,
    /// An answer that cannot be read, or that contradicts itself.
    Protocol,
    TooManyRedirects,
    Offline,
    /// The token could not be had.
    Token,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// An error of the Hub client. Cheap to clone, so that it can go to every waiter.
///
/// Holds no secret: URLs are kept without query, and tokens are taken out of server messages.
#[derive(Debug, Clone)]
pub(crate) struct Error(Arc<Report>);

#[derive(Debug, Clone)]
struct Report {
    kind: ErrorKind,
    message: String,
    /// Method and URL without its query.
    call: Option<(Method, String)>,
    bucket: Option<String>,
    path: Option<String>,
    status: Option<StatusCode>,
    request_id: Option<String>,
    anonymous: bool,
    tries: Option<Tries>,
    source: Option<Source>,
}

/// How a retry loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tries {
    pub attempts: usize,
    pub elapsed: Duration,
    /// The wait that the next attempt would have needed, and the time that was left for it.
    pub refused_wait: Option<(Duration, Duration)>,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Report {
            kind,
            message: message.into(),
            call: None,
            bucket: None,
            path: None,
            status: None,
            request_id: None,
            anonymous: false,
            tries: None,
            source: None,
        }))
    }

    /// The Hub described a file without its size.
    pub(crate) fn no_size(bucket: &BucketId, path: &str) -> Self {
        Self::new(ErrorKind::Protocol, "the Hub gives no size for this file")
            .in_bucket(bucket)
            .at_path(path)
    }

    /// The token could not be had.
    pub(crate) fn no_token(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        let message = format!("the Hub token could not be had: {source}");
        Self::new(ErrorKind::Token, message).with_source(source)
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    #[cfg(test)]
    pub(super) fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.0.status.map(|status| status.as_u16())
    }

    /// The message alone, without call, counts and advice.
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    fn edit(mut self, edit: impl FnOnce(&mut Report)) -> Self {
        edit(Arc::make_mut(&mut self.0));
        self
    }

    pub(super) fn during(self, method: &Method, url: &Url) -> Self {
        self.edit(|r| r.call = Some((method.clone(), shown(url))))
    }

    pub(super) fn in_bucket(self, bucket: &BucketId) -> Self {
        self.edit(|r| r.bucket = Some(bucket.to_string()))
    }

    pub(super) fn at_path(self, path: &str) -> Self {
        self.edit(|r| r.path = Some(path.to_owned()))
    }

    pub(super) fn with_status(self, status: StatusCode) -> Self {
        self.edit(|r| r.status = Some(status))
    }

    pub(super) fn with_request_id(self, id: Option<String>) -> Self {
        self.edit(|r| r.request_id = id)
    }

    /// No token was sent, which changes the advice.
    pub(super) fn anonymously(self, anonymous: bool) -> Self {
        self.edit(|r| r.anonymous = anonymous)
    }

    pub(super) fn after(self, tries: Tries) -> Self {
        self.edit(|r| r.tries = Some(tries))
    }

    pub(super) fn with_kind(self, kind: ErrorKind) -> Self {
        self.edit(|r| r.kind = kind)
    }

    pub(super) fn with_message(self, message: impl Into<String>) -> Self {
        self.edit(|r| r.message = message.into())
    }

    pub(super) fn with_source(
        self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        self.edit(|r| r.source = Some(Arc::new(source)))
    }
}

/// The URL without query, fragment and user info: signed URLs carry their secret in the query.
pub(super) fn shown(url: &Url) -> String {
    let mut text = url.origin().ascii_serialization();
    text.push_str(url.path());
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &*self.0;
        if let Some((method, url)) = &report.call {
            write!(f, "{method} {url}: ")?;
        }
        if let Some(status) = report.status {
            write!(f, "{status}")?;
            if !report.message.is_empty() {
                write!(f, ": ")?;
            }
        }
        write!(f, "{}", report.message)?;
        report.write_details(f)?;
        if let Some(Tries {
            refused_wait: Some((wait, left)),
            ..
        }) = report.tries
        {
            write!(
                f,
                "; gave up, as the next attempt is due in {} and only {} are left for this call",
                seconds(wait),
                seconds(left)
            )?;
        }
        match report.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl Report {
    fn write_details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut details = Vec::new();
        if let Some(bucket) = &self.bucket {
            details.push(format!("bucket '{bucket}'"));
        }
        if let Some(path) = &self.path {
            details.push(format!("path '{path}'"));
        }
        if let Some(tries) = self.tries {
            let s = if tries.attempts == 1 { "" } else { "s" };
            let elapsed = seconds(tries.elapsed);
            details.push(format!("{} attempt{s} in {elapsed}", tries.attempts));
        }
        if let Some(id) = &self.request_id {
            details.push(format!("request id {id}"));
        }
        if details.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", details.join(", "))
    }

    fn advice(&self) -> Option<&'static str> {
        Some(match self.kind {
            ErrorKind::Unauthenticated if self.anonymous => {
                "no token was sent: set HF_TOKEN or log in; without one the Hub does not tell a \
                 private bucket from a missing one"
            }
            // Where the token itself is at fault, the Hub says so. Its other 401s mean a bucket that
            // is missing or private.
            ErrorKind::Unauthenticated if !self.message.contains("Invalid credentials") => {
                "the Hub does not accept the token, or the bucket is missing or hidden from it: \
                 check HF_TOKEN (or the token given) and the bucket's name"
            }
            ErrorKind::Unauthenticated => {
                "the Hub does not accept the token: check that HF_TOKEN (or the token given) is \
                 whole and neither expired nor revoked"
            }
            ErrorKind::PermissionDenied if self.anonymous => {
                "no token was sent: set HF_TOKEN to one with the right"
            }
            ErrorKind::PermissionDenied => {
                "the token lacks the right: it needs write access to this bucket's namespace to \
                 change anything"
            }
            ErrorKind::BucketNotFound if self.anonymous => {
                "create the bucket first or check its name; a private one needs a token (HF_TOKEN)"
            }
            ErrorKind::BucketNotFound => {
                "create the bucket first, or check its name, the endpoint, and that the token may \
                 see it: the Hub hides private buckets behind a 404"
            }
            ErrorKind::RateLimited => {
                "the plan's limit per 5 minutes is used up: slow down, allow more time for retries, \
                 or use a token of a higher plan"
            }
            ErrorKind::Offline => "unset HF_HUB_OFFLINE to reach the Hub",
            ErrorKind::Transport => "check the network, a proxy, and the endpoint",
            _ => return None,
        })
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_the_whole_story_but_no_query() {
        let url = Url::parse("https://u:p@huggingface.co/api/x?sig=hf_secret#f").unwrap();
        let bucket = BucketId {
            namespace: "o".into(),
            name: "b".into(),
        };
        let error = Error::new(ErrorKind::RateLimited, "slow down")
            .during(&Method::GET, &url)
            .in_bucket(&bucket)
            .at_path("a b")
            .with_status(StatusCode::TOO_MANY_REQUESTS)
            .with_request_id(Some("Root=1".into()))
            .after(Tries {
                attempts: 2,
                elapsed: Duration::from_millis(1500),
                refused_wait: Some((Duration::from_secs(56), Duration::from_secs(8))),
            });
        assert_eq!(
            error.to_string(),
            "GET https://huggingface.co/api/x: 429 Too Many Requests: slow down (bucket 'o/b', \
             path 'a b', 2 attempts in 1.5 s, request id Root=1); gave up, as the next attempt is \
             due in 56.0 s and only 8.0 s are left for this call; the plan's limit per 5 minutes \
             is used up: slow down, allow more time for retries, or use a token of a higher plan"
        );
        assert_eq!(error.status(), Some(429));
        assert_eq!(error.request_id(), Some("Root=1"));
    }

    #[test]
    fn clones_are_edited_apart() {
        let one = Error::new(ErrorKind::Server, "x");
        let other = one.clone().at_path("p");
        assert_eq!(one.to_string(), "x");
        assert_eq!(other.to_string(), "x (path 'p')");
    }
}
