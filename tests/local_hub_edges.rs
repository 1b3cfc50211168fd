//! LocalHub where clients differ from one another, and where things end: spellings of queries, other
//! names of the host, answers that no route gives, connections at the end of a hub.

#![cfg(feature = "local-hub")]

mod support;

use std::time::{Duration, Instant};

use hfbucket::local_hub::{Class, Fault, LocalHub, Plan};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use serde_json::{Value, json};
use support::{Fixture, noise};

/// A client of the hub's owner that follows no redirect.
struct Http {
    client: Client,
    endpoint: String,
    token: String,
}

impl Http {
    fn new(hub: &LocalHub) -> Self {
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .build()
            .unwrap();
        Self {
            client,
            endpoint: hub.endpoint().to_owned(),
            token: hub.token().to_owned(),
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.endpoint))
            .bearer_auth(&self.token)
    }

    async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.unwrap()
    }

    async fn create(&self, bucket: &str) {
        let path = format!("/api/buckets/my-org/{bucket}");
        let response = self.request(Method::POST, &path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }

    async fn batch(&self, bucket: &str, lines: &[Value]) -> (StatusCode, Value) {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let response = self
            .request(Method::POST, &format!("/api/buckets/my-org/{bucket}/batch"))
            .header("content-type", "application/x-ndjson")
            .body(body)
            .send()
            .await
            .unwrap();
        (response.status(), response.json().await.unwrap())
    }
}

