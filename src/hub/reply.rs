//! What an answer says, above all a refusal: its kind, its words, its request id.

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::error::ErrorKind;
use super::rate_limit;

/// Server messages are cut to this many characters.
const MESSAGE_CAP: usize = 500;

/// The class of a refusal, and what it says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub kind: ErrorKind,
    pub message: String,
}

/// What a route means by a 404 that carries no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFound {
    Bucket,
    Entry,
    /// The route itself: this is not a Hub.
    Route,
}

/// Reads a refusal. `body` may be cut short.
pub(super) fn refusal(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    not_found: NotFound,
) -> Refusal {
    let header = text(headers, "x-error-message");
    let body = body_message(headers, body);
    let mut message = match (header, body) {
        (Some(header), Some(body)) if header != body => format!("{header}: {body}"),
        (Some(message), _) | (None, Some(message)) => message,
        (None, None) => String::new(),
    };
    if status == StatusCode::TOO_MANY_REQUESTS
        && let Some(policy) = rate_limit::policy_in_words(headers)
    {
        if !message.is_empty() {
            message.push_str("; ");
        }
        message.push_str(&policy);
    }
    let code = text(headers, "x-error-code");
    Refusal {
        kind: kind(status, code.as_deref(), not_found),
        message: cap(&message),
    }
}

fn kind(status: StatusCode, code: Option<&str>, not_found: NotFound) -> ErrorKind {
    match (status.as_u16(), code) {
        // The code speaks for itself, whatever the status: a private bucket may be a 401.
        (400..=499, Some("RepoNotFound")) => ErrorKind::BucketNotFound,
        (400..=499, Some("EntryNotFound")) => ErrorKind::EntryNotFound,
        (404, _) => match not_found {
            NotFound::Bucket => ErrorKind::BucketNotFound,
            // Old deployments and proxies lose the code. Where a path was asked for, the path is
            // the likelier thing to be missing.
            NotFound::Entry => ErrorKind::EntryNotFound,
            NotFound::Route => ErrorKind::Protocol,
        },
        (401, _) => ErrorKind::Unauthenticated,
        // 402: a quota of the plan is used up; no retry helps.
        (402 | 403, _) => ErrorKind::PermissionDenied,
        (408, _) => ErrorKind::Timeout,
        (409, _) => ErrorKind::Conflict,
        (412, _) => ErrorKind::PreconditionFailed,
        (416, _) => ErrorKind::RangeNotSatisfiable,
        (429, _) => ErrorKind::RateLimited,
        (400..=499, _) => ErrorKind::Invalid,
        (500..=599, _) => ErrorKind::Server,
        _ => ErrorKind::Protocol,
    }
}

/// The id by which the Hub's operators find a request.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    text(headers, "x-request-id").or_else(|| text(headers, "x-amzn-trace-id"))
}

pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(headers.get(name)?.as_bytes())
        .trim()
        .to_owned();
    (!text.is_empty()).then_some(text)
}

pub(super) fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

fn body_message(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(value) => json_message(&value),
        Err(_) => excerpt(headers, body),
    };
    Some(message.trim().to_owned()).filter(|message| !message.is_empty())
}

/// The forms seen: `{error: string | array}`, `{error, error_description}`,
/// `{errors: [{message}]}`.
fn json_message(value: &Value) -> String {
    let mut parts = Vec::new();
    for key in ["error", "error_description", "message", "errors"] {
        if let Some(value) = value.get(key) {
            collect(value, &mut parts);
        }
    }
    if parts.is_empty() && !value.is_null() {
        parts.push(value.to_string());
    }
    parts.dedup();
    parts.join(": ")
}

fn collect(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::String(text) => parts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, parts)),
        Value::Object(fields) => {
            if let Some(message) = fields.get("message").or_else(|| fields.get("error")) {
                collect(message, parts);
            }
        }
        _ => {}
    }
}

