//! What `resolve` says of a file: as JSON, on a redirect to its bytes, or on the bytes themselves.

use chrono::{DateTime, Utc};
use reqwest::header::HeaderMap;

use super::call::Call;
use super::error::Error;
use super::reply::{number, text};
use super::send::Reply;
use super::types::FileInfo;
use super::wire::FileInfoReply;

const FILE_INFO: &str = "application/vnd.xet-fileinfo+json";

/// Whether a body may be the JSON form, so that it is worth reading.
pub(super) fn may_be_description(headers: &HeaderMap) -> bool {
    matches!(
        media_type(headers).as_deref(),
        Some(FILE_INFO | "application/json")
    )
}

/// Understands all three forms.
pub(super) fn file_info(call: &Call<'_>, reply: &Reply) -> Result<FileInfo, Error> {
    if media_type(&reply.headers).as_deref() == Some(FILE_INFO) {
        return Ok(of_json(reply.json(call)?, &reply.headers));
    }
    // Plain JSON may be the description, or a JSON file that is served without a redirect.
    if let Ok(json) = serde_json::from_slice::<FileInfoReply>(&reply.body)
        && json.hash.is_some()
        && (json.refresh_url.is_some() || json.reconstruction_url.is_some())
    {
        return Ok(of_json(json, &reply.headers));
    }
    of_headers(&reply.headers, reply.status.is_success())
        .ok_or_else(|| reply.inconsistent(call, "the answer does not tell the object's size"))
}

fn of_json(json: FileInfoReply, headers: &HeaderMap) -> FileInfo {
    FileInfo {
        size: json.size,
        xet_hash: json.hash.or_else(|| text(headers, "x-xet-hash")),
        etag: json.etag.as_deref().map(unquoted).or_else(|| etag(headers)),
        content_type: json.content_type,
        last_modified: last_modified(headers),
    }
}

/// A redirect's `Content-Length` is that of the redirect, so only `X-Linked-Size` tells the size
/// there.
fn of_headers(headers: &HeaderMap, is_file: bool) -> Option<FileInfo> {
    let linked = number(headers, "x-linked-size");
    let own = || number(headers, "content-length").filter(|_| is_file);
    Some(FileInfo {
        size: linked.or_else(own)?,
        xet_hash: text(headers, "x-xet-hash"),
        etag: etag(headers),
        content_type: text(headers, "content-type").filter(|_| is_file),
        last_modified: last_modified(headers),
    })
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = text(headers, "content-type")?;
    let media_type = text.split(';').next().unwrap_or_default().trim();
    Some(media_type.to_ascii_lowercase())
}

fn etag(headers: &HeaderMap) -> Option<String> {
    let tag = text(headers, "x-linked-etag").or_else(|| text(headers, "etag"))?;
    Some(unquoted(&tag))
}

fn unquoted(tag: &str) -> String {
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    tag.trim_matches('"').to_owned()
}

fn last_modified(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let text = text(headers, "last-modified")?;
    let time = DateTime::parse_from_rfc2822(&text).ok()?;
    Some(time.with_timezone(&Utc))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use reqwest::{Method, StatusCode};
    use url::Url;

    use super::*;
    use crate::hub::ErrorKind;

    fn info(
        status: u16,
        headers: &[(&'static str, &str)],
        body: &'static str,
    ) -> Result<FileInfo, Error> {
        let url = Url::parse("https://hub.test/buckets/o/b/resolve/x").unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: map,
            url: url.clone(),
            body: Bytes::from_static(body.as_bytes()),
        };
        file_info(&Call::new(Method::GET, url), &reply)
    }

    const JSON: &str = r#"{"hash":"ff","refreshUrl":"r","reconstructionUrl":"c","etag":"\"e\"",
        "size":7,"contentType":"text/plain"}"#;

    fn expected() -> FileInfo {
        FileInfo {
            size: 7,
            xet_hash: Some("ff".into()),
            etag: Some("e".into()),
            content_type: Some("text/plain".into()),
            last_modified: DateTime::from_timestamp_millis(1_445_412_480_000),
        }
    }

    const MODIFIED: (&str, &str) = ("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT");

    #[test]
    fn the_json_form_is_read_whatever_json_it_says_to_be() {
        for kind in [FILE_INFO, "application/json; charset=utf-8"] {
            let headers = [
                ("content-type", kind),
                ("x-linked-size", "7"),
                ("content-length", "99"),
                MODIFIED,
            ];
            assert_eq!(info(200, &headers, JSON).unwrap(), expected(), "{kind}");
        }
        let error = info(200, &[("content-type", FILE_INFO)], "{").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_redirect_is_read_by_its_linked_headers() {
        let headers = [
            ("content-type", "text/html"),
            ("content-length", "1234"),
            ("x-linked-size", "7"),
            ("x-linked-etag", "W/\"e\""),
            ("etag", "\"other\""),
            ("x-xet-hash", "ff"),
            MODIFIED,
        ];
        let redirect = FileInfo {
            content_type: None,
            ..expected()
        };
        assert_eq!(info(302, &headers, "Found").unwrap(), redirect);
        let error = info(302, &[("content-length", "7")], "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_file_served_at_once_is_read_by_its_own_headers() {
        let headers = [
            ("content-type", "application/json"),
            ("content-length", "7"),
            ("etag", "\"e\""),
        ];
        let file = info(200, &headers, r#"{"a":1}"#).unwrap();
        assert_eq!(file.size, 7);
        assert_eq!(file.etag.as_deref(), Some("e"));
        assert_eq!(file.content_type.as_deref(), Some("application/json"));
        assert_eq!(info(200, &[("content-length", "0")], "").unwrap().size, 0);
    }
}
