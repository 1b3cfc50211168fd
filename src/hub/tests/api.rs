//! What goes out, and how right answers are read.

use super::*;
use crate::hub::types::WhoAmI;

#[tokio::test]
async fn whoami_names_user_and_organisations() {
    let body = r#"{"type":"user","name":"me","orgs":[{"name":"o","x":1}]}"#;
    let server = Server::start([Answer::json(body)]).await;
    let who = client(&server).whoami().await.unwrap();
    let orgs = vec!["o".to_owned()];
    assert_eq!(
        who,
        WhoAmI {
            name: "me".into(),
            orgs
        }
    );
    let request = &server.requests()[0];
    assert_eq!(request.line, "GET /api/whoami-v2");
    assert_eq!(request.authorization(), BEARER);
}

#[tokio::test]
async fn a_bucket_is_created_described_and_deleted() {
    let info = r#"{"_id":"1","author":"o","id":"o/b","private":true,"size":5,"totalFiles":2,
        "createdAt":"2025-12-01T00:00:00.000Z","updatedAt":"2025-12-01T00:00:01.500Z",
        "repoType":"bucket","cdnRegions":[]}"#;
    let server = Server::start([
        Answer::json(r#"{"url":"u","name":"o/b","id":"1"}"#),
        Answer::json(info),
        Answer::new(204, &[], ""),
    ])
    .await;
    let client = client(&server);
    let options = CreateBucket {
        private: Some(true),
        ..CreateBucket::default()
    };
    let created = client.create_bucket(&bucket(), &options).await.unwrap();
    assert_eq!(created, Created::New);
    let info = client.bucket_info(&bucket()).await.unwrap();
    assert_eq!(
        (&*info.id, info.private, info.size, info.total_files),
        ("o/b", true, 5, 2)
    );
    assert_eq!(
        info.updated_at.unwrap().timestamp_millis(),
        1_764_547_201_500
    );
    client.delete_bucket(&bucket()).await.unwrap();
    assert_eq!(
        server.lines(),
        [
            "POST /api/buckets/o/b",
            "GET /api/buckets/o/b",
            "DELETE /api/buckets/o/b"
        ]
    );
    let create = &server.requests()[0];
    assert_eq!(create.body, r#"{"private":true}"#);
    assert_eq!(create.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_bucket_that_is_there_is_no_failure() {
    let options = CreateBucket::default();
    let conflict = Answer::new(409, &[], r#"{"error":"exists","url":"u","id":"1"}"#);
    let server = Server::start([conflict]).await;
    let created = client(&server).create_bucket(&bucket(), &options).await;
    assert_eq!(created.unwrap(), Created::Existed);

    let forbidden = Answer::new(403, &[], r#"{"error":"no right"}"#);
    let info = Answer::json(r#"{"id":"o/b","private":false}"#);
    let server = Server::start([forbidden.clone(), info]).await;
    let created = client(&server).create_bucket(&bucket(), &options).await;
    assert_eq!(created.unwrap(), Created::Existed);

    let missing = Answer::new(404, &["x-error-code: RepoNotFound"], "");
    let server = Server::start([forbidden, missing]).await;
    let created = client(&server).create_bucket(&bucket(), &options).await;
    assert_eq!(created.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn a_listing_goes_on_over_short_and_empty_pages() {
    let server = Server::start([]).await;
    let next = |query: &str| {
        let url = server.at(&format!("/api/buckets/o/b/tree/a%20b?{query}"));
        format!("link: <{url}>; rel=\"next\"")
    };
    let page = r#"[{"type":"file","path":"a b/1","size":1,"xetHash":"f"}]"#;
    server.then(Answer::new(200, &[&next("cursor=x%2F,y;z%3D")], page));
    server.then(Answer::new(200, &[&next("cursor=2")], "[]"));
    server.then(Answer::json(r#"[{"type":"directory","path":"a b/d"}]"#));
    let found = pages(&client(&server), "a b", false).await.unwrap();
    assert_eq!(found, [vec!["a b/1"], vec![], vec!["a b/d"]]);
    assert_eq!(
        server.lines(),
        [
            "GET /api/buckets/o/b/tree/a%20b?recursive=false&limit=1000",
            "GET /api/buckets/o/b/tree/a%20b?cursor=x%2F,y;z%3D",
            "GET /api/buckets/o/b/tree/a%20b?cursor=2",
        ]
    );
}

#[tokio::test]
async fn a_prefix_goes_out_as_given() {
    let server = Server::start((0..3).map(|_| Answer::json("[]"))).await;
    let client = client(&server);
    for (prefix, recursive) in [("", true), ("x/y#/", true), ("x/y", false)] {
        assert_eq!(pages(&client, prefix, recursive).await.unwrap(), [[""; 0]]);
    }
    assert_eq!(
        server.lines(),
        [
            "GET /api/buckets/o/b/tree?recursive=true&limit=1000",
            "GET /api/buckets/o/b/tree/x/y%23/?recursive=true&limit=1000",
            "GET /api/buckets/o/b/tree/x/y?recursive=false&limit=1000",
        ]
    );
    for prefix in ["/", "a//b", "a//", "../x"] {
        let error = pages(&client, prefix, true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{prefix}");
    }
    assert_eq!(server.lines().len(), 3);
}

#[tokio::test]
async fn a_next_page_elsewhere_is_not_asked_for() {
    let other = Server::start([Answer::json("[]")]).await;
    let link = format!("link: <{}>; rel=\"next\"", other.at("/api/x"));
    let server = Server::start([Answer::new(200, &[&link], "[]")]).await;
    let error = pages(&client(&server), "", true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(text_of(&error).contains("not followed"));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn paths_are_asked_a_thousand_at_a_time_and_only_files_count() {
    let items = r#"[{"type":"file","path":"1","size":0},{"type":"directory","path":"2"}]"#;
    let server = Server::start([Answer::json(items), Answer::json("[]")]).await;
    let client = client(&server);
    let paths: Vec<_> = (0..1001).map(|i| i.to_string()).collect();
    let found = client.paths_info(&bucket(), &paths).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].path, found[0].size), ("1", Some(0)));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].line, "POST /api/buckets/o/b/paths-info");
    assert_eq!(requests[1].body, r#"{"paths":["1000"]}"#);

    assert_eq!(client.paths_info(&bucket(), &[]).await.unwrap(), []);
    let bad = client.paths_info(&bucket(), &["a//b".to_owned()]).await;
    assert_eq!(bad.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_file_is_described_without_following_its_redirect() {
    let cdn = Server::start([]).await;
    let json = r#"{"hash":"ff","refreshUrl":"r","reconstructionUrl":"c","etag":"\"e\"","size":7}"#;
    let location = format!("location: {}", cdn.at("/x?sig=1"));
    let described = [
        "x-linked-size: 7",
        "x-xet-hash: ff",
        "x-linked-etag: \"e\"",
        &location,
    ];
    let renamed = Answer::new(307, &["location: /buckets/o/c/resolve/a%20b"], "");
    let server = Server::start([
        Answer::new(
            200,
            &["content-type: application/vnd.xet-fileinfo+json"],
            json,
        ),
        Answer::new(302, &described, "Found"),
        renamed,
        Answer::new(302, &described, "Found"),
    ])
    .await;
    let client = client(&server);
    for _ in 0..3 {
        let info = client.resolve(&bucket(), "a b").await.unwrap();
        assert_eq!((info.size, info.xet_hash.as_deref()), (7, Some("ff")));
        assert_eq!(info.etag.as_deref(), Some("e"));
    }
    let request = &server.requests()[0];
    assert_eq!(request.line, "GET /buckets/o/b/resolve/a%20b");
    assert_eq!(
        request.header("accept"),
        Some("application/vnd.xet-fileinfo+json")
    );
    assert_eq!(server.lines()[3], "GET /buckets/o/c/resolve/a%20b");
    assert!(cdn.requests().is_empty());
}

#[tokio::test]
async fn cas_tokens_are_asked_for_by_access_and_stay_secret() {
    let body = r#"{"casUrl":"https://cas.test","exp":1764548000,"accessToken":"hf_secret_cas"}"#;
    let broken = r#"{"casUrl":"https://cas.test","exp":"hf_secret_cas","accessToken":"hf_secret"}"#;
    let answers = [Answer::json(body), Answer::json(body), Answer::json(broken)];
    let server = Server::start(answers).await;
    let client = client(&server);
    let token = client.cas_token(&bucket(), Access::Read).await.unwrap();
    assert_eq!(token.cas_url, "https://cas.test");
    assert_eq!(token.expires_at, 1_764_548_000);
    assert_eq!(token.access_token.expose(), "hf_secret_cas");
    assert!(!format!("{token:?}").contains("hf_secret"));
    client.cas_token(&bucket(), Access::Write).await.unwrap();
    let error = client.cas_token(&bucket(), Access::Read).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    text_of(&error);
    assert_eq!(
        server.lines()[..2],
        [
            "GET /api/buckets/o/b/xet-read-token",
            "GET /api/buckets/o/b/xet-write-token"
        ]
    );
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_refused() {
    let server = Server::start([]).await;
    for (url, expected) in [
        ("ftp://hub.test", "neither http nor https"),
        ("https://me:hf_secret@hub.test", "user name or password"),
    ] {
        let config = HubConfig {
            endpoint: Url::parse(url).unwrap(),
            ..config(&server)
        };
        let error = HubClient::new(config).unwrap_err();
        assert!(text_of(&error).contains(expected), "{error}");
    }
    let shown = format!("{:?}", client(&server));
    assert!(
        shown.contains("127.0.0.1") && !shown.contains("hf_secret"),
        "{shown}"
    );
}
