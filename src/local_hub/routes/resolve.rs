//! `GET|HEAD /buckets/…/resolve/{path}`, and the signed URLs that it redirects to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::super::answer::Refusal;
use super::super::auth::Caller;
use super::super::extract::{Origins, Path};
use super::super::hub::Hub;
use super::super::state::{BucketName, Entry};
use crate::location::key_fault;

/// Life of a signed URL, as on the Hub.
const LIFE: TimeDelta = TimeDelta::hours(1);
const FILE_INFO: &str = "application/vnd.xet-fileinfo+json";

pub(super) async fn resolve(
    Shared(hub): Shared<Arc<Hub>>,
    origins: Origins,
    Path((namespace, name, path)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let name = BucketName { namespace, name };
    let entry = {
        let state = hub.state.read();
        let bucket = Caller::of(&hub.grants, &headers)?.read(&name, state.buckets.get(&name))?;
        if key_fault(&path).is_some() {
            return Err(Refusal::no_entry(&path));
        }
        let entry = bucket.entries.get(&path);
        entry.ok_or_else(|| Refusal::no_entry(&path))?.clone()
    };
    let auth_url = format!("{}/api/buckets/{name}/xet-read-token", origins.hub);
    let reconstruction_url = format!("{}/v1/reconstructions/{}", origins.cas, entry.xet_hash);
    let quoted = format!("\"{}\"", entry.xet_hash);
    let linked = [
        ("x-xet-hash", entry.xet_hash.clone()),
        ("x-linked-size", entry.size.to_string()),
        ("x-linked-etag", quoted.clone()),
        ("etag", quoted.clone()),
        ("last-modified", http_date(entry.uploaded_at)),
        (
            "link",
            format!(
                "<{auth_url}>; rel=\"xet-auth\", <{reconstruction_url}>; \
                 rel=\"xet-reconstruction-info\""
            ),
        ),
    ];
    let mut response = if wants_file_info(&headers) {
        let mut info = json!({
            "hash": entry.xet_hash,
            "refreshUrl": auth_url,
            "reconstructionUrl": reconstruction_url,
            "etag": quoted,
            "size": entry.size,
        });
        if let (Some(info), Some(content_type)) = (info.as_object_mut(), &entry.content_type) {
            info.insert("contentType".into(), content_type.as_str().into());
        }
        let mut response = Json(info).into_response();
        let content_type = HeaderValue::from_static(FILE_INFO);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    } else {
        let location = signed_url(&hub, &origins, &path, &entry)?;
        let location = HeaderValue::try_from(location).map_err(Refusal::internal)?;
        (StatusCode::FOUND, [(header::LOCATION, location)]).into_response()
    };
    for (name, value) in linked {
        let value = HeaderValue::try_from(value).map_err(Refusal::internal)?;
        response
            .headers_mut()
            .insert(HeaderName::from_static(name), value);
    }
    Ok(response)
}

fn wants_file_info(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains(FILE_INFO))
}

fn signed_url(hub: &Hub, origins: &Origins, path: &str, entry: &Entry) -> Result<String, Refusal> {
    let expires = (hub.clock.now() + LIFE).timestamp();
    let signature = hub.signer.sign(&format!("{}:{expires}", entry.xet_hash));
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut url = url::Url::parse(&format!("{}/files/{}", origins.files, entry.xet_hash))
        .map_err(Refusal::internal)?;
    url.query_pairs_mut()
        .append_pair("expires", &expires.to_string())
        .append_pair("signature", &signature)
        .append_pair("name", name);
    if let Some(content_type) = &entry.content_type {
        url.query_pairs_mut().append_pair("type", content_type);
    }
    Ok(url.into())
}

/// Serves a signed URL: `Range`, `HEAD`, 403 once it has expired.
pub(in super::super) async fn signed_file(
    hub: &Hub,
    method: &Method,
    hash: &str,
    query: &HashMap<String, String>,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    if headers.contains_key(header::AUTHORIZATION) {
        return Err(Refusal::bad_request(
            "a signed URL takes no Authorization: the token was sent to another origin",
        ));
    }
    let get = |key: &str| query.get(key).map_or("", String::as_str);
    let expires = get("expires");
    let valid = hub
        .signer
        .verify(&format!("{hash}:{expires}"), get("signature"))
        && expires
            .parse()
            .is_ok_and(|at: i64| at > hub.clock.now().timestamp());
    if !valid {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "the signed URL has expired, or is none of this hub's",
        ));
    }
    let sizes = hub.content.sizes(vec![hash.to_owned()]).await;
    let size = *sizes
        .map_err(Refusal::internal)?
        .get(hash)
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "the content is gone"))?;
    let range = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("bytes="));
    let (status, range) = match range.map(|range| parse_range(range, size)) {
        None => (StatusCode::OK, 0..size),
        Some(Some(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(None) => {
            let total = format!("bytes */{size}");
            let refused = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok((refused, [(header::CONTENT_RANGE, total)]).into_response());
        }
    };
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let bytes = hub.content.read(hash, range.clone()).await;
        Body::from_stream(bytes.map_err(Refusal::internal)?)
    };
    let mut response = (status, body).into_response();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::ETAG, format!("\"{hash}\""));
    set(header::ACCEPT_RANGES, "bytes".into());
    set(
        header::CONTENT_LENGTH,
        (range.end - range.start).to_string(),
    );
    let content_type = match get("type") {
        "" => "application/octet-stream",
        given => given,
    };
    set(header::CONTENT_TYPE, content_type.into());
    if status == StatusCode::PARTIAL_CONTENT {
        let (first, last) = (range.start, range.end - 1);
        set(
            header::CONTENT_RANGE,
            format!("bytes {first}-{last}/{size}"),
        );
    }
    Ok(response)
}

/// One range of RFC 9110; `None` if it lies outside of the file.
fn parse_range(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(suffix)) if first.is_empty() => size.saturating_sub(suffix)..size,
        _ => return None,
    };
    (range.start < range.end).then_some(range)
}

fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_has_them() {
        assert_eq!(parse_range("0-0", 10), Some(0..1));
        assert_eq!(parse_range("3-99", 10), Some(3..10));
        assert_eq!(parse_range("3-", 10), Some(3..10));
        assert_eq!(parse_range("-4", 10), Some(6..10));
        assert_eq!(parse_range("-40", 10), Some(0..10));
        for bad in ["10-", "5-3", "-", "a-b", "", "-0"] {
            assert_eq!(parse_range(bad, 10), None, "{bad}");
        }
        assert_eq!(parse_range("0-", 0), None);
    }

    #[test]
    fn dates_are_those_of_http() {
        let time = DateTime::from_timestamp(784_111_777, 0).unwrap();
        assert_eq!(http_date(time), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
