//! One call on its way: offline check, token, redirects, status, retries.

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use super::auth::{Secret, bearer};
use super::call::Call;
use super::client::HubClient;
use super::describe;
use super::error::{Error, ErrorKind};
use super::rate_limit::requested_wait;
use super::redirect::{self, MAX_HOPS, RedirectError, Redirects};
use super::reply::{self, read_some};
use super::retry::{Class, Failure, GaveUp, run};

/// A full page of a listing with the longest paths is a few megabytes.
const REPLY_LIMIT: usize = 64 << 20;
const REFUSAL_LIMIT: usize = 64 << 10;
/// What is longer than this describes no file, but is one.
const DESCRIPTION_LIMIT: usize = 64 << 10;

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Where the answer came from, after redirects.
    pub url: Url,
    pub body: Bytes,
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub(super) struct Arrived {
    pub response: Response,
    pub url: Url,
    /// The headers of the Hub's redirect that describes the file, if there was one.
    pub described: Option<HeaderMap>,
    token: Option<Secret>,
    /// Whether the endpoint itself answered, not a host that it redirected to.
    from_endpoint: bool,
}

impl HubClient {
    /// Sends a call until it succeeds or there is nothing left to try.
    pub(super) async fn send(&self, call: &Call<'_>) -> Result<Reply, Error> {
        let deadline = self.retry_policy().deadline();
        Ok(self.send_until(call, deadline).await?)
    }

    /// As `send`, and also says whether a failed call may have done its work.
    pub(super) async fn send_until(
        &self,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Reply, GaveUp> {
        self.check_online(call)?;
        run(self.retry_policy(), deadline, call.safety, || async {
            let arrived = self.dispatch(call, deadline).await?;
            read_reply(call, arrived).await
        })
        .await
        .map_err(|gave_up| GaveUp {
            error: call.describe(gave_up.error),
            ..gave_up
        })
    }

    pub(super) fn check_online(&self, call: &Call<'_>) -> Result<(), GaveUp> {
        if !self.is_offline() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Offline, "offline mode: nothing was sent");
        Err(GaveUp {
            error: call.describe(error),
            class: Class::Final,
            maybe_done: false,
            wait: None,
        })
    }

    /// One attempt: follows redirects until an answer that the call takes, or a refusal.
    /// What must wait for the rate limit beyond `deadline` is not sent.
    pub(super) async fn dispatch(
        &self,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Arrived, Failure> {
        let mut url = call.url.clone();
        let mut described = None;
        for _ in 0..=MAX_HOPS {
            let (response, token) = self.hop(call, &url, deadline).await?;
            let status = response.status();
            let headers = response.headers();
            let describes = redirect::describes_file(headers);
            let is_answer = !status.is_redirection()
                || status == StatusCode::NOT_MODIFIED
                || (describes && call.redirects == Redirects::Describing);
            if is_answer {
                let arrived = Arrived {
                    from_endpoint: self.is_endpoint(&url),
                    response,
                    url,
                    described,
                    token,
                };
                return check_status(call, arrived).await;
            }
            if describes && described.is_none() {
                described = Some(headers.clone());
            }
            url = redirect::follow(
                call.redirects,
                self.endpoint(),
                &call.method,
                &url,
                status,
                headers,
            )
            .map_err(|error| {
                let error = Error::from(error).with_status(status);
                Failure::last(error.with_request_id(reply::request_id(headers)))
            })?;
        }
        let to = super::error::shown(&url);
        Err(Failure::last(RedirectError::TooMany { to }))
    }

    /// One request. A 401 is repeated once if the token source then has another token.
    async fn hop(
        &self,
        call: &Call<'_>,
        url: &Url,
        deadline: Instant,
    ) -> Result<(Response, Option<Secret>), Failure> {
        // The token belongs to the endpoint and goes nowhere else.
        if !self.is_endpoint(url) {
            return Ok((self.request(call, url, None).await?, None));
        }
        let token = self.token().await?;
        let response = self.counted(call, url, token.as_ref(), deadline).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok((response, token));
        }
        self.tokens().rejected();
        let fresh = self.token().await?;
        if fresh == token {
            return Ok((response, token));
        }
        drop(response);
        let response = self.counted(call, url, fresh.as_ref(), deadline).await?;
        Ok((response, fresh))
    }

    async fn token(&self) -> Result<Option<Secret>, Failure> {
        self.tokens().token().await.map_err(Failure::last)
    }

    /// A request to the endpoint, within the token's rate limit.
    async fn counted(
        &self,
        call: &Call<'_>,
        url: &Url,
        token: Option<&Secret>,
        deadline: Instant,
    ) -> Result<Response, Failure> {
        let budget = self.budgets().budget(token, call.class);
        let reserved = budget.reserve(deadline).await.map_err(|used_up| {
            let message = used_up.to_string();
            let error = Error::new(ErrorKind::RateLimited, message).with_source(used_up);
            Failure::last(error)
        })?;
        let response = self.request(call, url, token).await?;
        reserved.answered(response.status(), response.headers());
        Ok(response)
    }

