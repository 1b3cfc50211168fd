//! One call, described: what is asked of which bucket and path, and what its answers mean.

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use thiserror::Error as ThisError;
use url::Url;

use super::budget::Class;
use super::error::{Error, ErrorKind};
use super::redirect::Redirects;
use super::reply::NotFound;
use super::retry::Safety;
use super::types::BucketId;
use crate::location::key_fault;

/// Everything but RFC 3986's unreserved characters: keys may hold spaces, `# ? % + &` and any
/// script.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[derive(Debug, ThisError)]
pub(super) enum CallError {
    #[error("the path is refused by the Hub: {0}")]
    Key(&'static str),
    #[error("'{name}' names no bucket: {reason}")]
    Bucket { name: String, reason: &'static str },
    #[error("the endpoint and the path make no URL: {0}")]
    Url(#[source] url::ParseError),
    #[error("the request cannot be written as JSON: {0}")]
    Json(#[source] serde_json::Error),
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string()).with_source(error)
    }
}

/// A request and how to treat it.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub method: Method,
    pub url: Url,
    /// What the Hub counts it as.
    pub class: Class,
    pub bucket: Option<&'a BucketId>,
    pub path: Option<&'a str>,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub redirects: Redirects,
    pub safety: Safety,
    pub not_found: NotFound,
    /// 422 is an answer like 200 (batch reports).
    pub takes_422: bool,
    /// The answer is a secret, of which errors show nothing.
    pub secret_reply: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            class: Class::Api,
            bucket: None,
            path: None,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            redirects: Redirects::WithinHub,
            safety: Safety::Idempotent,
            not_found: NotFound::Route,
            takes_422: false,
            secret_reply: false,
        }
    }

    /// A call of `/api/buckets/{ns}/{name}{tail}`.
    pub(super) fn api(
        method: Method,
        endpoint: &Url,
        bucket: &'a BucketId,
        tail: &str,
    ) -> Result<Self, CallError> {
        let url = join(
            endpoint,
            &format!("/api/buckets/{}{tail}", encode_id(bucket)?),
        )?;
        Ok(Self {
            bucket: Some(bucket),
            not_found: NotFound::Bucket,
            ..Self::new(method, url)
        })
    }

    /// `GET /buckets/{ns}/{name}/resolve/{path}`: no `/api`, no revision.
    pub(super) fn resolve(
        endpoint: &Url,
        bucket: &'a BucketId,
        path: &'a str,
    ) -> Result<Self, CallError> {
        check_key(path)?;
        let (id, key) = (encode_id(bucket)?, encode_path(path));
        let url = join(endpoint, &format!("/buckets/{id}/resolve/{key}"))?;
        Ok(Self {
            class: Class::Resolvers,
            bucket: Some(bucket),
            path: Some(path),
            not_found: NotFound::Entry,
            ..Self::new(Method::GET, url)
        })
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Result<Self, CallError> {
        self.body = serde_json::to_vec(body).map_err(CallError::Json)?.into();
        let json = HeaderValue::from_static("application/json");
        Ok(self.header(CONTENT_TYPE, json))
    }

    /// Puts what this call is about into an error.
    pub(super) fn describe(&self, mut error: Error) -> Error {
        error = error.during(&self.method, &self.url);
        if let Some(bucket) = self.bucket {
            error = error.in_bucket(bucket);
        }
        if let Some(path) = self.path {
            error = error.at_path(path);
        }
        error
    }
}

/// Keys are refused, never rewritten: collapsing `//`, say, would name another object.
pub(super) fn check_key(path: &str) -> Result<(), CallError> {
    key_fault(path).map_or(Ok(()), |fault| Err(CallError::Key(fault)))
}

pub(super) fn encode_path(path: &str) -> String {
    let segments: Vec<_> = path
        .split('/')
        .map(|segment| utf8_percent_encode(segment, SEGMENT).to_string())
        .collect();
    segments.join("/")
}

fn encode_id(bucket: &BucketId) -> Result<String, CallError> {
    for part in [&bucket.namespace, &bucket.name] {
        let fault = key_fault(part).or(part.contains('/').then_some("it holds '/'"));
        if let Some(reason) = fault {
            return Err(CallError::Bucket {
                name: bucket.to_string(),
                reason,
            });
        }
    }
    let encode = |part| utf8_percent_encode(part, SEGMENT);
    Ok(format!(
        "{}/{}",
        encode(&bucket.namespace),
        encode(&bucket.name)
    ))
}

/// `endpoint` may have a path of its own (a proxy's).
pub(super) fn join(endpoint: &Url, path: &str) -> Result<Url, CallError> {
    let base = endpoint.as_str().trim_end_matches('/');
    Url::parse(&format!("{base}{path}")).map_err(CallError::Url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(namespace: &str, name: &str) -> BucketId {
        BucketId {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn paths_are_encoded_per_segment() {
        let endpoint = Url::parse("https://hub.test/").unwrap();
        let bucket = id("o", "b");
        for (path, expected) in [
            ("a/b.txt", "a/b.txt"),
            ("a b/#?%+&", "a%20b/%23%3F%25%2B%26"),
            ("日/🦀", "%E6%97%A5/%F0%9F%A6%80"),
            ("a%20b", "a%2520b"),
            ("m@1;=,:~'\"", "m%401%3B%3D%2C%3A~%27%22"),
            ("...", "..."),
        ] {
            let call = Call::resolve(&endpoint, &bucket, path).unwrap();
            assert_eq!(
                call.url.as_str(),
                format!("https://hub.test/buckets/o/b/resolve/{expected}")
            );
        }
    }

    #[test]
    fn bad_keys_never_become_a_url() {
        let endpoint = Url::parse("https://hub.test").unwrap();
        let bucket = id("o", "b");
        for path in ["", "/a", "a/", "a//b", "a/../b", ".", "..", "a\\b", "a\0"] {
            let error = Call::resolve(&endpoint, &bucket, path).unwrap_err();
            assert!(matches!(error, CallError::Key(_)), "{path:?}");
        }
        for bucket in [id("", "b"), id("o", ""), id("..", "b"), id("o", "b/c")] {
            let error = Call::api(Method::GET, &endpoint, &bucket, "").unwrap_err();
            assert!(matches!(error, CallError::Bucket { .. }), "{bucket}");
        }
    }

    #[test]
    fn an_endpoint_may_have_a_path() {
        let endpoint = Url::parse("http://proxy.test/hf/").unwrap();
        let bucket = id("o", "b");
        let call = Call::api(Method::GET, &endpoint, &bucket, "/tree").unwrap();
        assert_eq!(
            call.url.as_str(),
            "http://proxy.test/hf/api/buckets/o/b/tree"
        );
    }
}
