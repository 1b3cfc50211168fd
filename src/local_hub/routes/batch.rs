//! `POST …/batch`: adds, copies and deletes, each with its own outcome.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::faults::FaultKind;
use super::super::hub::Hub;
use super::super::state::{BucketName, Change, Entry};
use super::buckets::check_write;
use super::{BucketPath, bucket_name};
use crate::location::key_fault;

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
    let ops = match read_ops(&body) {
        Ok(ops) => ops,
        Err(report) => return Ok(answer(report, None)),
    };
    let fault = fault.map(|Extension(fault)| fault);
    let sizes = sizes(&hub, &ops).await?;
    let mut checked = Vec::with_capacity(ops.len());
    for op in ops {
        let path = op.path().to_owned();
        let outcome = match &fault {
            Some(FaultKind::PartialBatch { path: part, .. }) if path.contains(part) => {
                Err("injected fault".to_owned())
            }
            _ => check(&hub, &headers, &sizes, op),
        };
        checked.push((path, outcome));
    }
    let report = apply(&hub, name, checked).await?;
    Ok(answer(report, fault))
}

struct Report {
    /// Why the body is no batch.
    error: Option<String>,
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
        let report = Report {
            error: None,
            processed,
            failed,
        };
        Ok((changes, report))
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
        _ if succeeded == 0 => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(path, error)| json!({"path": path, "error": error}))
        .collect();
    let mut body = json!({
        "success": report.error.is_none() && failed.is_empty(),
        "processed": report.processed,
        "succeeded": succeeded,
        "failed": failed,
    });
    if let Some(error) = report.error {
        body["error"] = error.into();
    }
    (status, Json(body)).into_response()
}

/// NDJSON: one object a line, and no add or copy after a delete. Of a body that is none of this
/// nothing is done, and the report fails every line.
fn read_ops(body: &[u8]) -> Result<Vec<Op>, Report> {
    let lines: Vec<&[u8]> = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .collect();
    let refused = |why: String| {
        let failed = lines.iter().map(|line| (path_of(line), why.clone()));
        Report {
            processed: lines.len(),
            failed: failed.collect(),
            error: Some(why),
        }
    };
    let mut ops = Vec::with_capacity(lines.len());
    let mut deleting = false;
    for (number, line) in lines.iter().enumerate() {
        let op: Op = serde_json::from_slice(line)
            .map_err(|e| refused(format!("line {}: {e}", number + 1)))?;
        let delete = matches!(op, Op::Delete { .. });
        if deleting && !delete {
            return Err(refused(format!(
                "line {}: all addFile and copyFile operations must come before deleteFile",
                number + 1
            )));
        }
        deleting = delete;
        ops.push(op);
    }
    if ops.is_empty() {
        return Err(refused("the batch is empty".to_owned()));
    }
    Ok(ops)
}

/// The path of a line that may be anything.
fn path_of(line: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Line {
        path: String,
    }
    serde_json::from_slice(line).map_or_else(|_| String::new(), |Line { path }| path)
}

/// The sizes of what the operations bring, as far as the CAS has it.
async fn sizes(hub: &Hub, ops: &[Op]) -> Result<HashMap<String, u64>, Refusal> {
    let hashes = ops.iter().filter_map(|op| match op {
        Op::Add { xet_hash, .. } | Op::Copy { xet_hash, .. } => Some(xet_hash.clone()),
        Op::Delete { .. } => None,
    });
    let sizes = hub.content.sizes(hashes.collect()).await;
    sizes.map_err(Refusal::internal)
}

fn check(
    hub: &Hub,
    headers: &HeaderMap,
    sizes: &HashMap<String, u64>,
    op: Op,
) -> Result<Done, String> {
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
    // The bytes of an entry must be on the CAS before it.
    let Some(&size) = sizes.get(&xet_hash) else {
        return Err(format!(
            "content {xet_hash} is not in the content-addressed store"
        ));
    };
    Ok(Done::Put(Entry {
        xet_hash,
        size,
        mtime_ms,
        uploaded_at: hub.clock.now(),
        content_type,
    }))
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