/// Adds an empty file, which needs nothing on the CAS.
fn add(path: &str) -> Value {
    json!({"type": "addFile", "path": path, "xetHash": "0".repeat(64)})
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

fn names(items: &Value) -> Vec<&str> {
    let items = items.as_array().unwrap();
    items
        .iter()
        .map(|item| item["path"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn booleans_are_read_as_every_client_writes_them() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::new(&hub);
    http.create("b").await;
    http.batch("b", &[add("d/1"), add("d/2")]).await;
    for (text, expected) in [
        ("true", vec!["d/1", "d/2"]),
        // OpenDAL.
        ("True", vec!["d/1", "d/2"]),
        ("1", vec!["d/1", "d/2"]),
        ("false", vec!["d"]),
        ("False", vec!["d"]),
        ("0", vec!["d"]),
    ] {
        let path = format!("/api/buckets/my-org/b/tree?expand=True&recursive={text}");
        let items = http.json(&path).await;
        assert_eq!(names(&items), expected, "{text}");
    }
    for query in ["recursive=maybe", "limit=0", "limit=x", "cursor=x"] {
        let response = http
            .get(&format!("/api/buckets/my-org/b/tree?{query}"))
            .await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
        let body: Value = response.json().await.unwrap();
        assert!(body["error"].is_string(), "{query}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_back_the_way_the_client_came() {
    let hub = LocalHub::builder().start().await.unwrap();
    let mut http = Http::new(&hub);
    http.endpoint = http.endpoint.replace("127.0.0.1", "localhost");
    let origin = http.endpoint.clone();
    http.create("b").await;
    http.batch("b", &[add("a, b"), add("c")]).await;

    let page = http.get("/api/buckets/my-org/b/tree?limit=1").await;
    let link = header(&page, "link").to_owned();
    assert!(link.starts_with(&format!("<{origin}/api/")), "{link}");

    let resolved = http.get("/buckets/my-org/b/resolve/c").await;
    let links = header(&resolved, "link");
    assert!(
        links.starts_with(&format!("<{origin}/api/buckets/my-org/b/xet-read-token>")),
        "{links}"
    );
    let location = header(&resolved, "location");
    assert!(location.starts_with("http://localhost:"), "{location}");
    assert!(!location.starts_with(&origin), "another origin: {location}");
    let token = http.json("/api/buckets/my-org/b/xet-read-token").await;
    let cas = token["casUrl"].as_str().unwrap();
    assert!(cas.starts_with("http://localhost:"), "{cas}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_none_has_a_report_all_the_same() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::new(&hub);
    http.create("b").await;
    let delete = json!({"type": "deleteFile", "path": "x"});
    for lines in [
        vec![delete.clone(), add("a")],
        vec![add("a"), json!({"type": "move", "path": "x"})],
    ] {
        let (status, report) = http.batch("b", &lines).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(report["success"], false, "{report}");
        assert_eq!(report["processed"], 2, "{report}");
        assert_eq!(report["succeeded"], 0, "{report}");
        let failed = &report["failed"];
        let mut sent = names(&Value::Array(lines.clone()))
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        sent.sort();
        let mut named = names(failed)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        named.sort();
        assert_eq!(named, sent, "{report}");
    }
    assert_eq!(http.json("/api/buckets/my-org/b/tree").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_a_request_id_and_every_refusal_is_json() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::new(&hub);
    http.create("b").await;
    for (method, path, status) in [
        (Method::GET, "/api/whoami-v2", 200),
        (Method::GET, "/api/models", 404),
        (Method::PATCH, "/api/whoami-v2", 405),
        (Method::GET, "/api/buckets/my-org/%FF", 400),
        (Method::GET, "/api/buckets/my-org?skip=x", 400),
        (Method::GET, "/api/buckets/my-org/b/events", 404),
    ] {
        let response = http.request(method.clone(), path).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{method} {path}");
        assert!(
            !header(&response, "x-request-id").is_empty(),
            "{method} {path}"
        );
        let body: Value = response.json().await.unwrap();
        assert_eq!(
            body["error"].is_string(),
            status != 200,
            "{method} {path}: {body}"
        );
    }
    let cas = http.client.get(format!(
        "{}/v2/reconstructions/{}",
        hub.cas_endpoint(),
        "1".repeat(64)
    ));
    let response = cas.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(!header(&response, "x-request-id").is_empty());
    assert_eq!(
        hub.requests().api,
        7,
        "unknown routes count, too: {:?}",
        hub.requests()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulations_controls_are_not_for_clients() {
    let hub = LocalHub::builder().start().await.unwrap();
    let client = Client::new();
    for path in [
        "/simulation/ping",
        "/simulation/set_config?config=api_delay&value=1",
        "/health",
        "/",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let url = format!("{}{path}", hub.cas_endpoint());
            let response = client.request(method.clone(), url).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_end_early_in_both_ways() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let bytes = noise(1, 300_000);
    store
        .put(&Path::from("f"), bytes.clone().into())
        .await
        .unwrap();
    let http = Http::new(&fixture.hub);
    let signed = async || {
        let resolved = http.get("/buckets/my-org/b/resolve/f").await;
        http.client
            .get(header(&resolved, "location"))
            .send()
            .await
            .unwrap()
    };

    let whole = signed().await;
    assert_eq!(whole.content_length(), Some(300_000));
    assert_eq!(whole.bytes().await.unwrap(), bytes);

    fixture
        .hub
        .inject(Fault::truncate(1000).on_route("/files/"));
    let broken = signed().await;
    assert_eq!(broken.content_length(), Some(300_000), "all is promised");
    assert!(broken.bytes().await.is_err());

    fixture
        .hub
        .inject(Fault::truncate_quietly(1000).on_route("/files/"));
    let short = signed().await;
    assert_eq!(
        short.content_length(),
        Some(1000),
        "the short length is promised"
    );
    assert_eq!(short.bytes().await.unwrap(), bytes[..1000]);

    // The Hub's own answers, too.
    fixture
        .hub
        .inject(Fault::truncate(10).on_class(Class::Api).on_route("tree"));
    let broken = http.get("/api/buckets/my-org/b/tree").await;
    assert!(broken.bytes().await.is_err());
    assert_eq!(fixture.hub.pending_faults(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_signed_urls_are_exact() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let bytes = noise(2, 9_000_000);
    store
        .put(&Path::from("f"), bytes.clone().into())
        .await
        .unwrap();
    let http = Http::new(&fixture.hub);
    let resolved = http.get("/buckets/my-org/b/resolve/f").await;
    let url = header(&resolved, "location").to_owned();
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=100000-8000000", 100_000..8_000_001),
        ("bytes=8999999-", 8_999_999..9_000_000),
        ("bytes=-70000", 8_930_000..9_000_000),
        ("bytes=65535-65536", 65_535..65_537),
    ] {
        let request = http.client.get(&url).header("range", range);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT, "{range}");
        let told = format!("bytes {}-{}/9000000", expected.start, expected.end - 1);
        assert_eq!(header(&response, "content-range"), told);
        assert_eq!(
            response.content_length(),
            Some((expected.end - expected.start) as u64)
        );
        assert!(
            response.bytes().await.unwrap() == bytes[expected],
            "{range}"
        );
    }
    let head = http.client.head(&url).send().await.unwrap();
    assert_eq!(header(&head, "content-length"), "9000000");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_strike_where_they_are_meant() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::new(&hub);
    hub.inject(Fault::stale_listing());
    http.create("b").await;
    http.create("c").await;
    http.batch("b", &[add("a")]).await;
    // The bucket is younger than the listing.
    assert_eq!(http.json("/api/buckets/my-org/b/tree").await, json!([]));
    assert_eq!(names(&http.json("/api/buckets/my-org/b/tree").await), ["a"]);

    // By path: the other bucket is not meant.
    hub.inject(Fault::status(503).on_path("/my-org/b/"));
    http.json("/api/buckets/my-org/c/tree").await;
    assert_eq!(hub.pending_faults(), 1);
    assert_eq!(
        http.get("/api/buckets/my-org/b/tree").await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );

    // A fault that a route cannot have waits for one that can.
    hub.inject(Fault::expired_token().on_class(Class::Api));
    hub.clear_faults();
    hub.inject(Fault::stale_listing().and_paths_info());
    http.batch("b", &[add("new")]).await;
    assert_eq!(hub.pending_faults(), 1);
    let looked_up = http
        .request(Method::POST, "/api/buckets/my-org/b/paths-info")
        .json(&json!({"paths": ["a", "new"]}))
        .send()
        .await
        .unwrap();
    let items: Value = looked_up.json().await.unwrap();
    assert_eq!(names(&items), ["a"]);
    assert_eq!(hub.pending_faults(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_know_who_asks_and_injected_limits_keep_their_numbers() {
    let hub = LocalHub::builder()
        .with_plan(Plan::Pro)
        .start()
        .await
        .unwrap();
    let http = Http::new(&hub);
    let owner = http.get("/api/buckets/my-org").await;
    assert_eq!(header(&owner, "ratelimit"), r#""api";r=2499;t=300"#);
    let nobody = http
        .client
        .get(format!("{}/api/buckets/my-org", hub.endpoint()));
    let nobody = nobody.send().await.unwrap();
    assert_eq!(header(&nobody, "ratelimit"), r#""api";r=499;t=300"#);
    assert_eq!(
        header(&nobody, "ratelimit-policy"),
        r#""fixed window";"api";q=500;w=300"#
    );

    hub.inject(Fault::rate_limited(Class::Api, 7));
    let limited = http.get("/api/buckets/my-org").await;
    assert_eq!(limited.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&limited, "ratelimit"), r#""api";r=0;t=7"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_nobody_who_takes_too_long() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::new(&hub);
    hub.inject(Fault::delay(Duration::from_secs(3600)));
    let slow = tokio::spawn(http.request(Method::GET, "/api/whoami-v2").send());
    while hub.pending_faults() > 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    hub.shutdown().await;
    let answer = slow.await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_hub_lets_go_of_its_connections() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::new(&hub);
    // A connection that is kept alive, and one that waits for its answer.
    http.json("/api/whoami-v2").await;
    hub.inject(Fault::delay(Duration::from_secs(3600)));
    let slow = tokio::spawn(http.request(Method::GET, "/api/whoami-v2").send());
    while hub.pending_faults() > 0 {
        tokio::task::yield_now().await;
    }
    drop(hub);
    let waited = tokio::time::timeout(Duration::from_secs(10), slow).await;
    assert!(waited.expect("the connection ends").unwrap().is_err());
    assert!(
        http.request(Method::GET, "/api/whoami-v2")
            .send()
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_proxy_bytes_come_and_go_all_the_same() {
    let hub = LocalHub::builder()
        .with_direct_cas(true)
        .start()
        .await
        .unwrap();
    let fixture = Fixture::with_hub(hub);
    let bytes = noise(3, 200_000);
    let path = Path::from("f");
    let store = fixture.store("b");
    store.put(&path, bytes.clone().into()).await.unwrap();
    let read = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert_eq!(read, bytes);
    assert_eq!(fixture.hub.requests().cas, 0);

    let http = Http::new(&fixture.hub);
    let resolved = http.get("/buckets/my-org/b/resolve/f").await;
    let location = header(&resolved, "location");
    let download = http.client.get(location).send().await.unwrap();
    assert_eq!(download.bytes().await.unwrap(), bytes);
}