/// A short, readable piece of a body that is not the JSON it should be.
pub(super) fn excerpt(headers: &HeaderMap, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let is_html = text(headers, CONTENT_TYPE.as_str())
        .is_some_and(|kind| kind.to_ascii_lowercase().contains("html"))
        || body.trim_start().starts_with('<');
    let plain = if is_html {
        strip_markup(&body)
    } else {
        body.into_owned()
    };
    cap(&plain.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The title of a page, else its text without tags.
fn strip_markup(page: &str) -> String {
    if let Some((_, rest)) = page.split_once("<title>")
        && let Some((title, _)) = rest.split_once("</title>")
        && !title.trim().is_empty()
    {
        return title.to_owned();
    }
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        text.push(' ');
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

fn cap(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CAP) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads at most `limit` bytes of a body; the rest is dropped. For refusals, of which half a body is
/// better than none.
pub(super) async fn read_some(mut response: Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < limit {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(limit);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(status: u16, headers: &[(&'static str, &str)], body: &str) -> (ErrorKind, String) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        let refusal = refusal(status, &map, body.as_bytes(), NotFound::Bucket);
        (refusal.kind, refusal.message)
    }

    #[test]
    fn every_form_of_body_is_read() {
        for (body, expected) in [
            (r#"{"error":"no such thing"}"#, "no such thing"),
            (r#"{"error":["a","b"]}"#, "a: b"),
            (r#"{"error":"x","error_description":"y"}"#, "x: y"),
            (r#"{"error":"x","message":"x"}"#, "x"),
            (
                r#"{"errors":[{"message":"m1"},{"message":"m2"}]}"#,
                "m1: m2",
            ),
            (r#"{"error":{"message":"deep"}}"#, "deep"),
            (r#"{"other":1}"#, r#"{"other":1}"#),
            ("plain\n  text", "plain text"),
            ("", ""),
            ("null", ""),
        ] {
            assert_eq!(
                refuse(422, &[], body),
                (ErrorKind::Invalid, expected.to_owned())
            );
        }
    }

    #[test]
    fn pages_become_short() {
        let page = "<html><head><title>504 Gateway\nTime-out</title></head><body>x</body></html>";
        assert_eq!(refuse(504, &[], page).1, "504 Gateway Time-out");
        let page = "<html><body><h1>Oops</h1><p>down &amp; out</p></body";
        assert_eq!(
            refuse(503, &[("content-type", "text/html")], page).1,
            "Oops down &amp; out"
        );
        let (kind, message) = refuse(500, &[], &"é".repeat(10_000));
        assert_eq!(kind, ErrorKind::Server);
        assert_eq!(message.chars().count(), MESSAGE_CAP + 1);
    }

    #[test]
    fn the_header_speaks_first() {
        let headers = [(
            "x-error-message",
            "Invalid credentials in Authorization header",
        )];
        assert_eq!(
            refuse(
                401,
                &headers,
                r#"{"error":"Invalid username or password."}"#
            )
            .1,
            "Invalid credentials in Authorization header: Invalid username or password."
        );
        assert_eq!(
            refuse(
                401,
                &headers,
                r#"{"error":"Invalid credentials in Authorization header"}"#
            )
            .1,
            "Invalid credentials in Authorization header"
        );
    }

    #[test]
    fn codes_and_statuses_become_kinds() {
        let code = |status, code| refuse(status, &[("x-error-code", code)], "").0;
        assert_eq!(code(404, "RepoNotFound"), ErrorKind::BucketNotFound);
        assert_eq!(code(401, "RepoNotFound"), ErrorKind::BucketNotFound);
        assert_eq!(code(404, "EntryNotFound"), ErrorKind::EntryNotFound);
        assert_eq!(code(403, "GatedRepo"), ErrorKind::PermissionDenied);
        assert_eq!(code(500, "RepoNotFound"), ErrorKind::Server);
        for (status, kind) in [
            (400, ErrorKind::Invalid),
            (401, ErrorKind::Unauthenticated),
            (402, ErrorKind::PermissionDenied),
            (403, ErrorKind::PermissionDenied),
            (404, ErrorKind::BucketNotFound),
            (408, ErrorKind::Timeout),
            (409, ErrorKind::Conflict),
            (412, ErrorKind::PreconditionFailed),
            (413, ErrorKind::Invalid),
            (416, ErrorKind::RangeNotSatisfiable),
            (422, ErrorKind::Invalid),
            (429, ErrorKind::RateLimited),
            (500, ErrorKind::Server),
            (503, ErrorKind::Server),
            (204, ErrorKind::Protocol),
            (304, ErrorKind::Protocol),
        ] {
            assert_eq!(refuse(status, &[], "").0, kind, "{status}");
        }
        let codeless = |not_found| kind(StatusCode::NOT_FOUND, None, not_found);
        assert_eq!(codeless(NotFound::Entry), ErrorKind::EntryNotFound);
        assert_eq!(codeless(NotFound::Route), ErrorKind::Protocol);
    }

    #[test]
    fn a_rate_limit_names_its_numbers() {
        let headers = [("ratelimit-policy", "\"fixed window\";\"api\";q=500;w=300")];
        assert_eq!(
            refuse(429, &headers, r#"{"error":"slow down"}"#).1,
            "slow down; limit of 'api': 500 requests per 300 s"
        );
    }

    #[test]
    fn the_request_id_is_found() {
        let mut headers = HeaderMap::new();
        assert_eq!(request_id(&headers), None);
        headers.insert("x-amzn-trace-id", "Root=1".parse().unwrap());
        assert_eq!(request_id(&headers).as_deref(), Some("Root=1"));
        headers.insert("x-request-id", "abc".parse().unwrap());
        assert_eq!(request_id(&headers).as_deref(), Some("abc"));
    }
}
