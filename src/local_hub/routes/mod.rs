//! The routes of the Hub's bucket API.

mod batch;
mod buckets;
mod paths_info;
mod resolve;
mod tokens;
mod tree;
mod whoami;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use serde_json::{Value, json};

pub(super) use self::resolve::signed_file;
use super::answer::Refusal;
use super::extract::Path;
use super::faults::FaultKind;
use super::guard::guard;
use super::hub::Hub;
use super::state::{Bucket, BucketName, Entries, Entry};

/// A batch of a thousand long paths stays far below.
const BODY_LIMIT: usize = 64 << 20;

pub(super) fn router(hub: Arc<Hub>) -> Router {
    let bucket = "/api/buckets/{ns}/{name}";
    let below = |rest: &str| format!("{bucket}{rest}");
    Router::new()
        .route("/api/whoami-v2", get(whoami::whoami))
        .route("/api/repos/move", post(buckets::rename))
        .route("/api/buckets/{ns}", get(buckets::list))
        .route(
            bucket,
            get(buckets::info)
                .post(buckets::create)
                .delete(buckets::delete),
        )
        .route(&below("/settings"), put(buckets::settings))
        .route(&below("/tree"), get(tree::root))
        .route(&below("/tree/"), get(tree::slash))
        .route(&below("/tree/{*prefix}"), get(tree::prefix))
        .route(&below("/paths-info"), post(paths_info::paths_info))
        .route(&below("/batch"), post(batch::batch))
        .route(&below("/xet-read-token"), get(tokens::read))
        .route(&below("/xet-write-token"), get(tokens::write))
        .route(
            "/buckets/{ns}/{name}/resolve/{*path}",
            get(resolve::resolve),
        )
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn_with_state(Arc::clone(&hub), guard))
        .with_state(hub)
}

async fn no_route(request: axum::extract::Request) -> Refusal {
    Refusal::new(
        axum::http::StatusCode::NOT_FOUND,
        format!(
            "LocalHub has no route {} {}",
            request.method(),
            request.uri().path()
        ),
    )
}

async fn no_method(request: axum::extract::Request) -> Refusal {
    Refusal::new(
        axum::http::StatusCode::METHOD_NOT_ALLOWED,
        format!("no {} {}", request.method(), request.uri().path()),
    )
}

type BucketPath = Path<(String, String)>;

fn bucket_name(path: BucketPath) -> BucketName {
    let Path((namespace, name)) = path;
    BucketName { namespace, name }
}

/// What a listing shows: what there is, or what there was when a fault was injected. Rights are
/// always those of now; a bucket that was not there yet was empty.
fn listed<'a>(
    fault: Option<&'a Extension<FaultKind>>,
    name: &BucketName,
    now: &'a Bucket,
) -> &'a Entries {
    static NOTHING: Entries = Entries::new();
    match fault {
        Some(Extension(FaultKind::StaleListing { state, .. })) => state
            .buckets
            .get(name)
            .map_or(&NOTHING, |bucket| &bucket.entries),
        _ => &now.entries,
    }
}

/// A tree item of a file.
fn file_item(path: &str, entry: &Entry) -> Value {
    let mut item = json!({
        "type": "file",
        "path": path,
        "size": entry.size,
        "xetHash": entry.xet_hash,
        "uploadedAt": iso(entry.uploaded_at),
    });
    if let Some(fields) = item.as_object_mut() {
        if let Some(mtime) = entry
            .mtime_ms
            .and_then(chrono::DateTime::from_timestamp_millis)
        {
            fields.insert("mtime".into(), iso(mtime).into());
        }
        if let Some(content_type) = &entry.content_type {
            fields.insert("contentType".into(), content_type.as_str().into());
        }
    }
    item
}

/// ISO-8601 with milliseconds and `Z`, as the Hub writes dates.
fn iso(time: chrono::DateTime<chrono::Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
