//! Buckets themselves: create, describe, list, move, set, delete.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::extract::{Origins, Path, Query};
use super::super::hub::Hub;
use super::super::state::{Bucket, BucketMeta, BucketName, Change};
use super::{BucketPath, bucket_name, iso};

/// Buckets per page; the Hub's own number is not documented.
const PAGE: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Create {
    private: Option<bool>,
    visibility: Option<Visibility>,
    region: Option<String>,
    cdn: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Visibility {
    Public,
    Private,
}

pub(super) async fn create(
    Shared(hub): Shared<Arc<Hub>>,
    origins: Origins,
    path: BucketPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let mut name = bucket_name(path);
    let options: Create = read_json(&body)?;
    let caller = Caller::of(&hub.grants, &headers)?;
    name.namespace = caller.namespace(&name.namespace)?;
    caller.write_in(&name.namespace)?;
    check_name(&name)?;
    let now = hub.clock.now();
    let meta = BucketMeta {
        id: format!("{:016x}{:08x}", now.timestamp_micros(), hub.next_serial()),
        private: options.private.unwrap_or(false)
            || options.visibility == Some(Visibility::Private),
        created_at: now,
        updated_at: now,
        region: options.region.unwrap_or_else(|| "us".into()),
        cdn: options.cdn.unwrap_or_else(|| json!([])),
    };
    let url = bucket_url(&origins, &name);
    hub.change(move |state| {
        if let Some(bucket) = state.buckets.get(&name) {
            return Err(Refusal::exists(&name, &url, &bucket.meta.id));
        }
        let answer = json!({"url": url, "name": name.to_string(), "id": meta.id});
        Ok((vec![Change::Meta(name, meta)], Json(answer)))
    })
    .await
}

fn bucket_url(origins: &Origins, name: &BucketName) -> String {
    format!("{}/buckets/{name}", origins.hub)
}

fn check_name(name: &BucketName) -> Result<(), Refusal> {
    crate::location::BucketLocation::new(&name.namespace, &name.name, "")
        .map(|_| ())
        .map_err(|e| Refusal::bad_request(e.to_string()))
}

pub(super) async fn info(
    Shared(hub): Shared<Arc<Hub>>,
    path: BucketPath,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let name = bucket_name(path);
    let state = hub.state.read();
    let bucket = Caller::of(&hub.grants, &headers)?.read(&name, state.buckets.get(&name))?;
    Ok(Json(describe(&name, bucket)))
}

fn describe(name: &BucketName, bucket: &Bucket) -> Value {
    json!({
        "_id": bucket.meta.id,
        "author": name.namespace,
        "id": name.to_string(),
        "private": bucket.meta.private,
        "createdAt": iso(bucket.meta.created_at),
        "updatedAt": iso(bucket.meta.updated_at),
        "size": bucket.size(),
        "totalFiles": bucket.entries.len(),
        "repoType": "bucket",
        "region": bucket.meta.region,
        "cdnRegions": bucket.meta.cdn,
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    search: Option<String>,
    #[serde(default)]
    skip: usize,
}

pub(super) async fn list(
    Shared(hub): Shared<Arc<Hub>>,
    origins: Origins,
    Path(namespace): Path<String>,
    Query(query): Query<Search>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let caller = Caller::of(&hub.grants, &headers)?;
    let namespace = caller.namespace(&namespace)?;
    let wanted = query.search.as_deref().unwrap_or_default().to_lowercase();
    let state = hub.state.read();
    let found: Vec<_> = state
        .buckets
        .iter()
        .filter(|(name, bucket)| name.namespace == namespace && caller.may_see(name, bucket))
        .filter(|(name, _)| name.name.to_lowercase().contains(&wanted))
        .skip(query.skip)
        .take(PAGE + 1)
        .map(|(name, bucket)| describe(name, bucket))
        .collect();
    let more = found.len() > PAGE;
    let page: Vec<_> = found.into_iter().take(PAGE).collect();
    let mut response = Json(page).into_response();
    if more {
        let mut url = url::Url::parse(&format!("{}/api/buckets/{namespace}", origins.hub))
            .map_err(Refusal::internal)?;
        if let Some(search) = &query.search {
            url.query_pairs_mut().append_pair("search", search);
        }
        url.query_pairs_mut()
            .append_pair("skip", &(query.skip + PAGE).to_string());
        let link =
            HeaderValue::try_from(format!("<{url}>; rel=\"next\"")).map_err(Refusal::internal)?;
        response
            .headers_mut()
            .insert(HeaderName::from_static("link"), link);
    }
    Ok(response)
}

pub(super) async fn delete(
    Shared(hub): Shared<Arc<Hub>>,
    path: BucketPath,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    let name = bucket_name(path);
    check_write(&hub, &headers, &name)?;
    hub.change(move |state| {
        if !state.buckets.contains_key(&name) {
            return Err(Refusal::no_bucket(&name));
        }
        Ok((vec![Change::Remove(name)], StatusCode::NO_CONTENT))
    })
    .await
}

#[derive(Debug, Deserialize)]
struct Settings {
    private: Option<bool>,
    visibility: Option<Visibility>,
}

pub(super) async fn settings(
    Shared(hub): Shared<Arc<Hub>>,
    path: BucketPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let name = bucket_name(path);
    let settings: Settings = read_json(&body)?;
    check_write(&hub, &headers, &name)?;
    let now = hub.clock.now();
    hub.change(move |state| {
        let bucket = state
            .buckets
            .get(&name)
            .ok_or_else(|| Refusal::no_bucket(&name))?;
        let mut meta = bucket.meta.clone();
        if let Some(private) = settings
            .private
            .or(settings.visibility.map(|seen| seen == Visibility::Private))
        {
            meta.private = private;
        }
        meta.touch(now);
        let answer = json!({"private": meta.private, "cdnRegions": meta.cdn});
        Ok((vec![Change::Meta(name, meta)], Json(answer)))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Move {
    from_repo: String,
    to_repo: String,
    #[serde(rename = "type")]
    kind: String,
}

pub(super) async fn rename(
    Shared(hub): Shared<Arc<Hub>>,
    origins: Origins,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let wanted: Move = read_json(&body)?;
    if wanted.kind != "bucket" {
        return Err(Refusal::bad_request("LocalHub has only buckets to move"));
    }
    let (from, to) = (parse_name(&wanted.from_repo)?, parse_name(&wanted.to_repo)?);
    check_write(&hub, &headers, &from)?;
    Caller::of(&hub.grants, &headers)?.write_in(&to.namespace)?;
    check_name(&to)?;
    let now = hub.clock.now();
    let url = bucket_url(&origins, &to);
    hub.change(move |state| {
        let Some(bucket) = state.buckets.get(&from) else {
            return Err(Refusal::no_bucket(&from));
        };
        if let Some(taken) = state.buckets.get(&to) {
            return Err(Refusal::exists(&to, &url, &taken.meta.id));
        }
        let mut meta = bucket.meta.clone();
        meta.touch(now);
        let changes = vec![
            Change::Move {
                from,
                to: to.clone(),
            },
            Change::Meta(to, meta),
        ];
        Ok((changes, Json(json!({"url": url}))))
    })
    .await
}

fn parse_name(text: &str) -> Result<BucketName, Refusal> {
    match text.split_once('/') {
        Some((namespace, name)) => Ok(BucketName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        None => Err(Refusal::bad_request(format!(
            "'{text}' is no <namespace>/<bucket>"
        ))),
    }
}

/// Whether the caller may write in the bucket, which must be there.
pub(super) fn check_write(
    hub: &Hub,
    headers: &HeaderMap,
    name: &BucketName,
) -> Result<(), Refusal> {
    let state = hub.state.read();
    Caller::of(&hub.grants, headers)?
        .write(name, state.buckets.get(name))
        .map(|_| ())
}

/// A JSON body; an empty one counts as `{}`.
fn read_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|e| Refusal::bad_request(format!("the body: {e}")))
}
