//! What routes take out of a request, with refusals in the Hub's form.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use serde::de::DeserializeOwned;

use super::answer::Refusal;
use super::hub::Hub;

/// The parameters of the path, percent-decoded.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        use axum::extract::Path as Inner;
        <Inner<T> as FromRequestParts<S>>::from_request_parts(parts, state)
            .await
            .map(|Inner(value)| Self(value))
            .map_err(|error| Refusal::bad_request(error.body_text()))
    }
}

/// The query.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|error| Refusal::bad_request(error.body_text()))
    }
}

/// The hub's addresses by the host name that the client came by, so that what it is sent on to can
/// be reached from where it is, and links are of the origin it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origins {
    /// The Hub's API.
    pub(super) hub: String,
    /// What clients are told as the content-addressed store.
    pub(super) cas: String,
    /// Signed URLs: another origin than the Hub's, so that a client that takes its token along is
    /// found out.
    pub(super) files: String,
}

impl Origins {
    fn new(host: &Authority, cas_port: u16, files_port: u16) -> Self {
        let name = host.host();
        Self {
            hub: format!("http://{host}"),
            cas: format!("http://{name}:{cas_port}"),
            files: format!("http://{name}:{files_port}"),
        }
    }
}

impl FromRequestParts<Arc<Hub>> for Origins {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Infallible> {
        let host = parts
            .headers
            .get(HOST)
            .and_then(|value| Authority::try_from(value.as_bytes()).ok())
            // `user@host` would put words into our links.
            .filter(|host| !host.as_str().contains('@'));
        Ok(match host {
            Some(host) => Self::new(&host, hub.cas_port, hub.files_port),
            None => hub.origins.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_host_name() {
        let origins = |host: &'static str| {
            let Origins { hub, cas, files } = Origins::new(&Authority::from_static(host), 11, 12);
            [hub, cas, files]
        };
        assert_eq!(
            origins("localhost:10"),
            [
                "http://localhost:10",
                "http://localhost:11",
                "http://localhost:12"
            ]
        );
        assert_eq!(
            origins("[::1]:10"),
            ["http://[::1]:10", "http://[::1]:11", "http://[::1]:12"]
        );
        assert_eq!(origins("hub")[0], "http://hub");
    }
}