    async fn request(
        &self,
        call: &Call<'_>,
        url: &Url,
        token: Option<&Secret>,
    ) -> Result<Response, Failure> {
        let mut request = self
            .http()
            .request(call.method.clone(), url.clone())
            .headers(call.headers.clone());
        if !call.body.is_empty() {
            request = request.body(call.body.clone());
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, bearer(token).map_err(Failure::last)?);
        }
        request.send().await.map_err(transport)
    }
}

/// A failure below HTTP.
pub(super) fn transport(error: reqwest::Error) -> Failure {
    // Signed URLs carry their secret in the query, and reqwest repeats the URL.
    let error = error.without_url();
    let kind = if error.is_timeout() {
        ErrorKind::Timeout
    } else {
        ErrorKind::Transport
    };
    let class = if error.is_builder() {
        Class::Final
    } else if error.is_connect() {
        Class::Undone
    } else {
        Class::Unknown
    };
    let message = chain(&error);
    Failure::new(class, Error::new(kind, message).with_source(error))
}

/// `error sending request` alone says nothing: the causes do.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

async fn check_status(call: &Call<'_>, arrived: Arrived) -> Result<Arrived, Failure> {
    let status = arrived.response.status();
    let is_taken = status.is_success()
        || (status == StatusCode::UNPROCESSABLE_ENTITY && call.takes_422)
        || (status.is_redirection() && call.redirects == Redirects::Describing);
    if is_taken {
        return Ok(arrived);
    }
    Err(refused(call, arrived).await)
}

async fn refused(call: &Call<'_>, arrived: Arrived) -> Failure {
    let Arrived {
        response,
        token,
        from_endpoint,
        described,
        ..
    } = arrived;
    let status = response.status();
    let headers = response.headers().clone();
    let body = read_some(response, REFUSAL_LIMIT).await;
    let refusal = reply::refusal(status, &headers, &body, call.not_found);
    // A signed URL that expired is no lack of rights: the next attempt gets a new one.
    let stale_url =
        (described.is_some() || !from_endpoint) && matches!(status.as_u16(), 401 | 403 | 404);
    let kind = if stale_url {
        ErrorKind::Server
    } else {
        refusal.kind
    };
    let error = Error::new(kind, without_token(refusal.message, token.as_ref()))
        .with_status(status)
        .with_request_id(reply::request_id(&headers))
        .anonymously(token.is_none());
    Failure {
        error,
        class: if stale_url {
            Class::Undone
        } else {
            class(status)
        },
        wait: matches!(status.as_u16(), 429 | 503)
            .then(|| requested_wait(&headers))
            .flatten(),
    }
}

fn class(status: StatusCode) -> Class {
    match status.as_u16() {
        429 => Class::Undone,
        408 | 500 | 502 | 503 | 504 => Class::Unknown,
        _ => Class::Final,
    }
}

/// Should a server echo the token, it ends here.
fn without_token(message: String, token: Option<&Secret>) -> String {
    match token.map(Secret::expose) {
        // What is shorter is no secret, and occurs in any text.
        Some(token) if token.len() >= 8 => message.replace(token, "[token]"),
        _ => message,
    }
}

async fn read_reply(call: &Call<'_>, arrived: Arrived) -> Result<Reply, Failure> {
    let Arrived {
        mut response, url, ..
    } = arrived;
    let status = response.status();
    let headers = response.headers().clone();
    let mut body = BytesMut::new();
    let describing = call.redirects == Redirects::Describing;
    // Where a description was asked for, the file itself may come, which is not wanted here.
    let wants_body = !describing || describe::may_be_description(&headers);
    while wants_body && let Some(chunk) = response.chunk().await.map_err(transport)? {
        if describing && body.len() + chunk.len() > DESCRIPTION_LIMIT {
            body.clear();
            break;
        }
        if body.len() + chunk.len() > REPLY_LIMIT {
            let message = format!("the answer is longer than {REPLY_LIMIT} bytes");
            let error = Error::new(ErrorKind::Protocol, message).with_status(status);
            return Err(Failure::last(error));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply {
        status,
        headers,
        url,
        body: body.freeze(),
    })
}

impl Reply {
    /// The body as JSON, or an error that shows a piece of it.
    pub(super) fn json<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| {
            // serde repeats the values it cannot use.
            let message = if call.secret_reply {
                format!(
                    "cannot read the answer (line {}, column {})",
                    error.line(),
                    error.column()
                )
            } else {
                let excerpt = reply::excerpt(&self.headers, &self.body);
                format!("cannot read the answer ({error}): {excerpt}")
            };
            self.inconsistent(call, message)
        })
    }

    /// The error that a refusal taken as an answer is after all.
    pub(super) fn refusal(&self, call: &Call<'_>) -> Error {
        let refusal = reply::refusal(self.status, &self.headers, &self.body, call.not_found);
        self.inconsistent(call, refusal.message)
            .with_kind(refusal.kind)
    }

    /// An error about this answer.
    pub(super) fn inconsistent(&self, call: &Call<'_>, message: impl Into<String>) -> Error {
        call.describe(
            Error::new(ErrorKind::Protocol, message)
                .with_status(self.status)
                .with_request_id(reply::request_id(&self.headers)),
        )
    }
}
