//! `POST …/paths-info`: what there is at given paths.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, header};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::Value;

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::faults::FaultKind;
use super::super::hub::Hub;
use super::{BucketPath, bucket_name, file_item, listed};

const MAX_PATHS: usize = 2000;

#[derive(Deserialize)]
struct Body {
    paths: OneOrMany,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

pub(super) async fn paths_info(
    Shared(hub): Shared<Arc<Hub>>,
    path: BucketPath,
    headers: HeaderMap,
    fault: Option<Extension<FaultKind>>,
    body: Bytes,
) -> Result<Json<Vec<Value>>, Refusal> {
    let name = bucket_name(path);
    let paths = read_paths(&headers, &body)?;
    let state = hub.state.read();
    let bucket = Caller::of(&hub.grants, &headers)?.read(&name, state.buckets.get(&name))?;
    let entries = listed(fault.as_ref(), &name, bucket);
    if paths.len() > MAX_PATHS {
        return Err(Refusal::bad_request(format!(
            "{} paths given, at most {MAX_PATHS} are allowed",
            paths.len()
        )));
    }
    // Files only, missing ones absent, as on the Hub.
    let items = paths
        .iter()
        .filter_map(|path| Some(file_item(path, entries.get(path)?)))
        .collect();
    Ok(Json(items))
}

fn read_paths(headers: &HeaderMap, body: &[u8]) -> Result<Vec<String>, Refusal> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if content_type.starts_with("application/x-www-form-urlencoded") {
        return Ok(url::form_urlencoded::parse(body)
            .filter(|(key, _)| key == "paths")
            .map(|(_, path)| path.into_owned())
            .collect());
    }
    let body: Body = serde_json::from_slice(body)
        .map_err(|e| Refusal::bad_request(format!("the body is no {{\"paths\": […]}}: {e}")))?;
    Ok(match body.paths {
        OneOrMany::One(path) => vec![path],
        OneOrMany::Many(paths) => paths,
    })
}
