//! Where a redirect may lead.
//!
//! `reqwest` follows nothing for us: it would drop the rules below, of which the first is that the
//! token never leaves the endpoint's origin (see `send`).

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Method, StatusCode};
use thiserror::Error as ThisError;
use url::Url;

use super::error::{Error, ErrorKind, shown};

/// As many as the Hub's own client allows.
pub(super) const MAX_HOPS: usize = 20;

/// What a call does with a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redirects {
    /// Renamed and other-cased ids: only within the Hub.
    WithinHub,
    /// As `WithinHub`, but a redirect that describes the file (`X-Linked-Size`, `X-Xet-Hash`) is
    /// itself the answer.
    Describing,
    /// The bytes lie on another origin, at a signed URL.
    Anywhere,
}

#[derive(Debug, ThisError)]
pub(super) enum RedirectError {
    #[error("redirected without a readable Location")]
    NoLocation,
    #[error("redirected to something that is no URL: {0}")]
    NotAUrl(#[source] url::ParseError),
    #[error("redirected to {to}, which is neither {endpoint} nor a host of the Hub: not followed")]
    Elsewhere { to: String, endpoint: String },
    #[error("redirected from https to {to}: not followed")]
    Downgrade { to: String },
    #[error("redirected to {to}: a {method} is not repeated after {status}")]
    NotRepeatable {
        to: String,
        method: Method,
        status: StatusCode,
    },
    #[error("redirected more than {MAX_HOPS} times, last to {to}")]
    TooMany { to: String },
}

impl From<RedirectError> for Error {
    fn from(error: RedirectError) -> Self {
        let kind = match error {
            RedirectError::TooMany { .. } => ErrorKind::TooManyRedirects,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// Follows one redirect that answered `method from` with `status`.
pub(super) fn follow(
    redirects: Redirects,
    endpoint: &Url,
    method: &Method,
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Url, RedirectError> {
    let location = headers.get(LOCATION).ok_or(RedirectError::NoLocation)?;
    let location =
        std::str::from_utf8(location.as_bytes()).map_err(|_| RedirectError::NoLocation)?;
    // Joined as RFC 3986 says: a relative Location is common here, and its query counts.
    let mut to = from.join(location).map_err(RedirectError::NotAUrl)?;
    to.set_fragment(None);
    if !matches!(to.scheme(), "http" | "https") {
        return Err(elsewhere(endpoint, &to));
    }
    // User info would turn into an `Authorization` of its own.
    if !to.username().is_empty() || to.password().is_some() {
        return Err(elsewhere(endpoint, &to));
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(RedirectError::Downgrade { to: shown(&to) });
    }
    if redirects != Redirects::Anywhere && to.origin() != endpoint.origin() && !is_hub_host(&to) {
        return Err(elsewhere(endpoint, &to));
    }
    let repeatable = *method == Method::GET
        || matches!(
            status,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
    if !repeatable {
        return Err(RedirectError::NotRepeatable {
            to: shown(&to),
            method: method.clone(),
            status,
        });
    }
    Ok(to)
}

/// Whether an answer to `resolve` tells what the file is, be it a redirect or not.
pub(super) fn describes_file(headers: &HeaderMap) -> bool {
    headers.contains_key("x-linked-size") || headers.contains_key("x-xet-hash")
}

fn is_hub_host(url: &Url) -> bool {
    url.scheme() == "https"
        && url
            .host_str()
            .is_some_and(|host| host == "huggingface.co" || host.ends_with(".huggingface.co"))
}

fn elsewhere(endpoint: &Url, to: &Url) -> RedirectError {
    RedirectError::Elsewhere {
        to: shown(to),
        endpoint: endpoint.origin().ascii_serialization(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(redirects: Redirects, method: Method, status: u16, to: &str) -> Result<String, String> {
        let endpoint = Url::parse("https://hub.test").unwrap();
        let from = Url::parse("https://hub.test/api/buckets/O/b/tree/x?limit=9").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, to.parse().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        follow(redirects, &endpoint, &method, &from, status, &headers)
            .map(String::from)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn relative_locations_keep_their_query() {
        for (to, expected) in [
            (
                "/api/buckets/o/b/tree/x?limit=9&a=%2F",
                "https://hub.test/api/buckets/o/b/tree/x?limit=9&a=%2F",
            ),
            ("y?z=1#frag", "https://hub.test/api/buckets/O/b/tree/y?z=1"),
            ("https://hub.test/q", "https://hub.test/q"),
            ("https://huggingface.co/q", "https://huggingface.co/q"),
            ("https://eu.huggingface.co/q", "https://eu.huggingface.co/q"),
        ] {
            assert_eq!(
                go(Redirects::WithinHub, Method::GET, 307, to).as_deref(),
                Ok(expected),
                "{to}"
            );
        }
    }

    #[test]
    fn api_calls_stay_at_the_hub() {
        for to in [
            "https://evil.test/x",
            "https://huggingface.co.evil.test/x",
            "https://evilhuggingface.co/x",
            "//evil.test/x",
            "https://hub.test:444/x",
            "http://huggingface.co/x",
            "ftp://hub.test/x",
            "https://me:pw@hub.test/x",
        ] {
            let error = go(Redirects::WithinHub, Method::GET, 307, to).unwrap_err();
            assert!(error.contains("not followed"), "{to}: {error}");
            assert!(!error.contains("pw@"), "{error}");
        }
    }

    #[test]
    fn downloads_go_anywhere_but_not_from_https_to_http() {
        let to = "https://cdn.test/x?Signature=s";
        assert_eq!(
            go(Redirects::Anywhere, Method::GET, 302, to).as_deref(),
            Ok(to)
        );
        let error = go(
            Redirects::Anywhere,
            Method::GET,
            302,
            "http://cdn.test/x?s=1",
        )
        .unwrap_err();
        assert_eq!(
            error,
            "redirected from https to http://cdn.test/x: not followed"
        );
    }

    #[test]
    fn a_post_is_repeated_only_where_the_status_says_so() {
        let post = |status| go(Redirects::WithinHub, Method::POST, status, "/y");
        assert!(post(307).is_ok());
        assert!(post(308).is_ok());
        for status in [301, 302, 303] {
            assert!(
                post(status).unwrap_err().contains("not repeated"),
                "{status}"
            );
        }
    }

    #[test]
    fn a_redirect_needs_a_location() {
        let url = Url::parse("https://hub.test").unwrap();
        let result = follow(
            Redirects::WithinHub,
            &url,
            &Method::GET,
            &url,
            StatusCode::FOUND,
            &HeaderMap::new(),
        );
        assert!(matches!(result, Err(RedirectError::NoLocation)));
    }
}
