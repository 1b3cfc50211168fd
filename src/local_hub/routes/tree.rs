//! `GET …/tree[/{prefix}]`: listings. The prefix is matched as a string, as on the Hub.

use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Json};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::extract::{Origins, Path, Query};
use super::super::faults::FaultKind;
use super::super::hub::Hub;
use super::super::state::{BucketName, Entries};
use super::{BucketPath, bucket_name, file_item, iso, listed};

const DEFAULT_LIMIT: usize = 1000;
const MAX_LIMIT: usize = 5000;
/// Items of a page when the hub makes short pages.
const SHORT_PAGE: usize = 3;

#[derive(Debug, Deserialize)]
pub(super) struct Params {
    /// True by default, as on the Hub.
    #[serde(default = "yes", deserialize_with = "flag")]
    recursive: bool,
    limit: Option<usize>,
    cursor: Option<String>,
}

fn yes() -> bool {
    true
}

/// `true`, or `True` as OpenDAL and older Python clients write it.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(D::Error::custom(format!(
            "'{text}' is neither true nor false"
        ))),
    }
}

/// What a listing depends on besides the place.
type Asked = (
    Origins,
    Query<Params>,
    HeaderMap,
    Option<Extension<FaultKind>>,
);

pub(super) async fn root(
    hub: Shared<Arc<Hub>>,
    path: BucketPath,
    asked: Asked,
) -> Result<Response, Refusal> {
    tree(&hub, &bucket_name(path), "", asked)
}

/// A bare `…/tree/` redirects.
pub(super) async fn slash(path: BucketPath, uri: axum::http::Uri) -> Redirect {
    let name = bucket_name(path);
    let query = uri.query().map(|query| format!("?{query}"));
    Redirect::temporary(&format!(
        "/api/buckets/{name}/tree{}",
        query.unwrap_or_default()
    ))
}

pub(super) async fn prefix(
    hub: Shared<Arc<Hub>>,
    Path((namespace, name, prefix)): Path<(String, String, String)>,
    asked: Asked,
) -> Result<Response, Refusal> {
    let name = BucketName { namespace, name };
    tree(&hub, &name, &prefix, asked)
}

fn tree(
    hub: &Hub,
    name: &BucketName,
    prefix: &str,
    (origins, Query(params), headers, fault): Asked,
) -> Result<Response, Refusal> {
    let state = hub.state.read();
    let bucket = Caller::of(&hub.grants, &headers)?.read(name, state.buckets.get(name))?;
    let entries = listed(fault.as_ref(), name, bucket);
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Refusal::bad_request(format!(
            "limit must be 1 to {MAX_LIMIT}"
        )));
    }
    let after = match &params.cursor {
        Some(cursor) => Some(read_cursor(hub, cursor)?),
        None => None,
    };
    let page_len = match (hub.short_pages, &after) {
        (false, _) => limit,
        // The first page is empty and still has a link.
        (true, None) => 0,
        (true, Some(_)) => limit.min(SHORT_PAGE),
    };
    let page = page(
        entries,
        prefix,
        params.recursive,
        page_len,
        after.as_deref().unwrap_or(""),
    );
    let mut response = Json(page.items).into_response();
    if let Some(last) = page.next {
        let link = next_link(hub, &origins, name, prefix, &params, limit, &last)?;
        let link = HeaderValue::try_from(link).map_err(Refusal::internal)?;
        response
            .headers_mut()
            .insert(HeaderName::from_static("link"), link);
    }
    Ok(response)
}

struct Page {
    items: Vec<Value>,
    /// Where the next page goes on, `None` on the last.
    next: Option<String>,
}

fn page(entries: &Entries, prefix: &str, recursive: bool, len: usize, after: &str) -> Page {
    let all = if recursive {
        files(entries, prefix, after)
    } else {
        level(entries, prefix, after)
    };
    let mut all = all.peekable();
    let mut items = Vec::new();
    let mut last = after.to_owned();
    while items.len() < len
        && let Some((key, item)) = all.next()
    {
        items.push(item);
        last = key;
    }
    Page {
        items,
        next: all.peek().is_some().then_some(last),
    }
}

