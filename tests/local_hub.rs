//! LocalHub as the Hub: its routes asked directly, and what a store sees of a restart, of limits and
//! of odd pages.

#![cfg(feature = "local-hub")]

mod support;

use std::time::Duration;

use futures::TryStreamExt;
use hfbucket::local_hub::{Class, Fault, LocalHub, Plan, TokenGrant};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use reqwest::{Client, Method, RequestBuilder, StatusCode, redirect};
use serde_json::{Value, json};
use support::{Fixture, noise};

/// Asks the hub's routes with a token and follows no redirect.
struct Http<'a> {
    client: Client,
    hub: &'a LocalHub,
    token: Option<&'a str>,
}

impl<'a> Http<'a> {
    fn new(hub: &'a LocalHub, token: Option<&'a str>) -> Self {
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .build()
            .unwrap();
        Self { client, hub, token }
    }

    fn owner(hub: &'a LocalHub) -> Self {
        Self::new(hub, Some(hub.token()))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{path}", self.hub.endpoint()));
        match self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        assert!(response.headers().contains_key("x-request-id"), "{path}");
        let status = response.status();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send(Method::GET, path, None).await
    }

    async fn create(&self, bucket: &str, body: Value) -> (StatusCode, Value) {
        self.send(Method::POST, &format!("/api/buckets/{bucket}"), Some(body))
            .await
    }

    async fn batch(&self, bucket: &str, lines: &str) -> (StatusCode, Value) {
        let response = self
            .request(Method::POST, &format!("/api/buckets/{bucket}/batch"))
            .header("content-type", "application/x-ndjson")
            .body(lines.to_owned())
            .send()
            .await
            .unwrap();
        let status = response.status();
        (status, response.json().await.unwrap())
    }
}

/// Paths of a listing, following its links.
async fn paths(http: &Http<'_>, first: &str) -> (Vec<String>, usize) {
    let mut next = Some(format!("{}{first}", http.hub.endpoint()));
    let (mut paths, mut pages) = (Vec::new(), 0);
    while let Some(url) = next.take() {
        let request = http.client.get(url).bearer_auth(http.hub.token());
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        next = response.headers().get("link").map(|link| {
            let link = link.to_str().unwrap();
            let (url, rel) = link.split_once(">; ").unwrap();
            assert_eq!(rel, "rel=\"next\"");
            url.trim_start_matches('<').to_owned()
        });
        let items: Vec<Value> = response.json().await.unwrap();
        paths.extend(items.iter().map(|item| {
            let path = item["path"].as_str().unwrap();
            match item["type"].as_str().unwrap() {
                "directory" => format!("{path}/"),
                _ => path.to_owned(),
            }
        }));
        pages += 1;
    }
    (paths, pages)
}

