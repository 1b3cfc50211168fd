//! `POST …/batch`: adds, copies and deletes, each with its own outcome.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use xet_core_structures::merklehash::MerkleHash;

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::faults::FaultKind;
use super::super::hub::Hub;
use super::super::state::{BucketName, Change, Entry};
use super::buckets::check_write;
use super::{BucketPath, bucket_name};
use crate::location::key_fault;

/// The content of an empty file.
const ZERO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
enum Op {
    #[serde(rename = "addFile")]
    Add {
        path: String,
        xet_hash: String,
        mtime: Option<i64>,
        content_type: Option<String>,
    },
    #[serde(rename = "copyFile")]
    Copy {
        path: String,
        xet_hash: String,
        source_repo_type: String,
        source_repo_id: String,
        mtime: Option<i64>,
        content_type: Option<String>,
    },
    #[serde(rename = "deleteFile")]
    Delete { path: String },
}

impl Op {
    fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Copy { path, .. } | Self::Delete { path } => path,
        }
    }
}

/// An operation that may go ahead, or why not.
type Checked = (String, Result<Done, String>);

enum Done {
    Put(Entry),
    Delete,
}

pub(super) async fn batch(
    Shared(hub): Shared<Arc<Hub>>,
    path: BucketPath,
    headers: HeaderMap,
    fault: Option<Extension<FaultKind>>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let name = bucket_name(path);
    check_write(&hub, &headers, &name)?;
    let ops = read_ops(&body)?;
    let fault = fault.map(|Extension(fault)| fault);
    let mut checked = Vec::with_capacity(ops.len());
    for op in ops {
        let path = op.path().to_owned();
        let outcome = match &fault {
            Some(FaultKind::PartialBatch { path: part, .. }) if path.contains(part) => {
                Err("injected fault".to_owned())
            }
            _ => check(&hub, &headers, op).await,
        };
        checked.push((path, outcome));
    }
    let report = apply(&hub, name, checked).await?;
    Ok(answer(report, fault))
}

struct Report {
    processed: usize,
    failed: Vec<(String, String)>,
}

async fn apply(hub: &Arc<Hub>, name: BucketName, checked: Vec<Checked>) -> Result<Report, Refusal> {
    let now = hub.clock.now();
    hub.change(move |state| {
        let bucket = state
            .buckets
            .get(&name)
            .ok_or_else(|| Refusal::no_bucket(&name))?;
        let processed = checked.len();
        let (mut changes, mut failed) = (Vec::new(), Vec::new());
        for (path, outcome) in checked {
            match outcome {
                Ok(Done::Put(entry)) => changes.push(Change::Put {
                    bucket: name.clone(),
                    path,
                    entry,
                }),
                // Deleting what is not there succeeds; what the Hub does is not documented.
                Ok(Done::Delete) => changes.push(Change::Delete {
                    bucket: name.clone(),
                    path,
                }),
                Err(error) => failed.push((path, error)),
            }
        }
        if !changes.is_empty() {
            let mut meta = bucket.meta.clone();
            meta.touch(now);
            changes.push(Change::Meta(name, meta));
        }
        Ok((changes, Report { processed, failed }))
    })
    .await
}

fn answer(report: Report, fault: Option<FaultKind>) -> Response {
    let succeeded = report.processed - report.failed.len();
    let status = match fault {
        Some(FaultKind::Report(body)) => {
            return (StatusCode::OK, [("content-type", "application/json")], body).into_response();
        }
        Some(FaultKind::PartialBatch { status, .. }) => {
            StatusCode::from_u16(status).unwrap_or(StatusCode::OK)
        }
        // As the Hub: 422 if nothing went through, 200 for a part.
        _ if succeeded == 0 && report.processed > 0 => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(path, error)| json!({"path": path, "error": error}))
        .collect();
    let body = json!({
        "success": failed.is_empty(),
        "processed": report.processed,
        "succeeded": succeeded,
        "failed": failed,
    });
    (status, Json(body)).into_response()
}

/// NDJSON: one object a line, and no add or copy after a delete.
fn read_ops(body: &[u8]) -> Result<Vec<Op>, Refusal> {
    let text =
        std::str::from_utf8(body).map_err(|_| Refusal::unprocessable("the body is not UTF-8"))?;
    let mut ops = Vec::new();
    let mut deleting = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let op: Op = serde_json::from_str(line)
            .map_err(|e| Refusal::unprocessable(format!("line {}: {e}", number + 1)))?;
        let delete = matches!(op, Op::Delete { .. });
        if deleting && !delete {
            return Err(Refusal::unprocessable(format!(
                "line {}: all addFile and copyFile operations must come before deleteFile",
                number + 1
            )));
        }
        deleting = delete;
        ops.push(op);
    }
    if ops.is_empty() {
        return Err(Refusal::unprocessable("the batch is empty"));
    }
    Ok(ops)
}

async fn check(hub: &Hub, headers: &HeaderMap, op: Op) -> Result<Done, String> {
    if let Some(fault) = key_fault(op.path()) {
        return Err(format!("invalid path: {fault}"));
    }
    let (xet_hash, mtime_ms, content_type) = match op {
        Op::Delete { .. } => return Ok(Done::Delete),
        Op::Add {
            xet_hash,
            mtime,
            content_type,
            ..
        } => (xet_hash, mtime, content_type),
        Op::Copy {
            xet_hash,
            mtime,
            content_type,
            source_repo_type,
            source_repo_id,
            ..
        } => {
            check_source(hub, headers, &source_repo_type, &source_repo_id, &xet_hash)?;
            (xet_hash, mtime, content_type)
        }
    };
    let size = content_size(hub, &xet_hash).await?;
    Ok(Done::Put(Entry {
        xet_hash,
        size,
        mtime_ms,
        uploaded_at: hub.clock.now(),
        content_type,
    }))
}

/// The bytes of an entry must be on the CAS before it.
async fn content_size(hub: &Hub, hash: &str) -> Result<u64, String> {
    if hash == ZERO_HASH {
        return Ok(0);
    }
    let parsed = MerkleHash::from_hex(hash).map_err(|_| format!("'{hash}' is no Xet hash"))?;
    hub.cas
        .get_file_size(&parsed)
        .await
        .map_err(|_| format!("content {hash} is not in the content-addressed store"))
}

/// Copying needs the right to read the source, and the source must hold the content.
fn check_source(
    hub: &Hub,
    headers: &HeaderMap,
    kind: &str,
    id: &str,
    hash: &str,
) -> Result<(), String> {
    if kind != "bucket" {
        return Err(format!("LocalHub has no {kind} to copy from"));
    }
    let refused = || format!("source bucket {id} not found");
    let (namespace, name) = id.split_once('/').ok_or_else(refused)?;
    let name = BucketName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let state = hub.state.read();
    let caller = Caller::of(&hub.grants, headers).map_err(|_| refused())?;
    let bucket = caller
        .read(&name, state.buckets.get(&name))
        .map_err(|_| refused())?;
    if bucket.entries.values().any(|entry| entry.xet_hash == hash) {
        return Ok(());
    }
    Err(format!("source bucket {id} holds no content {hash}"))
}
