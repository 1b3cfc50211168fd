//! What can go wrong between this process and the CAS.

use thiserror::Error;
use xet::XetError;

use crate::hub;

/// A failed transfer. Cloneable, since several waiters may share one transfer.
#[derive(Debug, Clone, Error)]
pub(crate) enum Error {
    /// The Hub gave no CAS token.
    #[error("no token for the content-addressed store: {0}")]
    Token(#[from] hub::Error),

    /// The CAS refused its token, also after a fresh one.
    #[error("{what}: the content-addressed store refused the token: {message}")]
    Unauthenticated { what: String, message: String },

    /// The CAS does not hold this content.
    #[error("{what}: the content is not in the content-addressed store: {message}")]
    NotFound { what: String, message: String },

    /// The transfer ended before all bytes arrived.
    #[error("{what}: the content ended after {received} of {expected} bytes")]
    Truncated {
        what: String,
        received: u64,
        expected: u64,
    },

    /// More bytes arrived than were asked for.
    #[error("{what}: {received} bytes arrived where {expected} were asked for")]
    Excess {
        what: String,
        received: u64,
        expected: u64,
    },

    /// A transfer that another try may bring through: network, time, load.
    #[error("{what}: {message}")]
    Transient { what: String, message: String },

    /// Anything else that hf-xet reports: corrupt data, local files, its own state.
    #[error("{what}: {message}")]
    Failed { what: String, message: String },
}

impl Error {
    /// Reads an error of hf-xet; `what` says what was tried on which content.
    pub(super) fn from_xet(what: impl Into<String>, error: &XetError) -> Self {
        let what = what.into();
        let message = without_queries(&error.to_string());
        match error {
            XetError::Authentication(_) => Self::Unauthenticated { what, message },
            // A status that hf-xet does not classify reaches us only as text.
            XetError::Network(text) => match status_in(text) {
                Some(401 | 403) => Self::Unauthenticated { what, message },
                Some(404) => Self::NotFound { what, message },
                Some(400..=499) => Self::Failed { what, message },
                _ => Self::Transient { what, message },
            },
            XetError::NotFound(_) => Self::NotFound { what, message },
            XetError::RateLimited(_) | XetError::ServerError(_) | XetError::Timeout(_) => {
                Self::Transient { what, message }
            }
            _ => Self::Failed { what, message },
        }
    }

    /// Whether there was no token because there is no bucket.
    pub(crate) fn is_bucket_missing(&self) -> bool {
        matches!(self, Self::Token(error) if error.kind() == hub::ErrorKind::BucketNotFound)
    }

    /// Whether a new group with a new token may succeed.
    pub(super) fn is_auth(&self) -> bool {
        matches!(self, Self::Unauthenticated { .. })
    }

    /// Whether the same transfer is worth another try.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. } | Self::Truncated { .. })
    }
}

/// reqwest words a status as `… status client error (401 Unauthorized) for url …`. 408 and 429 are
/// left out: those are worth another try.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status client error (")?;
    let status = rest.get(..3)?.parse().ok()?;
    (!matches!(status, 408 | 429)).then_some(status)
}

/// The text with the query of each URL cut off: download URLs carry signatures there.
fn without_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = ["http://", "https://"]
        .iter()
        .filter_map(|scheme| rest.find(scheme))
        .min()
    {
        let url = &rest[start..];
        let end = url
            .find(|c: char| c.is_whitespace() || matches!(c, ')' | '"' | '\'' | '>'))
            .unwrap_or(url.len());
        let shown = url[..end].find('?').unwrap_or(end);
        out.push_str(&rest[..start + shown]);
        rest = &url[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_cut() {
        assert_eq!(
            without_queries("error for url (http://h/x?sig=secret) and https://h/y?a=b, end"),
            "error for url (http://h/x) and https://h/y end"
        );
        assert_eq!(
            without_queries("https://a/x?Signature=S then http://b/y?t=1"),
            "https://a/x then http://b/y"
        );
        assert_eq!(without_queries("no url? none"), "no url? none");
    }

    #[test]
    fn a_status_in_the_text_of_a_network_error_counts() {
        let error = Error::from_xet(
            "read",
            &XetError::Network("HTTP status client error (401 Unauthorized) for url (x)".into()),
        );
        assert!(error.is_auth(), "{error}");
        let of = |status: &str| {
            let text = format!("HTTP status client error ({status}) for url (http://h/x)");
            Error::from_xet("read", &XetError::Network(text))
        };
        assert!(of("403 Forbidden").is_auth());
        assert!(matches!(of("404 Not Found"), Error::NotFound { .. }));
        assert!(matches!(of("410 Gone"), Error::Failed { .. }));
        assert!(of("408 Request Timeout").is_transient());
        let error = Error::from_xet("read", &XetError::Network("connection refused".into()));
        assert!(error.is_transient() && !error.is_auth());
    }
}
