//! Refusals, lost answers, limits, redirects, tokens that rotate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use async_trait::async_trait;

use super::*;
use crate::hub::types::BucketInfo;

const INFO: &str = r#"{"id":"o/b","private":false}"#;

async fn info_after(answers: impl IntoIterator<Item = Answer>) -> (Server, Result<BucketInfo>) {
    let server = Server::start(answers).await;
    let result = client(&server).bucket_info(&bucket()).await;
    (server, result)
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    let (server, result) = info_after([
        Answer::new(503, &["content-type: text/html"], "<h1>busy</h1>"),
        Answer::drop(),
        Answer::cut(200, &[], "{", 100),
        Answer::json(INFO),
    ])
    .await;
    assert_eq!(result.unwrap().id, "o/b");
    assert_eq!(server.requests().len(), 4);
    for status in [408, 429, 500, 502, 504] {
        let (server, result) = info_after([Answer::new(status, &[], ""), Answer::json(INFO)]).await;
        assert!(result.is_ok(), "{status}");
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn what_will_not_pass_is_not() {
    for (status, kind) in [
        (400, ErrorKind::Invalid),
        (401, ErrorKind::Unauthenticated),
        (403, ErrorKind::PermissionDenied),
        (404, ErrorKind::BucketNotFound),
        (409, ErrorKind::Conflict),
        (412, ErrorKind::PreconditionFailed),
        (416, ErrorKind::RangeNotSatisfiable),
        (422, ErrorKind::Invalid),
        (501, ErrorKind::Server),
    ] {
        let body = r#"{"error":"because of hf_secret"}"#;
        let refusal = Answer::new(status, &["x-request-id: req-1"], body);
        let (server, result) = info_after([refusal]).await;
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{status}");
        assert_eq!(error.status(), Some(status));
        assert_eq!(error.request_id(), Some("req-1"));
        let text = text_of(&error);
        for part in [
            "GET http://",
            "because of [token]",
            "bucket 'o/b'",
            "1 attempt in",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn persistent_trouble_ends_after_the_retries() {
    let (server, result) = info_after((0..9).map(|_| Answer::drop())).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport);
    assert!(text_of(&error).contains("4 attempts"), "{error}");
    assert_eq!(server.requests().len(), 4);

    let page = "<html><title>502 Bad Gateway</title></html>";
    let (_, result) = info_after((0..9).map(|_| Answer::new(502, &[], page))).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server);
    assert_eq!(error.message(), "502 Bad Gateway");
}

#[tokio::test]
async fn nobody_at_the_endpoint_is_a_transport_error() {
    let server = Server::start([]).await;
    let url = server.url();
    drop(server);
    let other = Server::start([]).await;
    let config = HubConfig {
        endpoint: url,
        ..config(&other)
    };
    let result = HubClient::new(config).unwrap().whoami().await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Transport);
}

#[tokio::test]
async fn a_hanging_server_ends_in_a_timeout() {
    let server = Server::start([Answer::Hang]).await;
    let mut config = config(&server);
    config.retry.timeout = Duration::from_millis(50);
    let error = HubClient::new(config).unwrap().whoami().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(text_of(&error).contains("1 attempt"), "{error}");
}

#[tokio::test]
async fn a_timeout_of_one_request_is_tried_again() {
    let server = Server::start([Answer::Hang, Answer::json(INFO)]).await;
    let mut config = config(&server);
    config.http = Client::builder().timeout(Duration::from_millis(50));
    let result = HubClient::new(config).unwrap().bucket_info(&bucket()).await;
    assert_eq!(result.unwrap().id, "o/b");
}

#[tokio::test]
async fn a_limit_is_waited_out_only_if_there_is_time() {
    let limited = |headers: &[&str]| Answer::new(429, headers, r#"{"error":"too many"}"#);
    let start = Instant::now();
    let (_, result) = info_after([limited(&["retry-after: 1"]), Answer::json(INFO)]).await;
    assert!(result.is_ok());
    assert!(start.elapsed() >= Duration::from_secs(1));

    let policy = "ratelimit-policy: \"fixed window\";\"api\";q=500;w=300";
    let headers = ["ratelimit: \"api\";r=0;t=200", policy, "retry-after: 1"];
    let start = Instant::now();
    let (server, result) = info_after([limited(&headers)]).await;
    assert!(start.elapsed() < Duration::from_secs(10));
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    let text = text_of(&error);
    assert!(text.contains("due in 201.0 s"), "{text}");
    assert!(text.contains("500 requests per 300 s"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_unreadable_answer_is_shown_in_part() {
    let (_, result) = info_after([Answer::new(200, &[], "<html><title>Log in</title>")]).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(text_of(&error).contains("Log in"), "{error}");
}

#[tokio::test]
async fn offline_sends_nothing() {
    let server = Server::start([]).await;
    let config = HubConfig {
        offline: true,
        ..config(&server)
    };
    let client = HubClient::new(config).unwrap();
    let error = client.whoami().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Offline);
    let errors = [
        client.download(&bucket(), "a", None).await.err(),
        client
            .batch(&bucket(), vec![BatchOp::Delete { path: "a".into() }])
            .await
            .err(),
        pages(&client, "", true).await.err(),
    ];
    for error in errors {
        assert_eq!(error.unwrap().kind(), ErrorKind::Offline);
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_lost_answer_to_a_deletion_is_no_missing_bucket() {
    let missing = || Answer::new(404, &["x-error-code: RepoNotFound"], "");
    let server = Server::start([Answer::drop(), missing()]).await;
    client(&server).delete_bucket(&bucket()).await.unwrap();
    let server = Server::start([missing()]).await;
    let error = client(&server).delete_bucket(&bucket()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BucketNotFound);
}

/// Gives `hf_secret0`, and after every rejection the next one up to `last`.
#[derive(Debug)]
struct Rotating {
    current: AtomicUsize,
    last: usize,
}

#[async_trait]
impl TokenSource for Rotating {
    async fn token(&self) -> Result<Option<Secret>, Error> {
        let current = self.current.load(Ordering::SeqCst).min(self.last);
        Ok(Some(Secret::new(format!("hf_secret{current}"))))
    }

    fn rejected(&self) {
        self.current.fetch_add(1, Ordering::SeqCst);
    }
}

async fn with_tokens(server: &Server, last: usize) -> Result<BucketInfo> {
    let tokens = Arc::new(Rotating {
        current: AtomicUsize::new(0),
        last,
    });
    let config = HubConfig {
        tokens,
        ..config(server)
    };
    HubClient::new(config)?.bucket_info(&bucket()).await
}

#[tokio::test]
async fn a_rejected_token_is_replaced_once() {
    let no = || Answer::new(401, &["x-error-message: Invalid credentials"], "");
    let server = Server::start([no(), Answer::json(INFO)]).await;
    with_tokens(&server, 9).await.unwrap();
    let sent: Vec<_> = server.requests();
    assert_eq!(sent[0].authorization(), Some("Bearer hf_secret0"));
    assert_eq!(sent[1].authorization(), Some("Bearer hf_secret1"));

    let server = Server::start((0..5).map(|_| no())).await;
    let error = with_tokens(&server, 9).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert_eq!(server.requests().len(), 2);

    let server = Server::start((0..5).map(|_| no())).await;
    let error = with_tokens(&server, 0).await.unwrap_err();
    assert!(
        text_of(&error).contains("does not accept the token"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn no_token_sends_none_and_an_empty_one_an_empty_bearer() {
    for (token, sent, advice) in [
        (None, None, "no token was sent: set HF_TOKEN"),
        (
            Some(Secret::new("")),
            Some("Bearer"),
            "or the bucket is missing or hidden",
        ),
    ] {
        let body = r#"{"error":"Invalid username or password."}"#;
        let server = Server::start([Answer::new(401, &[], body)]).await;
        let tokens = Arc::new(StaticToken(token));
        let config = HubConfig {
            tokens,
            ..config(&server)
        };
        let client = HubClient::new(config).unwrap();
        let error = client.bucket_info(&bucket()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        assert!(text_of(&error).contains(advice), "{error}");
        assert_eq!(server.requests()[0].authorization(), sent);
    }
}

#[tokio::test]
async fn a_redirect_within_the_hub_keeps_method_body_and_token() {
    let location = "location: /api/buckets/o/B/paths-info?x=%2F";
    let server = Server::start([Answer::new(307, &[location], ""), Answer::json("[]")]).await;
    let paths = ["a".to_owned()];
    client(&server).paths_info(&bucket(), &paths).await.unwrap();
    let second = &server.requests()[1];
    assert_eq!(second.line, "POST /api/buckets/o/B/paths-info?x=%2F");
    assert_eq!(second.body, r#"{"paths":["a"]}"#);
    assert_eq!(second.authorization(), BEARER);
}

#[tokio::test]
async fn a_redirect_out_of_the_hub_is_not_followed() {
    let other = Server::start([Answer::json(INFO)]).await;
    let location = format!("location: {}", other.at("/api?sig=hf_secret"));
    let (_, result) = info_after([Answer::new(307, &[&location], "")]).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(text_of(&error).contains("not followed"), "{error}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn redirects_come_to_an_end() {
    let again = || Answer::new(307, &["location: /api/buckets/o/b?again"], "");
    let (server, result) = info_after((0..30).map(|_| again())).await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::TooManyRedirects);
    assert_eq!(server.requests().len(), 21);
    let hops = (0..20).map(|_| again()).chain([Answer::json(INFO)]);
    assert!(info_after(hops).await.1.is_ok());
}
