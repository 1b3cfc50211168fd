//! The batch route; the rules of settlement are tested beside them.

use super::*;

fn add(path: &str) -> BatchOp {
    BatchOp::Add {
        path: path.into(),
        xet_hash: "ff".into(),
        mtime_ms: Some(1),
        content_type: None,
    }
}

fn delete(path: &str) -> BatchOp {
    BatchOp::Delete { path: path.into() }
}

fn report(count: usize) -> Answer {
    Answer::json(&format!(
        r#"{{"success":true,"processed":{count},"succeeded":{count},"failed":[]}}"#
    ))
}

async fn send(server: &Server, ops: Vec<BatchOp>) -> Result<Vec<Option<ErrorKind>>> {
    let outcomes = client(server).batch(&bucket(), ops).await?;
    let kind = |outcome: Result<(), Error>| outcome.err().map(|error| error.kind());
    Ok(outcomes.into_iter().map(kind).collect())
}

#[tokio::test]
async fn a_batch_goes_out_as_lines_additions_first() {
    let server = Server::start([report(2)]).await;
    assert_eq!(
        send(&server, vec![delete("d e"), add("a")]).await.unwrap(),
        [None, None]
    );
    let request = &server.requests()[0];
    assert_eq!(request.line, "POST /api/buckets/o/b/batch");
    assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(request.authorization(), BEARER);
    assert_eq!(
        request.body,
        "{\"type\":\"addFile\",\"path\":\"a\",\"xetHash\":\"ff\",\"mtime\":1}\n\
         {\"type\":\"deleteFile\",\"path\":\"d e\"}\n"
    );
}

#[tokio::test]
async fn lost_and_unreadable_answers_are_settled_by_looking() {
    let found = r#"[{"type":"file","path":"a","xetHash":"ff"},{"type":"file","path":"d"}]"#;
    for lost in [
        Answer::drop(),
        Answer::new(504, &[], "<html>"),
        Answer::cut(200, &[], "{\"success\":", 99),
        Answer::json("{\"success\":true}"),
    ] {
        let server = Server::start([lost, Answer::json(found), report(1)]).await;
        let ops = vec![add("a"), delete("c"), delete("d")];
        assert_eq!(send(&server, ops).await.unwrap(), [None; 3]);
        let requests = server.requests();
        assert_eq!(requests[1].line, "POST /api/buckets/o/b/paths-info");
        assert_eq!(requests[1].body, r#"{"paths":["a","c","d"]}"#);
        assert_eq!(
            requests[2].body,
            "{\"type\":\"deleteFile\",\"path\":\"d\"}\n"
        );
    }
}

#[tokio::test]
async fn a_limited_batch_was_not_done_and_is_sent_again() {
    let limited = Answer::new(429, &["retry-after: 0"], "");
    let server = Server::start([limited, report(1)]).await;
    assert_eq!(send(&server, vec![add("a")]).await.unwrap(), [None]);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn refusals_of_the_whole_batch_are_one_error() {
    for (status, headers, body, kind) in [
        (401, vec![], "", ErrorKind::Unauthenticated),
        (403, vec![], "", ErrorKind::PermissionDenied),
        (
            404,
            vec!["x-error-code: RepoNotFound"],
            "",
            ErrorKind::BucketNotFound,
        ),
        (422, vec![], r#"{"error":"bad path"}"#, ErrorKind::Invalid),
    ] {
        let server = Server::start([Answer::new(status, &headers, body)]).await;
        let error = send(&server, vec![add("a")]).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status}");
        assert_eq!(server.requests().len(), 1);
        if status == 422 {
            assert!(text_of(&error).contains("bad path"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_bad_key_is_refused_before_anything_is_sent() {
    let server = Server::start([]).await;
    let error = send(&server, vec![add("a"), delete("x//y")])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = text_of(&error);
    assert!(
        text.contains("path 'x//y'") && text.contains("bucket 'o/b'"),
        "{text}"
    );
    assert!(server.requests().is_empty());
}
