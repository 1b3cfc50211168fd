//! What happens to every request of the Hub's API, whatever its route: it is counted, limited, and
//! goes wrong if a fault says so.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath, Request, State as Shared};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Refusal;
use super::connection::Connection;
use super::faults::FaultKind;
use super::hub::Hub;
use super::limiter::{Asker, Standing};
use super::requests::Class;
use super::truncate::truncated;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The class of a route of the Hub's own.
fn class_of(route: &str) -> Class {
    if route.ends_with("-token") {
        Class::Token
    } else if route.contains("/resolve/") {
        Class::Resolver
    } else {
        Class::Api
    }
}

pub(super) async fn guard(
    Shared(hub): Shared<Arc<Hub>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unknown route", MatchedPath::as_str)
        .to_owned();
    let class = class_of(&route);
    let method = request.method().as_str().to_owned();
    hub.requests
        .count(class, &format!("{method} {}", readable(&route)));
    let standing = standing(&hub, class, &request, &connection);
    let mut response = match standing {
        Some(standing) if !standing.allowed => {
            hub.requests.count_limited();
            too_many()
        }
        _ => match hub
            .faults
            .take(class, &method, &route, request.uri().path())
        {
            Some(fault) => faulty(fault, &connection, request, next).await,
            None => next.run(request).await,
        },
    };
    let headers = response.headers_mut();
    // An injected limit keeps the numbers it was given.
    if let Some(standing) = standing
        && !headers.contains_key(RATE_LIMIT)
    {
        for (name, text) in [
            (RATE_LIMIT, standing.rate_limit()),
            (RATE_LIMIT_POLICY, standing.policy()),
        ] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
    }
    identify(&hub, &mut response);
    response
}

/// Gives an answer the id of its request.
pub(super) fn identify(hub: &Hub, response: &mut Response) {
    if let Ok(id) = HeaderValue::from_str(&format!("local-{:08x}", hub.next_serial())) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
}

/// `{*path}` is axum's way of writing it.
fn readable(route: &str) -> String {
    route.replace("{*", "{")
}

fn standing(
    hub: &Hub,
    class: Class,
    request: &Request,
    connection: &Connection,
) -> Option<Standing> {
    let limiter = hub.limiter.as_ref()?;
    let caller = match request.headers().get(header::AUTHORIZATION) {
        Some(token) => Asker::Token(String::from_utf8_lossy(token.as_bytes()).into_owned()),
        None => Asker::Address(connection.peer.ip()),
    };
    limiter.take(caller, class, hub.clock.now())
}

fn too_many() -> Response {
    let message = "We had to rate limit you, see https://huggingface.co/docs/hub/rate-limits";
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, message).into_response()
}

async fn faulty(
    fault: FaultKind,
    connection: &Connection,
    mut request: Request,
    next: Next,
) -> Response {
    match fault {
        FaultKind::Status {
            status,
            headers,
            body,
        } => injected(status, headers, body),
        FaultKind::Delay(by) => {
            tokio::time::sleep(by).await;
            next.run(request).await
        }
        FaultKind::DropBefore => {
            connection.cut();
            StatusCode::NO_CONTENT.into_response()
        }
        FaultKind::DropAfter => {
            let response = next.run(request).await;
            connection.cut();
            response
        }
        FaultKind::Truncate { after, quietly } => {
            truncated(next.run(request).await, after, quietly)
        }
        // These are for the route itself.
        other => {
            request.extensions_mut().insert(other);
            next.run(request).await
        }
    }
}

pub(super) fn injected(status: u16, headers: Vec<(String, String)>, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => {
                response.headers_mut().insert(name, value);
            }
            (name, value) => {
                tracing::warn!(?name, ?value, "an injected header is none");
            }
        }
    }
    response
}