async fn put_all(fixture: &Fixture, bucket: &str, names: &[&str]) {
    let store = fixture.store(bucket);
    for name in names {
        let path = Path::parse(name).unwrap();
        store.put(&path, (*name).to_owned().into()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn buckets_are_made_once_searched_moved_and_set() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::owner(&hub);
    let (status, body) = http.create("my-org/one", json!({"private": true})).await;
    assert_eq!(status, 200);
    assert_eq!(body["name"], "my-org/one");
    let id = body["id"].clone();
    let (status, body) = http.create("my-org/one", json!({})).await;
    assert_eq!((status, &body["id"]), (StatusCode::CONFLICT, &id));
    let (status, body) = http.create("me/two", json!({"visibility": "public"})).await;
    assert_eq!(
        (status, &body["name"]),
        (StatusCode::OK, &json!("local/two"))
    );
    let (status, _) = http.create("strangers/three", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = http.create("my-org/-bad-", json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        http.get("/api/buckets/two").await.1,
        json!([]),
        "a namespace"
    );

    let (_, found) = http.get("/api/buckets/my-org?search=ON").await;
    assert_eq!(found.as_array().unwrap().len(), 1);
    let (_, found) = http.get("/api/buckets/me").await;
    assert_eq!(found[0]["id"], "local/two");
    let anonymous = Http::new(&hub, None);
    assert_eq!(anonymous.get("/api/buckets/my-org").await.1, json!([]));

    let updated = |info: &Value| info["updatedAt"].as_str().unwrap().to_owned();
    let (_, before) = http.get("/api/buckets/my-org/one").await;
    assert_eq!(
        (&before["private"], &before["size"]),
        (&json!(true), &json!(0))
    );
    let settings = json!({"private": false});
    let (status, _) = http
        .send(
            Method::PUT,
            "/api/buckets/my-org/one/settings",
            Some(settings),
        )
        .await;
    assert_eq!(status, 200);
    let (_, after) = http.get("/api/buckets/my-org/one").await;
    assert_eq!(after["private"], false);
    assert!(updated(&after) > updated(&before));
    let body = json!({"fromRepo": "my-org/one", "toRepo": "local/uno", "type": "bucket"});
    let (status, _) = http.send(Method::POST, "/api/repos/move", Some(body)).await;
    assert_eq!(status, 200);
    assert_eq!(http.get("/api/buckets/my-org/one").await.0, 404);
    let (_, moved) = http.get("/api/buckets/local/uno").await;
    assert_eq!(moved["_id"], id);

    let delete = async || {
        http.send(Method::DELETE, "/api/buckets/local/uno", None)
            .await
            .0
    };
    assert!(delete().await.is_success());
    assert_eq!(delete().await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_and_fifty_buckets_are_listed_in_pages() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::owner(&hub);
    for n in 0..150 {
        http.create(&format!("my-org/b{n:03}"), json!({})).await;
    }
    let request = http.request(Method::GET, "/api/buckets/my-org?search=b");
    let response = request.send().await.unwrap();
    let link = response.headers()["link"].to_str().unwrap().to_owned();
    assert_eq!(response.json::<Vec<Value>>().await.unwrap().len(), 100);
    let url = link.trim_start_matches('<').split('>').next().unwrap();
    let response = http
        .client
        .get(url)
        .bearer_auth(hub.token())
        .send()
        .await
        .unwrap();
    assert!(!response.headers().contains_key("link"));
    let rest: Vec<Value> = response.json().await.unwrap();
    assert_eq!((rest.len(), &rest[49]["id"]), (50, &json!("my-org/b149")));
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_split_as_the_hub_splits_them() {
    let hub = LocalHub::builder()
        .with_token(TokenGrant::new("hf_owner", "alice"))
        .with_token(TokenGrant::new("hf_reader", "alice").read_only())
        .with_token(TokenGrant::new("hf_other", "bob"))
        .start()
        .await
        .unwrap();
    let owner = Http::owner(&hub);
    owner
        .create("alice/private", json!({"private": true}))
        .await;
    owner.create("alice/public", json!({})).await;
    let status = async |token: Option<&str>, path: &str| {
        let response = Http::new(&hub, token)
            .request(Method::GET, &format!("/api/buckets/alice/{path}"))
            .send()
            .await
            .unwrap();
        let code = response.headers().get("x-error-code").cloned();
        (
            response.status().as_u16(),
            code.map(|code| code.to_str().unwrap().to_owned()),
        )
    };
    let no_bucket = (404, Some("RepoNotFound".to_owned()));
    assert_eq!(status(Some("hf_owner"), "private").await, (200, None));
    assert_eq!(status(Some("hf_reader"), "private").await, (200, None));
    assert_eq!(status(Some("hf_other"), "private").await, no_bucket);
    assert_eq!(status(Some("hf_owner"), "none").await, no_bucket);
    assert_eq!(status(Some("hf_wrong"), "public").await, (401, None));
    assert_eq!(status(None, "private").await, (401, None));
    assert_eq!(status(None, "none").await, (401, None));
    assert_eq!(status(None, "public").await, (200, None));
    assert_eq!(
        status(Some("hf_reader"), "private/xet-read-token").await.0,
        200
    );
    assert_eq!(
        status(Some("hf_reader"), "private/xet-write-token").await.0,
        403
    );
    assert_eq!(
        status(Some("hf_other"), "public/xet-write-token").await.0,
        403
    );
    assert_eq!(status(None, "public/xet-write-token").await.0, 401);
    let who = Http::new(&hub, Some("hf_reader"))
        .get("/api/whoami-v2")
        .await
        .1;
    assert_eq!(who["name"], "alice");
    assert_eq!(who["auth"]["accessToken"]["role"], "read");
    assert_eq!(Http::new(&hub, None).get("/api/whoami-v2").await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_settled_per_path() {
    let fixture = Fixture::start().await;
    put_all(&fixture, "b", &["x"]).await;
    let http = Http::owner(&fixture.hub);
    let hash = fixture
        .store("b")
        .head(&Path::from("x"))
        .await
        .unwrap()
        .e_tag
        .unwrap();
    let add = |path: &str, hash: &str| {
        json!({"type": "addFile", "path": path, "xetHash": hash, "mtime": 1_764_547_200_000_i64})
            .to_string()
    };
    let delete = |path: &str| json!({"type": "deleteFile", "path": path}).to_string();
    let unknown = "ab".repeat(32);
    let lines = [
        add("good", &hash),
        add("bad//path", &hash),
        add("unknown", &unknown),
        delete("none"),
    ];
    let (status, report) = http.batch("my-org/b", &lines.join("\n")).await;
    assert_eq!(status, 200);
    assert_eq!(report["success"], false);
    assert_eq!(
        (&report["processed"], &report["succeeded"]),
        (&json!(4), &json!(2))
    );
    let failed: Vec<_> = report["failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| failure["path"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["bad//path", "unknown"]);
    let body = json!({"paths": ["good", "unknown", "bad//path"]});
    let url = "/api/buckets/my-org/b/paths-info";
    let (_, items) = http.send(Method::POST, url, Some(body)).await;
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!(items[0]["mtime"], "2025-12-01T00:00:00.000Z");
    let (_, one) = http
        .send(Method::POST, url, Some(json!({"paths": "good"})))
        .await;
    assert_eq!(one, items);
    let form = http
        .request(Method::POST, url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body("paths=none&paths=good");
    let form: Value = form.send().await.unwrap().json().await.unwrap();
    assert_eq!(form, items);

    let (status, report) = http.batch("my-org/b", &add("unknown", &unknown)).await;
    assert_eq!(
        (status, &report["succeeded"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!(0))
    );
    for wrong in [
        format!("{}\n{}", delete("x"), add("y", &hash)),
        r#"{"op":"add","path":"x"}"#.to_owned(),
        String::new(),
    ] {
        let (status, body) = http.batch("my-org/b", &wrong).await;
        assert_eq!(status, 422, "{wrong}");
        assert!(body["error"].is_string(), "{body}");
    }
    let many: Vec<_> = (0..2001).map(|n| n.to_string()).collect();
    assert_eq!(
        http.send(Method::POST, url, Some(json!({"paths": many})))
            .await
            .0,
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_match_prefixes_as_strings() {
    for short in [false, true] {
        let hub = LocalHub::builder()
            .with_short_pages(short)
            .start()
            .await
            .unwrap();
        let fixture = Fixture::with_hub(hub);
        let names = [
            "a,b;c/x",
            "logs",
            "logs.json",
            "logs/1",
            "logs/2/x",
            "logs/2/y",
            "logs_old/1",
            "z/1",
            "z/2",
            "z/3",
            "z/4",
            "z/5",
            "z/6",
            "z/7",
        ];
        put_all(&fixture, "b", &names).await;
        let http = Http::owner(&fixture.hub);
        let list =
            async |rest: &str| paths(&http, &format!("/api/buckets/my-org/b/tree{rest}")).await;
        let (all, pages) = list("").await;
        assert_eq!(all, names);
        assert_eq!(pages > 4, short);
        assert_eq!(list("?limit=5").await.0, names);
        assert_eq!(
            list("/logs").await.0,
            [
                "logs",
                "logs.json",
                "logs/1",
                "logs/2/x",
                "logs/2/y",
                "logs_old/1"
            ]
        );
        assert_eq!(list("/logs%2F").await.0, ["logs/1", "logs/2/x", "logs/2/y"]);
        assert_eq!(list("/logs/").await.0, ["logs/1", "logs/2/x", "logs/2/y"]);
        assert_eq!(
            list("?recursive=false").await.0,
            ["a,b;c/", "logs", "logs.json", "logs/", "logs_old/", "z/"]
        );
        assert_eq!(list("/logs?recursive=false").await.0, ["logs/1", "logs/2/"]);
        assert_eq!(
            list("/lo?recursive=false").await.0,
            ["logs", "logs.json", "logs/", "logs_old/"]
        );
        assert_eq!(
            list("/logs/2?recursive=false").await.0,
            ["logs/2/x", "logs/2/y"]
        );
        assert_eq!(list("/none").await.0, Vec::<String>::new());
        assert_eq!(list("/a%2Cb%3Bc").await.0, ["a,b;c/x"]);

        // The store sees the same, page by page.
        let store = fixture.store("b");
        let mut listed: Vec<_> = store
            .list(None)
            .map_ok(|meta| meta.location.to_string())
            .try_collect()
            .await
            .unwrap();
        listed.sort();
        assert_eq!(listed, names);
        let level = store
            .list_with_delimiter(Some(&Path::from("logs")))
            .await
            .unwrap();
        assert_eq!(level.common_prefixes, [Path::from("logs/2")]);
        assert_eq!(level.objects.len(), 1);

        let tree = "/api/buckets/my-org/b/tree";
        let redirect = http.request(Method::GET, &format!("{tree}/?recursive=false"));
        let redirect = redirect.send().await.unwrap();
        assert_eq!(redirect.status(), 307);
        assert_eq!(
            redirect.headers()["location"],
            "/api/buckets/my-org/b/tree?recursive=false"
        );
        for wrong in ["?limit=0", "?limit=5001", "?cursor=x"] {
            assert_eq!(http.get(&format!("{tree}{wrong}")).await.0, 400, "{wrong}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resolve_redirects_to_a_signed_url_that_expires() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let data = noise(1, 1000);
    store
        .put(&Path::parse("dir/a b#?.bin").unwrap(), data.clone().into())
        .await
        .unwrap();
    store.put(&Path::from("empty"), "".into()).await.unwrap();
    let http = Http::owner(&fixture.hub);
    let path = "/buckets/my-org/b/resolve/dir/a%20b%23%3F.bin";
    for method in [Method::GET, Method::HEAD] {
        let response = http.request(method, path).send().await.unwrap();
        assert_eq!(response.status(), 302);
        let headers = response.headers();
        assert_eq!(headers["x-linked-size"], "1000");
        let hash = headers["x-xet-hash"].to_str().unwrap();
        assert_eq!(headers["x-linked-etag"], format!("\"{hash}\""));
        assert!(
            headers["link"]
                .to_str()
                .unwrap()
                .contains("rel=\"xet-auth\"")
        );
        let location = headers["location"].to_str().unwrap();
        assert!(
            location.starts_with(fixture.hub.cas_endpoint()),
            "another origin"
        );
    }
    let response = http.request(Method::GET, path).send().await.unwrap();
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let fetch = async |range: Option<&str>| {
        let mut request = http.client.get(&location);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.bytes().await.unwrap())
    };
    assert_eq!(fetch(None).await, (200, data.clone().into()));
    let (status, part) = fetch(Some("bytes=10-19")).await;
    assert_eq!((status, &part[..]), (206, &data[10..20]));
    let (status, part) = fetch(Some("bytes=-5")).await;
    assert_eq!((status, &part[..]), (206, &data[995..]));
    assert_eq!(fetch(Some("bytes=1000-")).await.0, 416);
    let with_token = http.client.get(&location).bearer_auth(fixture.hub.token());
    assert_eq!(
        with_token.send().await.unwrap().status(),
        400,
        "a leaked token is found out"
    );
    let forged = location.replacen("signature=", "signature=0", 1);
    assert_eq!(http.client.get(forged).send().await.unwrap().status(), 403);
    fixture.hub.advance(Duration::from_secs(3601));
    assert_eq!(fetch(None).await.0, 403);

    let json = http
        .request(Method::GET, path)
        .header("accept", "application/vnd.xet-fileinfo+json");
    let response = json.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()["content-type"],
        "application/vnd.xet-fileinfo+json"
    );
    let info: Value = response.json().await.unwrap();
    assert_eq!(info["size"], 1000);
    assert_eq!(http.get("/buckets/my-org/b/resolve/none").await.0, 404);
    let empty = http
        .request(Method::GET, "/buckets/my-org/b/resolve/empty")
        .send()
        .await
        .unwrap();
    let location = empty.headers()["location"].to_str().unwrap();
    let body = http.client.get(location).send().await.unwrap();
    assert_eq!(
        (body.status(), body.bytes().await.unwrap().len()),
        (StatusCode::OK, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_on_the_same_folder_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let start = async || {
        LocalHub::builder()
            .data_dir(dir.path())
            .start()
            .await
            .unwrap()
    };
    let data = noise(4, 3 << 20);
    let (kept, gone) = (Path::from("dir/kept"), Path::from("gone"));
    let before = {
        let fixture = Fixture::with_hub(start().await);
        let store = fixture.builder("b").with_private(true).build().unwrap();
        store.put(&kept, data.clone().into()).await.unwrap();
        store.put(&gone, "x".into()).await.unwrap();
        store.delete(&gone).await.unwrap();
        let other = fixture.store("other");
        other.put(&gone, "x".into()).await.unwrap();
        other.delete_bucket().await.unwrap();
        let seen = (
            store.bucket_info().await.unwrap(),
            store.head(&kept).await.unwrap(),
        );
        fixture.hub.shutdown().await;
        seen
    };
    let fixture = Fixture::with_hub(start().await);
    let store = fixture.store("b");
    assert_eq!(store.bucket_info().await.unwrap(), before.0);
    assert_eq!(store.head(&kept).await.unwrap(), before.1);
    assert!(store.get(&kept).await.unwrap().bytes().await.unwrap() == data);
    assert!(store.head(&gone).await.is_err());
    assert!(fixture.store("other").bucket_info().await.is_err());
    // A second hub on the folder is refused, and says which folder.
    let error = LocalHub::builder()
        .data_dir(dir.path())
        .start()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("hub.redb"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_enforced_and_told() {
    let plan = Plan::Custom {
        api: 10,
        resolvers: 5,
    };
    let hub = LocalHub::builder().with_plan(plan).start().await.unwrap();
    let http = Http::owner(&hub);
    let limit = |response: &reqwest::Response| {
        let header = response.headers()["ratelimit"].to_str().unwrap();
        header.to_owned()
    };
    let mut last = String::new();
    for n in 0..10 {
        let response = http
            .request(Method::GET, "/api/whoami-v2")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{n}");
        last = limit(&response);
    }
    assert!(last.starts_with("\"api\";r=0;t="), "{last}");
    let response = http
        .request(Method::GET, "/api/whoami-v2")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert!(limit(&response).starts_with("\"api\";r=0;t="));
    let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
    assert_eq!(policy, "\"fixed window\";\"api\";q=10;w=300");
    // Others have windows of their own, and so do other classes.
    assert_eq!(
        Http::new(&hub, None).get("/api/buckets/my-org").await.0,
        200
    );
    assert_eq!(http.get("/buckets/my-org/b/resolve/x").await.0, 404);
    hub.advance(Duration::from_secs(301));
    assert_eq!(http.get("/api/whoami-v2").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_class_and_route() {
    let fixture = Fixture::start().await;
    let hub = &fixture.hub;
    put_all(&fixture, "b", &["x"]).await;
    let counted = hub.requests();
    assert_eq!(counted.token, 1);
    assert!(counted.cas >= 2, "a xorb and a shard: {counted:?}");
    assert_eq!(counted.route("POST /api/buckets/{ns}/{name}/batch"), 1);
    assert_eq!(counted.of(Class::Api), 2, "create and batch");
    hub.reset_requests();
    assert_eq!(hub.requests(), hfbucket::local_hub::Requests::default());
    let http = Http::owner(hub);
    http.get("/buckets/my-org/b/resolve/x").await;
    assert_eq!(hub.requests().resolver, 1);
    assert_eq!(
        hub.requests()
            .route("GET /buckets/{ns}/{name}/resolve/{path}"),
        1
    );
    assert_eq!(
        http.request(Method::GET, "/nowhere")
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_strikes_as_often_as_told_and_no_one_else() {
    let hub = LocalHub::builder().start().await.unwrap();
    let http = Http::owner(&hub);
    hub.inject(Fault::status(503).on_route("whoami").times(2));
    hub.inject(
        Fault::status(418)
            .on_method("post")
            .with_header("x-y", "z")
            .with_body("tea"),
    );
    assert_eq!(hub.pending_faults(), 3);
    assert_eq!(http.get("/api/buckets/my-org").await.0, 200);
    assert_eq!(http.get("/api/whoami-v2").await.0, 503);
    let response = http
        .request(Method::POST, "/api/buckets/my-org/b")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-y"]),
        (418, &"z".parse().unwrap())
    );
    assert_eq!(response.text().await.unwrap(), "tea");
    assert_eq!(http.get("/api/whoami-v2").await.0, 503);
    assert_eq!(http.get("/api/whoami-v2").await.0, 200);
    assert_eq!(hub.pending_faults(), 0);
    hub.inject(Fault::drop_before());
    assert!(
        http.request(Method::GET, "/api/whoami-v2")
            .send()
            .await
            .is_err()
    );
    hub.inject(Fault::drop_after().on_method("POST"));
    assert!(
        http.request(Method::POST, "/api/buckets/my-org/b")
            .send()
            .await
            .is_err()
    );
    assert_eq!(
        http.get("/api/buckets/my-org/b").await.0,
        200,
        "the work was done"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_the_store_of_bytes_are_checked() {
    let fixture = Fixture::start().await;
    put_all(&fixture, "b", &["x"]).await;
    let hub = &fixture.hub;
    let http = Http::owner(hub);
    let token = async |kind: &str| {
        let (_, body) = http
            .get(&format!("/api/buckets/my-org/b/xet-{kind}-token"))
            .await;
        assert_eq!(body["casUrl"], hub.cas_endpoint());
        body["accessToken"].as_str().unwrap().to_owned()
    };
    let hash = fixture
        .store("b")
        .head(&Path::from("x"))
        .await
        .unwrap()
        .e_tag
        .unwrap();
    let ask = async |method: Method, path: &str, token: &str| {
        let url = format!("{}{path}", hub.cas_endpoint());
        let request = http.client.request(method, url).bearer_auth(token);
        request.send().await.unwrap().status().as_u16()
    };
    let file = format!("/v1/files/{hash}");
    let (read, write) = (token("read").await, token("write").await);
    assert_eq!(ask(Method::HEAD, &file, &read).await, 200);
    assert_eq!(
        ask(Method::HEAD, &file, &write).await,
        200,
        "write covers read"
    );
    assert_eq!(ask(Method::HEAD, &file, hub.token()).await, 401);
    assert_eq!(ask(Method::POST, "/v1/shards", &read).await, 403);
    hub.advance(Duration::from_secs(15 * 60));
    assert_eq!(ask(Method::HEAD, &file, &read).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_shutdown_nobody_answers() {
    let hub = LocalHub::builder().start().await.unwrap();
    let url = format!("{}/api/whoami-v2", hub.endpoint());
    let client = Client::new();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
    hub.shutdown().await;
    // A new client: the old one may not have noticed yet that its connection is closed.
    let error = Client::new().get(&url).send().await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
}
