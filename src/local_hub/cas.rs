//! The content-addressed store: xet's simulation server, and a proxy before it that counts, checks
//! tokens and breaks things.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, Query, Request, State as Shared};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::answer::Refusal;
use super::connection::Connection;
use super::faults::FaultKind;
use super::guard::{identify, injected};
use super::hub::Hub;
use super::requests::Class;
use super::routes::signed_file;
use super::signing::Access;
use super::truncate::truncated;

/// Headers of one connection, which a proxy must not hand on.
const HOP_BY_HOP: [HeaderName; 4] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Addresses that the simulation hands out to those who have shown a token.
const SIGNED: [&str; 2] = ["/v1/fetch_term", "/simulation/xorb-uploads/"];

#[derive(Clone)]
pub(super) struct Proxy {
    pub(super) hub: Arc<Hub>,
    pub(super) http: reqwest::Client,
    /// Where the simulation server listens.
    pub(super) backend: String,
}

pub(super) fn router(proxy: Proxy) -> Router {
    Router::new().fallback(handle).with_state(proxy)
}

async fn handle(
    Shared(proxy): Shared<Proxy>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response {
    let method = request.method().as_str().to_owned();
    let path = request.uri().path().to_owned();
    let route = route_of(&path);
    let hub = &proxy.hub;
    hub.requests.count(Class::Cas, &format!("{method} {route}"));
    let mut response = match hub.faults.take(Class::Cas, &method, &route, &path) {
        None => proxy.serve(request).await,
        Some(fault) => proxy.faulty(fault, &connection, request).await,
    };
    identify(hub, &mut response);
    response
}

/// The path with hashes taken out, so that counts add up.
fn route_of(path: &str) -> String {
    path.split('/')
        .map(|segment| match segment.len() {
            32.. => "{hash}",
            _ => segment,
        })
        .collect::<Vec<_>>()
        .join("/")
}

impl Proxy {
    async fn faulty(
        &self,
        fault: FaultKind,
        connection: &Connection,
        request: Request,
    ) -> Response {
        match fault {
            FaultKind::Status {
                status,
                headers,
                body,
            } => injected(status, headers, body),
            FaultKind::Delay(by) => {
                tokio::time::sleep(by).await;
                self.serve(request).await
            }
            FaultKind::DropBefore => {
                connection.cut();
                StatusCode::NO_CONTENT.into_response()
            }
            FaultKind::DropAfter => {
                let response = self.serve(request).await;
                connection.cut();
                response
            }
            FaultKind::Truncate { after, quietly } => {
                truncated(self.serve(request).await, after, quietly)
            }
            // The other faults are for routes of the Hub, and are not taken here.
            _ => self.serve(request).await,
        }
    }

    async fn serve(&self, request: Request) -> Response {
        let (method, uri) = (request.method(), request.uri());
        let outcome = match uri.path().strip_prefix("/files/") {
            Some(hash) => self.file(method, hash, uri, request.headers()).await,
            None => self.forward(request).await,
        };
        outcome.unwrap_or_else(IntoResponse::into_response)
    }

    async fn file(
        &self,
        method: &Method,
        hash: &str,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        let Query(query) =
            Query::try_from_uri(uri).map_err(|e| Refusal::bad_request(e.to_string()))?;
        signed_file(&self.hub, method, hash, &query, headers).await
    }

    async fn forward(&self, request: Request) -> Result<Response, Refusal> {
        self.check_token(&request)?;
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = parts.headers;
        without_hop_by_hop(&mut headers);
        // `Host` stays: the server makes its download URLs of it, which must lead back here.
        let mut call = self
            .http
            .request(parts.method, format!("{}{target}", self.backend))
            .headers(headers);
        if !body.is_end_stream() {
            call = call.body(reqwest::Body::wrap_stream(body.into_data_stream()));
        }
        let response = call
            .send()
            .await
            .map_err(|e| Refusal::new(StatusCode::BAD_GATEWAY, e.to_string()))?;
        let mut headers = response.headers().clone();
        without_hop_by_hop(&mut headers);
        let status = response.status();
        let mut answer = Response::new(Body::from_stream(response.bytes_stream()));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }

    /// Xorb URLs carry their own right; all else of the CAS takes a token, and changes take one that
    /// allows to write.
    fn check_token(&self, request: &Request) -> Result<(), Refusal> {
        let path = request.uri().path();
        if SIGNED.iter().any(|signed| path.starts_with(signed)) {
            return Ok(());
        }
        if !(path.starts_with("/v1/") || path.starts_with("/v2/")) {
            // What else there is are the controls of the simulation.
            return Err(Refusal::new(StatusCode::NOT_FOUND, format!("no {path}")));
        }
        let access = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
            .and_then(|token| {
                let now = self.hub.clock.now();
                self.hub.signer.read_cas_token(token, now)
            });
        let reads = matches!(request.method().as_str(), "GET" | "HEAD");
        match access {
            Some(Access::Write) => Ok(()),
            Some(Access::Read) if reads || path == "/v1/telemetry" => Ok(()),
            Some(Access::Read) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "the token does not allow to write",
            )),
            None => Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "the token has expired or is none of this store's",
            )),
        }
    }
}

fn without_hop_by_hop(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_no_part_of_a_route() {
        let hash = "ab".repeat(32);
        assert_eq!(
            route_of(&format!("/v1/xorbs/default/{hash}")),
            "/v1/xorbs/default/{hash}"
        );
        assert_eq!(route_of("/v1/shards"), "/v1/shards");
    }
}