/// Items with the key that the next page goes on after.
type Items<'a> = Box<dyn Iterator<Item = (String, Value)> + 'a>;

/// Every file whose path starts with `prefix`, after the path `after`.
fn files<'a>(entries: &'a Entries, prefix: &'a str, after: &str) -> Items<'a> {
    let start = if after < prefix || after.is_empty() {
        Bound::Included(prefix.to_owned())
    } else {
        Bound::Excluded(after.to_owned())
    };
    let items = entries
        .range((start, Bound::Unbounded))
        .take_while(move |(path, _)| path.starts_with(prefix))
        .map(|(path, entry)| (path.clone(), file_item(path, entry)));
    Box::new(items)
}

/// One level. A prefix that names a directory lists its children; any other lists the entries of its
/// parent that start with it.
fn level<'a>(entries: &'a Entries, prefix: &str, after: &str) -> Items<'a> {
    let (prefix, depth) = level_prefix(entries, prefix);
    let start = prefix.clone();
    let after = after.to_owned();
    let mut directory = None;
    let items = entries
        .range(start..)
        .take_while(move |(path, _)| path.starts_with(&prefix))
        .filter_map(move |(path, entry)| {
            let Some(slash) = path[depth..].find('/') else {
                return Some((path.clone(), file_item(path, entry)));
            };
            let name = &path[..depth + slash];
            if directory.as_deref() == Some(name) {
                return None;
            }
            directory = Some(name.to_owned());
            let item = json!({
                "type": "directory",
                "path": name,
                "uploadedAt": iso(entry.uploaded_at),
            });
            // In the order of paths a directory stands where its first file does.
            Some((format!("{name}/"), item))
        })
        .filter(move |(key, _)| after.is_empty() || *key > after);
    Box::new(items)
}

/// The prefix that items start with, and the length of the directory that they lie in.
fn level_prefix(entries: &Entries, prefix: &str) -> (String, usize) {
    if prefix.is_empty() {
        return (String::new(), 0);
    }
    let directory = format!("{}/", prefix.trim_end_matches('/'));
    let first = entries.range(directory.clone()..).next();
    if first.is_some_and(|(path, _)| path.starts_with(&directory)) {
        let depth = directory.len();
        return (directory, depth);
    }
    let depth = prefix.rfind('/').map_or(0, |slash| slash + 1);
    (prefix.to_owned(), depth)
}

/// An opaque cursor: clients must take it from the link.
fn cursor(hub: &Hub, last: &str) -> String {
    let signature: String = hub.signer.sign(last).chars().take(16).collect();
    format!("{signature}:{last}")
}

fn read_cursor(hub: &Hub, text: &str) -> Result<String, Refusal> {
    match text.split_once(':') {
        Some((_, last)) if cursor(hub, last) == text => Ok(last.to_owned()),
        _ => Err(Refusal::bad_request("the cursor is not one of this hub's")),
    }
}

fn next_link(
    hub: &Hub,
    origins: &Origins,
    name: &BucketName,
    prefix: &str,
    params: &Params,
    limit: usize,
    last: &str,
) -> Result<String, Refusal> {
    let mut url = url::Url::parse(&origins.hub).map_err(Refusal::internal)?;
    {
        let mut segments = url
            .path_segments_mut()
            .map_err(|()| Refusal::internal("the endpoint has no path"))?;
        segments
            .pop_if_empty()
            .extend(["api", "buckets", &name.namespace, &name.name, "tree"]);
        if !prefix.is_empty() {
            segments.extend(prefix.split('/'));
        }
    }
    url.query_pairs_mut()
        .append_pair("recursive", &params.recursive.to_string())
        .append_pair("limit", &limit.to_string())
        .append_pair("cursor", &cursor(hub, last));
    // A semicolon ends the URL for clients that look for `;` before `>`, Python's among them.
    let url = url.as_str().replace(';', "%3B");
    Ok(format!("<{url}>; rel=\"next\""))
}
