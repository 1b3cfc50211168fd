//! `GET …/xet-read-token` and `…/xet-write-token`.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chrono::TimeDelta;
use serde_json::json;

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::extract::Origins;
use super::super::faults::FaultKind;
use super::super::hub::Hub;
use super::super::signing::Access;
use super::{BucketPath, bucket_name};

/// Life of a token, as on the Hub.
const LIFE: TimeDelta = TimeDelta::minutes(15);

pub(super) async fn read(
    Shared(hub): Shared<Arc<Hub>>,
    origins: Origins,
    path: BucketPath,
    headers: HeaderMap,
    fault: Option<Extension<FaultKind>>,
) -> Result<Response, Refusal> {
    let name = bucket_name(path);
    let state = hub.state.read();
    Caller::of(&hub.grants, &headers)?.read(&name, state.buckets.get(&name))?;
    Ok(token(&hub, &origins, Access::Read, fault))
}

pub(super) async fn write(
    Shared(hub): Shared<Arc<Hub>>,
    origins: Origins,
    path: BucketPath,
    headers: HeaderMap,
    fault: Option<Extension<FaultKind>>,
) -> Result<Response, Refusal> {
    let name = bucket_name(path);
    let state = hub.state.read();
    Caller::of(&hub.grants, &headers)?.write(&name, state.buckets.get(&name))?;
    Ok(token(&hub, &origins, Access::Write, fault))
}

fn token(
    hub: &Hub,
    origins: &Origins,
    access: Access,
    fault: Option<Extension<FaultKind>>,
) -> Response {
    let now = hub.clock.now();
    let expires = match fault {
        Some(Extension(FaultKind::ExpiredToken)) => now - LIFE,
        _ => now + LIFE,
    };
    let token = hub.signer.cas_token(access, expires);
    let exp = expires.timestamp();
    let body = json!({"casUrl": origins.cas, "exp": exp, "accessToken": token});
    let mirrored = [
        (
            HeaderName::from_static("x-xet-cas-url"),
            origins.cas.clone(),
        ),
        (
            HeaderName::from_static("x-xet-token-expiration"),
            exp.to_string(),
        ),
        (HeaderName::from_static("x-xet-access-token"), token),
    ];
    (mirrored, Json(body)).into_response()
}
