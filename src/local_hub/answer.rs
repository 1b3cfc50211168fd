//! Refusals in the Hub's form.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::state::BucketName;

const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-error-message");

/// An error answer: a status, `X-Error-Code` and `X-Error-Message`, and `{"error": …}`.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    status: StatusCode,
    code: Option<&'static str>,
    message: String,
    /// Further fields of the body.
    extra: Value,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            code: None,
            message: message.into(),
            extra: Value::Null,
        }
    }

    fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// No token where one is needed, which the Hub does not tell from a bucket that is not there.
    pub(super) fn no_token() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Invalid username or password.")
    }

    pub(super) fn bad_token() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Invalid credentials in Authorization header",
        )
    }

    pub(super) fn forbidden(namespace: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            format!("You don't have the rights to write in the namespace \"{namespace}\""),
        )
    }

    pub(super) fn no_bucket(name: &BucketName) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Bucket {name} not found"))
            .with_code("RepoNotFound")
    }

    pub(super) fn no_entry(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Entry {path} not found"))
            .with_code("EntryNotFound")
    }

    pub(super) fn exists(name: &BucketName, url: &str, id: &str) -> Self {
        Self {
            extra: json!({"url": url, "id": id}),
            ..Self::new(
                StatusCode::CONFLICT,
                format!("You already created this bucket: {name}"),
            )
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The hub itself failed: its disk, or a task of its own.
    pub(super) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = json!({"error": self.message});
        if let (Some(body), Value::Object(extra)) = (body.as_object_mut(), self.extra) {
            body.extend(extra);
        }
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(code) = self.code {
            headers.insert(ERROR_CODE, HeaderValue::from_static(code));
        }
        // A message with characters that no header can carry is in the body alone.
        if let Ok(message) = HeaderValue::from_str(&self.message) {
            headers.insert(ERROR_MESSAGE, message);
        }
        response
    }
}
