//! `hfbucket l2`, as people and machines run it.

#![cfg(feature = "cli")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};
use hfbucket::local_hub::{Class, Fault, LocalHub, TokenGrant};
use serde_json::{Value, json};
use tempfile::TempDir;

use support::own_process::clean_environment;

const GIB: f64 = (1_u64 << 30) as f64;

/// A pool of files, and a home for those who look at it.
struct Pool {
    dir: TempDir,
    home: TempDir,
}

impl Pool {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn json(&self) -> Value {
        json!({"type": "object_store", "url": format!("file://{}", self.folder().display())})
    }

    /// With a capacity in bytes and an LRU.
    fn evicting(&self, capacity: u64, watermark: f64) -> Value {
        let mut json = self.json();
        json["max_capacity_gb"] = (capacity as f64 / GIB).into();
        json["eviction"] = json!({"eviction_policy": "LRU", "trigger_watermark": watermark,
                                  "eviction_ratio": 0.01});
        json
    }

    async fn adapter(&self) -> L2Adapter {
        let config = L2Config::from_json(&self.json().to_string()).unwrap();
        L2Adapter::open(config).await.unwrap()
    }

    /// Stores keys one hour after another, the first one first.
    async fn fill(&self, keys: &[(ObjectKey, usize)]) {
        let adapter = self.adapter().await;
        fill(&adapter, keys).await;
        adapter.close().await;
        let begin = SystemTime::now() - Duration::from_secs(1_000_000);
        for (hour, (key, _)) in (0..).zip(keys) {
            let file = std::fs::File::options()
                .append(true)
                .open(self.file(key))
                .unwrap();
            file.set_modified(begin + Duration::from_secs(3600 * hour))
                .unwrap();
        }
    }

    fn file(&self, key: &ObjectKey) -> PathBuf {
        let name = key.encoded_name(Default::default()).unwrap();
        self.folder().join(name)
    }

    /// What is there, by name.
    fn files(&self) -> BTreeSet<String> {
        let files = std::fs::read_dir(self.folder()).unwrap();
        files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn has(&self, key: &ObjectKey) -> bool {
        self.file(key).exists()
    }

    fn command(&self, json: &Value, args: &[&str]) -> Command {
        let mut command = hfbucket(args, self.home.path());
        command.args(["--l2-adapter", &json.to_string()]);
        command
    }

    fn run(&self, json: &Value, args: &[&str]) -> Output {
        self.command(json, args).output().unwrap()
    }

    /// Runs with `--json`, which must end with this code, and reads the lines.
    fn records(&self, json: &Value, args: &[&str], code: i32) -> Vec<Value> {
        let output = self.run(json, &[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        lines(&output.stdout)
    }

    fn record(&self, json: &Value, args: &[&str], code: i32) -> Value {
        let mut records = self.records(json, args, code);
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

fn hfbucket(args: &[&str], home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hfbucket"));
    clean_environment(&mut command, home);
    command
        .arg("l2")
        .args(args)
        .env_remove("RUST_LOG")
        .env_remove("HFBUCKET_L2_ADAPTER")
        .stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the command prints UTF-8")
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

fn key(n: u8) -> ObjectKey {
    ObjectKey::new("org/model", 0x0100_0100, [n]).unwrap()
}

fn salted(n: u8, salt: &str) -> ObjectKey {
    key(n).with_cache_salt(salt).unwrap()
}

fn of_100_bytes(count: u8) -> Vec<(ObjectKey, usize)> {
    (0..count).map(|n| (key(n), 100)).collect()
}

async fn fill(adapter: &L2Adapter, keys: &[(ObjectKey, usize)]) {
    let chunk = |(key, size): &(ObjectKey, usize)| {
        let seed = u64::from(key.chunk_hash().first().copied().unwrap_or(0));
        (key.clone(), Bytes::from(support::noise(seed, *size)))
    };
    let report = adapter.store(keys.iter().map(chunk).collect()).await;
    assert!(report.is_ok(), "{report:?}");
}

/// Downloads are refused for good.
fn unreadable() -> Fault {
    Fault::status(401)
        .on_class(Class::Cas)
        .on_method("GET")
        .times(1000)
}

/// A bucket on a hub of its own.
struct Bucket {
    hub: LocalHub,
    home: TempDir,
}

impl Bucket {
    async fn new(keys: &[(ObjectKey, usize)]) -> Self {
        let hub = LocalHub::builder()
            .in_memory()
            .with_token(TokenGrant::new("hf_verysecret", "me").owner_of("my-org"))
            .start()
            .await
            .unwrap();
        let home = tempfile::tempdir().unwrap();
        let store = hfbucket::HfBucketBuilder::new()
            .with_endpoint(hub.endpoint())
            .with_token(hub.token())
            .with_bucket("my-org/kv")
            .with_private(true)
            .with_create_bucket_if_missing(true)
            .with_cache_dir(home.path().join("writer"))
            .build()
            .unwrap();
        let bucket = Self { hub, home };
        let config = L2Config::from_json(&bucket.json().to_string()).unwrap();
        let adapter = L2Adapter::with_store(std::sync::Arc::new(store), config)
            .await
            .unwrap();
        fill(&adapter, keys).await;
        adapter.close().await;
        bucket
    }

    fn json(&self) -> Value {
        json!({"type": "hfbucket", "bucket_handle": "hf://buckets/my-org/kv/prod",
               "download_tmp_dir": self.home.path().join("reader"), "num_workers": 8})
    }

    fn run(&self, json: &Value, token: Option<&str>, args: &[&str]) -> Output {
        let mut command = hfbucket(args, self.home.path());
        command
            .args(["--l2-adapter", &json.to_string()])
            .env("HF_ENDPOINT", self.hub.endpoint());
        if let Some(token) = token {
            command.env("HF_TOKEN", token);
        }
        let output = command.output().unwrap();
        for shown in [&output.stdout, &output.stderr] {
            assert!(!text(shown).contains("hf_verysecret"), "{}", text(shown));
        }
        output
    }

    fn records(&self, args: &[&str], code: i32) -> Vec<Value> {
        let args = [args, &["--json"]].concat();
        let output = self.run(&self.json(), Some("hf_verysecret"), &args);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        lines(&output.stdout)
    }
}

#[tokio::test]
async fn status_says_what_is_there_and_evicts_nothing() {
    let pool = Pool::new();
    let mut keys = vec![(key(0), 100)];
    keys.extend((1..4).map(|n| (salted(n, "tenant-a"), 300)));
    pool.fill(&keys).await;
    std::fs::write(pool.folder().join("mine"), "kept").unwrap();
    let before = pool.files();
    // Too full by far.
    let json = pool.evicting(800, 0.5);
    let report = pool.record(&json, &["status"], 0);
    let status = &report["status"];
    assert_eq!(status["stored_object_count"], 4);
    assert_eq!(status["current_size_bytes"], 1000);
    assert_eq!(status["max_capacity_bytes"], 800);
    assert_eq!(status["eviction_policy"], "LRU");
    assert_eq!(status["key_layout"], "ungrouped");
    assert_eq!(status["recovery"]["phase"], "done");
    assert_eq!(status["recovery"]["foreign_objects"], 1);
    assert_eq!(status["totals"]["evicted_keys"], 0);
    let usage = &report["usage"];
    assert_eq!(usage["total_bytes_used"], 1000);
    assert_eq!(usage["usage_fraction"], 1.25);
    assert_eq!(
        usage["bytes_by_cache_salt"],
        json!({"": 100, "tenant-a": 900})
    );

    let output = pool.run(&json, &["status"]);
    let shown = text(&output.stdout);
    for expected in [
        "policy           LRU, from 50% on\n",
        "capacity         800 B\n",
        "used             1000 B, 125.0%\n",
        "objects          4\n",
        "foreign objects  1\n",
    ] {
        assert!(shown.contains(expected), "{shown}");
    }
    let row = |name: &str| {
        let line = shown.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("tenant-a"), "tenant-a 900 B 90.0%");
    assert_eq!(row("(no salt)"), "(no salt) 100 B 10.0%");
    assert_eq!(text(&output.stderr), "", "no progress in a pipe");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(pool.files(), before);
}

#[tokio::test]
async fn status_sums_the_smaller_salts_up_and_knows_quotas() {
    let pool = Pool::new();
    let keys: Vec<_> = (1..=23)
        .map(|n| (salted(n, &format!("s{n:02}")), usize::from(n) * 10))
        .collect();
    pool.fill(&keys).await;
    let mut json = pool.json();
    json["eviction"] = json!({"eviction_policy": "IsolatedLRU", "trigger_watermark": 1.0,
        "salt_quotas_gb": {"s23": 200. / GIB, "s22": 300. / GIB}});
    let report = pool.record(&json, &["status"], 0);
    assert_eq!(report["status"]["salts_over_quota"], 1);
    assert_eq!(report["usage"]["usage_fraction"], -1.0);
    let shown = text(&pool.run(&json, &["status"]).stdout);
    assert!(shown.contains("over quota       1 salts\n"), "{shown}");
    assert!(shown.contains("capacity         no limit\n"), "{shown}");
    let others = shown.lines().find(|line| line.contains("others")).unwrap();
    // s01, s02 and s03.
    assert!(
        others.contains("others (3 salts)") && others.contains("60 B"),
        "{shown}"
    );
    assert!(shown.contains("s04") && !shown.contains("s03"), "{shown}");
    assert_eq!(pool.files().len(), 23);
}

#[tokio::test]
async fn ls_lists_what_is_asked_for() {
    let pool = Pool::new();
    let other = ObjectKey::new("other", 7, [0xab, 0xcd]).unwrap();
    let keys = [
        (key(1), 10),
        (salted(2, "a"), 20),
        (salted(3, "b"), 30),
        (other.clone(), 40),
    ];
    pool.fill(&keys).await;
    std::fs::write(pool.folder().join("mine"), "kept").unwrap();
    let listed = |args: &[&str]| {
        let records = pool.records(&pool.json(), &[&["ls"], args].concat(), 0);
        records
            .into_iter()
            .map(|record| {
                let size = record["size"].as_u64().unwrap() as usize;
                (serde_json::from_value::<ObjectKey>(record).unwrap(), size)
            })
            .collect::<BTreeSet<_>>()
    };
    let expect = |keys: &[(ObjectKey, usize)]| keys.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(listed(&[]), expect(&keys));
    assert_eq!(listed(&["--model", "org/model"]), expect(&keys[..3]));
    assert_eq!(listed(&["--salt", "a"]), expect(&keys[1..2]));
    assert_eq!(
        listed(&["--salt", "", "--model", "other"]),
        expect(&keys[3..])
    );
    assert_eq!(listed(&["--model", "nobody"]), expect(&[]));
    assert_eq!(listed(&["--limit", "2"]).len(), 2);
    assert_eq!(listed(&["--limit", "0"]).len(), 0);

    let output = pool.run(&pool.json(), &["ls", "--model", "other"]);
    assert_eq!(
        text(&output.stdout),
        "model  rank      group  hash  salt  size\n\
         other  00000007  0      abcd  -       40\n"
    );
    let record = pool.record(&pool.json(), &["ls", "--model", "other"], 0);
    assert_eq!(
        record,
        json!({"chunk_hash_hex": "abcd", "model_name": "other", "kv_rank": 7,
               "object_group_id": 0, "cache_salt": "", "size": 40})
    );
}

#[tokio::test]
async fn ls_shows_no_escape_codes_of_others() {
    let pool = Pool::new();
    let key = ObjectKey::new("\u{1b}[31mred\nline", 1, [1]).unwrap();
    pool.fill(&[(key, 10)]).await;
    let shown = text(&pool.run(&pool.json(), &["ls"]).stdout);
    assert_eq!(shown.lines().count(), 2, "{shown:?}");
    assert!(shown.contains("\\u{1b}[31mred\\nline"), "{shown:?}");
}

#[tokio::test]
async fn ls_ends_well_when_nobody_reads_on() {
    let pool = Pool::new();
    std::fs::create_dir(pool.folder()).unwrap();
    for n in 0..3000_u32 {
        let key = ObjectKey::new(
            "a-model-with-a-longer-name",
            1,
            [n.to_be_bytes(); 8].concat(),
        );
        std::fs::write(pool.file(&key.unwrap()), "x").unwrap();
    }
    let mut ls = pool
        .command(&pool.json(), &["ls"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(ls.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with("model "), "{line}");
    let output = ls.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[tokio::test]
async fn verify_passes_a_pool_that_is_well_and_names_what_is_odd() {
    let pool = Pool::new();
    let long = ObjectKey::new("m".repeat(90), 1, [9]).unwrap();
    pool.fill(&[(key(1), 1000), (key(2), 0), (long.clone(), 70)])
        .await;
    std::fs::write(pool.folder().join("mine"), "kept").unwrap();
    let args = ["verify", "--all", "--max-name", "100"];
    let records = pool.records(&pool.json(), &args, 0);
    let (report, findings) = records.split_last().unwrap();
    assert_eq!(report["verified"], true);
    assert_eq!(
        (&report["listed_keys"], &report["read_keys"]),
        (&3.into(), &3.into())
    );
    assert_eq!(report["read_bytes"], 1070);
    assert_eq!(report["failed"], 0);
    assert_eq!(report["seed"], Value::Null);
    assert_eq!(
        report["findings"],
        json!({"zero_length": 1, "long_name": 1, "foreign": 1})
    );
    let found = |kind: &str| {
        let one = findings.iter().find(|one| one["finding"] == kind).unwrap();
        assert_eq!(one["failed"], false, "{one}");
        one
    };
    assert_eq!(found("zero_length")["key"], json!(key(2)));
    assert_eq!(found("long_name")["key"], json!(long));
    let foreign = found("foreign");
    assert!(
        foreign["path"].as_str().unwrap().ends_with("/pool/mine"),
        "{foreign}"
    );
    assert_eq!(foreign.get("key"), None);

    let output = pool.run(&pool.json(), &args);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("Also found, no failures, 3 of 3:"),
        "{shown}"
    );
    assert!(shown.contains("All verified."), "{shown}");
}

#[tokio::test]
async fn verify_reads_a_sample_that_the_seed_chooses() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(50)).await;
    let sampled = |args: &[&str]| {
        let args = [&["verify"], args].concat();
        let report = pool.record(&pool.json(), &args, 0);
        assert_eq!(report["verified"], true);
        report
    };
    let report = sampled(&["--sample", "7", "--seed", "3"]);
    assert_eq!(
        (&report["read_keys"], &report["seed"]),
        (&7.into(), &3.into())
    );
    assert_eq!(
        (&report["read_bytes"], &report["listed_bytes"]),
        (&700.into(), &5000.into())
    );
    let report = sampled(&[]);
    assert_eq!(
        report["read_keys"], 50,
        "a thousand, unless there are fewer"
    );
    assert!(report["seed"].is_u64());
    let shown = text(
        &pool
            .run(&pool.json(), &["verify", "--sample", "7", "--seed", "3"])
            .stdout,
    );
    assert!(shown.contains("Read 7 of 50 keys"), "{shown}");
    assert!(shown.contains("--seed 3 chooses them again"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_counted_listed_and_verified() {
    let keys = [(key(1), 5000), (salted(2, "a"), 3000), (salted(3, "a"), 0)];
    let bucket = Bucket::new(&keys).await;
    bucket.hub.reset_requests();
    let status = bucket.records(&["status"], 0).remove(0);
    assert_eq!(status["status"]["bucket_id"], "my-org/kv");
    assert_eq!(status["status"]["object_prefix"], "prod");
    assert_eq!(status["status"]["stored_object_count"], 3);
    assert_eq!(
        status["usage"]["bytes_by_cache_salt"],
        json!({"": 5000, "a": 3000})
    );
    let mut listed: Vec<ObjectKey> = bucket
        .records(&["ls"], 0)
        .into_iter()
        .map(|record| serde_json::from_value(record).unwrap())
        .collect();
    listed.sort();
    let mut expected: Vec<_> = keys.iter().map(|(key, _)| key.clone()).collect();
    expected.sort();
    assert_eq!(listed, expected);
    let records = bucket.records(&["verify", "--all"], 0);
    let report = records.last().unwrap();
    assert_eq!(report["verified"], true, "{records:?}");
    assert_eq!(
        (&report["read_keys"], &report["read_bytes"]),
        (&3.into(), &8000.into())
    );
    assert_eq!(report["findings"], json!({"zero_length": 1}));
    let routes = bucket.hub.requests().routes;
    assert!(
        !routes.keys().any(|route| route.contains("batch")),
        "nothing was written: {routes:?}"
    );
    bucket.hub.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_finds_what_a_bucket_does_not_give() {
    let keys = [(key(1), 50_000)];
    let bucket = Bucket::new(&keys).await;
    bucket.hub.inject(unreadable());
    let records = bucket.records(&["verify"], 1);
    let (report, findings) = records.split_last().unwrap();
    assert_eq!(
        (&report["verified"], &report["failed"]),
        (&false.into(), &1.into())
    );
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0]["finding"], "unreadable");
    assert_eq!(findings[0]["key"], json!(key(1)));
    let output = bucket.run(&bucket.json(), Some("hf_verysecret"), &["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("Failures, 1 of 1:"), "{shown}");
    assert!(shown.contains("NOT VERIFIED: 1 keys"), "{shown}");
    bucket.hub.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_sees_what_happened_since_the_listing() {
    let keys = [(key(1), 5000), (key(2), 3000), (key(3), 100)];
    let bucket = Bucket::new(&keys).await;
    // Listings go on showing what there is now.
    bucket.hub.inject(Fault::stale_listing().times(100));
    let config = L2Config::from_json(&bucket.json().to_string()).unwrap();
    let store = hfbucket::HfBucketBuilder::new()
        .with_endpoint(bucket.hub.endpoint())
        .with_token(bucket.hub.token())
        .with_bucket("my-org/kv")
        .with_cache_dir(bucket.home.path().join("writer"))
        .build()
        .unwrap();
    let adapter = L2Adapter::with_store(std::sync::Arc::new(store), config)
        .await
        .unwrap();
    fill(&adapter, &[(key(1), 400)]).await;
    assert!(adapter.delete(&[key(2)]).await.is_ok());
    let records = bucket.records(&["verify", "--all"], 1);
    let (report, findings) = records.split_last().unwrap();
    assert_eq!(
        report["findings"],
        json!({"size": 1, "gone": 1}),
        "{findings:?}"
    );
    assert_eq!(
        (&report["failed"], &report["read_keys"]),
        (&1.into(), &3.into())
    );
    let of = |n| {
        findings
            .iter()
            .find(|one| one["key"] == json!(key(n)))
            .unwrap()
    };
    assert_eq!(
        (&of(1)["finding"], &of(1)["failed"]),
        (&"size".into(), &true.into())
    );
    let detail = of(1)["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("listed with 5000 bytes, has 400"),
        "{detail}"
    );
    assert_eq!(
        (&of(2)["finding"], &of(2)["failed"]),
        (&"gone".into(), &false.into())
    );
    bucket.hub.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket_and_a_missing_token_are_named() {
    let bucket = Bucket::new(&of_100_bytes(1)).await;
    let mut missing = bucket.json();
    missing["bucket_handle"] = "hf://buckets/my-org/nothing-here/prod".into();
    for command in ["status", "ls", "verify"] {
        let output = bucket.run(&missing, Some("hf_verysecret"), &[command]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let shown = text(&output.stderr);
        assert!(shown.contains("my-org/nothing-here"), "{shown}");
        assert!(
            shown.contains("create the bucket") || shown.contains("check its name"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), 1, "{shown}");
        assert_eq!(text(&output.stdout), "");

        let output = bucket.run(&bucket.json(), None, &[command]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let shown = text(&output.stderr);
        assert!(shown.contains("no token was sent: set HF_TOKEN"), "{shown}");
    }
    let args = ["evict", "--to-bytes", "0", "--yes"];
    let output = bucket.run(&missing, Some("hf_verysecret"), &args);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(shown.contains("my-org/nothing-here"), "{shown}");
    // A token of the configuration, which is no token of the hub.
    let mut wrong = bucket.json();
    wrong["token"] = "hf_verysecret_but_wrong".into();
    let output = bucket.run(
        &wrong,
        None,
        &["bench", "--chunk-size", "10", "--chunks", "1"],
    );
    assert_eq!(output.status.code(), Some(1));
    bucket.hub.shutdown().await;
}

#[tokio::test]
async fn dry_runs_delete_nothing_and_say_what_would_go() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(30)).await;
    let before = pool.files();
    // The policy takes one key a round until less than 1500 bytes are left.
    let json = pool.evicting(3000, 0.5);
    let plan = pool.record(&json, &["evict", "--dry-run"], 0);
    assert_eq!(plan["dry_run"], true);
    assert_eq!(
        (&plan["objects"], &plan["bytes"]),
        (&16.into(), &1600.into())
    );
    let first = |plan: &Value| -> Vec<ObjectKey> {
        let first = plan["first"].as_array().unwrap().iter();
        first
            .map(|one| {
                assert_eq!(one["size"], 100);
                serde_json::from_value(one.clone()).unwrap()
            })
            .collect()
    };
    assert_eq!(first(&plan), (0..16).map(key).collect::<Vec<_>>());
    let plan = pool.record(&json, &["evict", "--dry-run", "--to", "0.1"], 0);
    assert_eq!(
        (&plan["objects"], &plan["bytes"]),
        (&27.into(), &2700.into())
    );
    assert_eq!(first(&plan), (0..20).map(key).collect::<Vec<_>>());
    let plan = pool.record(&json, &["evict", "--dry-run", "--salt", ""], 0);
    assert_eq!(plan["objects"], 30);
    let plan = pool.record(&json, &["evict", "--dry-run", "--salt", "nobody"], 0);
    assert_eq!((&plan["objects"], &plan["first"]), (&0.into(), &json!([])));
    let output = pool.run(&json, &["evict", "--dry-run", "--to-bytes", "0"]);
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("Would delete 30 objects, 2.9 KiB. Nothing was deleted.\nmodel "),
        "{shown}"
    );
    assert!(shown.ends_with("and 10 more\n"), "{shown}");
    assert_eq!(pool.files(), before);
}

#[tokio::test]
async fn evict_follows_the_policy() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(30)).await;
    std::fs::write(pool.folder().join("mine"), [0; 5000]).unwrap();
    let json = pool.evicting(3000, 0.5);
    let outcome = pool.record(&json, &["evict", "--yes"], 0);
    assert_eq!(
        outcome,
        json!({"dry_run": false, "deleted": 16, "deleted_bytes": 1600, "failed": 0, "locked": 0,
               "used_bytes": 1400, "done": true, "first_error": null})
    );
    for n in 0..30 {
        assert_eq!(pool.has(&key(n)), n >= 16, "{n}");
    }
    assert!(pool.files().contains("mine"));
    let outcome = pool.record(&json, &["evict", "--yes"], 0);
    assert_eq!(
        (&outcome["deleted"], &outcome["done"]),
        (&0.into(), &true.into())
    );
}

#[tokio::test]
async fn evict_keeps_quotas() {
    let pool = Pool::new();
    let mut keys: Vec<_> = (0..10).map(|n| (salted(n, "a"), 100)).collect();
    keys.extend((0..10).map(|n| (salted(n, "b"), 100)));
    pool.fill(&keys).await;
    let mut json = pool.json();
    json["eviction"] = json!({"eviction_policy": "IsolatedLRU", "trigger_watermark": 1.0,
        "eviction_ratio": 0.01, "salt_quotas_gb": {"a": 500. / GIB}});
    let outcome = pool.record(&json, &["evict", "--yes"], 0);
    assert_eq!(
        (&outcome["deleted"], &outcome["done"]),
        (&6.into(), &true.into())
    );
    for n in 0..10 {
        assert_eq!(pool.has(&salted(n, "a")), n >= 6, "{n}");
        assert!(pool.has(&salted(n, "b")), "{n}");
    }
}

#[tokio::test]
async fn evict_takes_the_oldest_or_those_that_are_named() {
    let pool = Pool::new();
    let mut keys = of_100_bytes(10);
    keys.push((salted(10, "a"), 50));
    keys.push((ObjectKey::new("other", 1, [11]).unwrap(), 50));
    // Stored in another order than that of their names.
    keys.reverse();
    pool.fill(&keys).await;
    std::fs::write(pool.folder().join("mine"), [0; 5000]).unwrap();
    let json = pool.json();
    let outcome = pool.record(&json, &["evict", "--yes", "--to-bytes", "850B"], 0);
    assert_eq!(
        (&outcome["deleted"], &outcome["deleted_bytes"]),
        (&4.into(), &300.into())
    );
    assert_eq!(outcome["used_bytes"], 800);
    let left: Vec<_> = keys.iter().map(|(key, _)| pool.has(key)).collect();
    assert_eq!(left, [&[false; 4][..], &[true; 8]].concat());
    let outcome = pool.record(&json, &["evict", "--yes", "--to-bytes", "1KiB"], 0);
    assert_eq!(
        (&outcome["deleted"], &outcome["used_bytes"]),
        (&0.into(), &800.into())
    );

    pool.fill(&keys).await;
    let outcome = pool.record(&json, &["evict", "--yes", "--salt", "a"], 0);
    assert_eq!(
        (&outcome["deleted"], &outcome["deleted_bytes"]),
        (&1.into(), &50.into())
    );
    assert!(!pool.has(&salted(10, "a")));
    let args = ["evict", "--yes", "--model", "other", "--salt", "a"];
    assert_eq!(pool.record(&json, &args, 0)["deleted"], 0);
    let args = ["evict", "--yes", "--model", "other", "--salt", ""];
    assert_eq!(pool.record(&json, &args, 0)["deleted"], 1);
    let outcome = pool.record(
        &pool.evicting(1000, 0.9),
        &["evict", "--yes", "--to", "0"],
        0,
    );
    assert_eq!(
        (&outcome["deleted"], &outcome["used_bytes"]),
        (&10.into(), &0.into())
    );
    assert_eq!(pool.files(), BTreeSet::from(["mine".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evict_says_what_could_not_be_deleted() {
    let bucket = Bucket::new(&of_100_bytes(3)).await;
    let name = key(1).encoded_name(Default::default()).unwrap();
    bucket
        .hub
        .inject(Fault::partial_batch(200, &name).times(100));
    let args = ["evict", "--yes", "--model", "org/model"];
    let outcome = bucket.records(&args, 1).remove(0);
    assert_eq!(
        (&outcome["deleted"], &outcome["failed"]),
        (&2.into(), &1.into())
    );
    assert_eq!(
        (&outcome["used_bytes"], &outcome["done"]),
        (&100.into(), &false.into())
    );
    let error = outcome["first_error"].as_str().unwrap();
    assert!(error.contains("could not delete"), "{error}");
    bucket.hub.shutdown().await;
}

#[tokio::test]
async fn evict_says_what_the_configuration_lacks() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(2)).await;
    let mut noop = pool.evicting(100, 0.5);
    noop["eviction"]["eviction_policy"] = "noop".into();
    let mut unlimited = pool.evicting(100, 0.5);
    unlimited["max_capacity_gb"] = 0.into();
    for (json, args, expected) in [
        (
            pool.json(),
            &["evict", "--yes"][..],
            "add \"max_capacity_gb\" and \"eviction\"",
        ),
        (noop, &["evict", "--dry-run"], "add \"eviction\""),
        (
            unlimited.clone(),
            &["evict", "--yes"],
            "add \"max_capacity_gb\", or",
        ),
        (
            unlimited,
            &["evict", "--yes", "--to", "0.5"],
            "--to is a share of the capacity",
        ),
    ] {
        let output = pool.run(&json, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let shown = text(&output.stderr);
        assert!(shown.contains(expected), "{shown}");
    }
    assert_eq!(pool.files().len(), 2);
}

/// Runs a command on a terminal, answers its question, and prints its exit code.
#[cfg(target_os = "linux")]
const ON_A_TERMINAL: &str = r#"
import os, pty, sys
answer = sys.argv[1].encode().decode("unicode_escape").encode()
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
while b"[y/N]" not in shown:
    shown += os.read(terminal, 4096)
os.write(terminal, answer)
try:
    while more := os.read(terminal, 4096):
        shown += more
except OSError:
    pass
sys.stdout.buffer.write(shown)
print("\nexit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn evict_asks_on_a_terminal() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(30)).await;
    let python = std::env::var("HFBUCKET_PYTHON").unwrap_or("python3".to_owned());
    let answer = |json: &Value, args: &[&str], answer: &str| {
        let hfbucket = pool.command(json, args);
        let mut command = Command::new(&python);
        clean_environment(&mut command, pool.home.path());
        command
            .args(["-c", ON_A_TERMINAL, answer])
            .arg(hfbucket.get_program())
            .args(hfbucket.get_args());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let json = pool.evicting(3000, 0.5);
    let by_age = ["evict", "--to-bytes", "2900"];
    for refusal in ["n\\n", "\\n", "yess\\n", "\\x04"] {
        let shown = answer(&json, &by_age, refusal);
        assert!(
            shown.contains("Delete 1 objects, 100 B, from LocalFileSystem"),
            "{shown}"
        );
        assert!(
            shown.contains("not confirmed: nothing was deleted"),
            "{shown}"
        );
        assert!(shown.ends_with("exit code 1\n"), "{shown}");
    }
    for args in [&by_age[..], &["evict"]] {
        let shown = answer(&json, args, "\\x03");
        assert!(shown.ends_with("exit code 130\n"), "{shown}");
    }
    assert_eq!(pool.files().len(), 30);
    let shown = answer(&json, &by_age, "y\\n");
    assert!(shown.contains("Deleted 1 objects, 100 B"), "{shown}");
    assert!(shown.ends_with("exit code 0\n"), "{shown}");
    assert!(!pool.has(&key(0)));
    assert_eq!(pool.files().len(), 29);
    let shown = answer(&json, &["evict"], "YES\\n");
    assert!(
        shown.contains("Delete 15 objects, 1.5 KiB, from"),
        "{shown}"
    );
    assert!(shown.contains("Deleted 15 objects"), "{shown}");
    assert_eq!(pool.files().len(), 14);
}

#[tokio::test]
async fn wrong_selections_end_with_2_and_delete_nothing() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(5)).await;
    for (args, named) in [
        // Nobody can say yes.
        (&["evict", "--to-bytes", "0"][..], "--yes"),
        (&["evict", "--salt", ""], "--dry-run"),
        (
            &["evict", "--yes", "--to", "0.5", "--to-bytes", "1"],
            "--to-bytes",
        ),
        (&["evict", "--yes", "--to", "0.5", "--salt", "a"], "--salt"),
        (
            &["evict", "--yes", "--to-bytes", "1", "--model", "m"],
            "--model",
        ),
        (&["evict", "--yes", "--to", "1.5"], "from 0 to 1"),
        (&["evict", "--yes", "--to", "nan"], "from 0 to 1"),
        (&["evict", "--yes", "--to-bytes", "-1"], "-1"),
        (&["evict", "--yes", "--to-bytes", "2 parsecs"], "2 parsecs"),
        (&["evict", "--yes", "--salt", "a/b"], "not allowed"),
        (&["evict", "--yes", "--model", "a@b"], "'@'"),
        (&["ls", "--salt", "@"], "not allowed"),
        (&["ls", "--limit", "-1"], "-1"),
        (&["verify", "--sample", "0"], "--all"),
        (&["verify", "--sample", "5", "--all"], "--all"),
        (&["bench", "--chunks", "0"], "--chunks"),
        (&["bench", "--chunk-size", "2GiB"], "1 byte to 1GiB"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = pool.run(&pool.evicting(100, 0.5), args);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {shown}");
        assert!(shown.contains(named), "{args:?}: {shown}");
        assert_eq!(text(&output.stdout), "");
    }
    let output = hfbucket(&["status"], pool.home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--l2-adapter"));
    assert_eq!(pool.files().len(), 5);
}

#[tokio::test]
async fn bench_measures_verifies_and_leaves_nothing_but_what_was_there() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(5)).await;
    let before = pool.files();
    // Full already: with eviction, these keys would go.
    let json = pool.evicting(500, 0.5);
    let small = [
        "bench",
        "--chunks",
        "10",
        "--chunk-size",
        "1000",
        "--batch",
        "4",
    ];
    let report = pool.record(&json, &small, 0);
    assert_eq!(
        (&report["verified"], &report["kept"]),
        (&true.into(), &false.into())
    );
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<_> = phases
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["store", "look up, cold", "look up, warm", "load", "delete"]
    );
    for phase in phases {
        assert_eq!(phase["keys"], 10);
        let moves = ["store", "load"].contains(&phase["name"].as_str().unwrap());
        assert_eq!(phase["bytes"], if moves { 10_000 } else { 0 });
        assert_eq!(phase["mb_per_second"].is_f64(), moves, "{phase}");
        let number = |name: &str| phase[name].as_f64().unwrap();
        assert!(
            number("seconds") > 0. && number("keys_per_second") > 0.,
            "{phase}"
        );
        assert!(
            number("p50_ms") > 0. && number("p50_ms") <= number("p99_ms"),
            "{phase}"
        );
    }
    assert_eq!(pool.files(), before);

    let report = pool.record(&json, &[&small[..], &["--keep"]].concat(), 0);
    let salt = report["salt"].as_str().unwrap();
    assert!(salt.starts_with("bench-"), "{salt}");
    assert_eq!(report["phases"].as_array().unwrap().len(), 4);
    let kept = pool.records(&json, &["ls", "--salt", salt], 0);
    assert_eq!(kept.len(), 10);
    let args = ["evict", "--yes", "--salt", salt];
    assert_eq!(pool.record(&json, &args, 0)["deleted"], 10);
    assert_eq!(pool.files(), before);

    let shown = text(&pool.run(&json, &small).stdout);
    assert!(shown.contains("p99 ms/call"), "{shown}");
    assert!(shown.contains("every byte is right"), "{shown}");
}

#[tokio::test]
async fn a_bench_keeps_a_hard_capacity() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(5)).await;
    let before = pool.files();
    let mut json = pool.evicting(1000, 0.5);
    json["admission"] = "hard".into();
    let args = ["bench", "--chunks", "20", "--chunk-size", "100"];
    let output = pool.run(&json, &args);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stderr);
    assert!(shown.contains("has no room"), "{shown}");
    assert_eq!(pool.files(), before);
    let args = ["bench", "--chunks", "5", "--chunk-size", "100"];
    assert_eq!(pool.record(&json, &args, 0)["verified"], true);
    assert_eq!(pool.files(), before);
}

#[cfg(unix)]
#[tokio::test]
async fn a_bench_that_is_stopped_leaves_nothing_of_its_own() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(5)).await;
    let before = pool.files();
    let args = [
        "bench",
        "--quiet",
        "--chunks",
        "100000",
        "--chunk-size",
        "64KiB",
    ];
    let mut bench = pool.command(&pool.json(), &args).spawn().unwrap();
    // Well under way, and far from its end.
    while pool.files().len() < 50 {
        assert!(bench.try_wait().unwrap().is_none(), "it goes on");
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-INT", &bench.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    assert_eq!(pool.files(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bench_that_fails_leaves_nothing_of_its_own() {
    let bucket = Bucket::new(&of_100_bytes(2)).await;
    // All is stored, and nothing can be loaded.
    bucket.hub.inject(unreadable());
    let args = [
        "bench",
        "--chunks",
        "6",
        "--chunk-size",
        "20000",
        "--batch",
        "2",
    ];
    let output = bucket.run(&bucket.json(), Some("hf_verysecret"), &args);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).starts_with("error: L2 adapter could not load"));
    assert_eq!(bucket.records(&["ls"], 0).len(), 2);
    bucket.hub.shutdown().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_can_be_stopped() {
    let bucket = Bucket::new(&of_100_bytes(2)).await;
    bucket
        .hub
        .inject(Fault::delay(Duration::from_secs(300)).on_route("tree"));
    let mut status = hfbucket(&["status"], bucket.home.path());
    let mut status = status
        .args(["--l2-adapter", &bucket.json().to_string()])
        .env("HF_ENDPOINT", bucket.hub.endpoint())
        .env("HF_TOKEN", bucket.hub.token())
        .spawn()
        .unwrap();
    bucket.hub.reset_requests();
    while bucket.hub.requests().api == 0 {
        assert!(status.try_wait().unwrap().is_none(), "it waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kill = Command::new("kill")
        .args(["-TERM", &status.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert_eq!(status.wait().unwrap().code(), Some(130));
}

#[tokio::test]
async fn the_configuration_comes_from_an_argument_a_file_or_the_environment() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(3)).await;
    let file = pool.home.path().join("pool.json");
    std::fs::write(&file, pool.json().to_string()).unwrap();
    let at_file = format!("@{}", file.display());
    let counted = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        lines(&output.stdout)[0]["status"]["stored_object_count"].clone()
    };
    let status = || hfbucket(&["status", "--json"], pool.home.path());
    assert_eq!(counted(status().args(["--l2-adapter", &at_file])), 3);
    assert_eq!(
        counted(status().env("HFBUCKET_L2_ADAPTER", pool.json().to_string())),
        3
    );
    assert_eq!(counted(status().env("HFBUCKET_L2_ADAPTER", &at_file)), 3);
    let memory = r#"{"type": "object_store", "url": "memory:///"}"#;
    // The argument counts.
    let mut both = status();
    both.env("HFBUCKET_L2_ADAPTER", &at_file)
        .args(["--l2-adapter", memory]);
    assert_eq!(counted(&mut both), 0);
    let output = hfbucket(
        &["status", "--l2-adapter", "@/no/such/file"],
        pool.home.path(),
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such/file"));
}

#[test]
fn secrets_are_never_shown_and_wrong_fields_are_named() {
    let home = tempfile::tempdir().unwrap();
    let handle = r#""bucket_handle": "hf://buckets/o/b""#;
    let cases = [
        (
            format!(r#"{{{handle}, "token": "hf_verysecret""#),
            1,
            "L2 config: EOF",
        ),
        (
            r#"{"token": "hf_verysecret"}"#.to_owned(),
            1,
            "'bucket_handle'",
        ),
        (
            format!(r#"{{{handle}, "token": ["hf_verysecret"]}}"#),
            1,
            "'token'",
        ),
        (
            format!(r#"{{{handle}, "token": "hf_verysecret", "num_workers": 0}}"#),
            1,
            "'num_workers'",
        ),
        (
            r#"{"type": "object_store", "url": "s3://me:hf_verysecret@b/p"}"#.to_owned(),
            1,
            "'url'",
        ),
        (
            r#"{"type": "object_store", "url": "s3://b/p",
                "options": {"aws_secret_key": "hf_verysecret"}}"#
                .to_owned(),
            1,
            "'aws_secret_key'",
        ),
        ("hf_verysecret".to_owned(), 1, "@FILE"),
        (r#"["hf_verysecret"]"#.to_owned(), 1, "no JSON object"),
    ];
    let check = |output: Output, code: i32, named: &str| {
        let shown = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{shown}");
        assert!(shown.contains(named), "{named}: {shown}");
        assert!(!shown.contains("hf_verysecret"), "{shown}");
    };
    for (json, code, named) in &cases {
        for command in [
            &["status"][..],
            &["ls"],
            &["verify"],
            &["evict", "--yes", "--to-bytes", "0"],
            &["bench"],
        ] {
            let mut by_argument = hfbucket(command, home.path());
            by_argument.args(["--l2-adapter", json]);
            check(by_argument.output().unwrap(), *code, named);
        }
        let mut by_environment = hfbucket(&["status"], home.path());
        by_environment.env("HFBUCKET_L2_ADAPTER", json);
        check(by_environment.output().unwrap(), *code, named);
    }
    let secret = r#"{"token": "hf_verysecret"}"#;
    for args in [
        &["status", secret][..],
        &[secret],
        &["verify", "--sample", secret],
        &["evict", "--to", secret],
        &["status", "--l2_adapter", secret],
        &["evict", "--yes={\"token\": \"hf_verysecret\"}"],
        &["status", "--l2-adaptor={\"token\": \"hf_verysecret\"}"],
    ] {
        check(hfbucket(args, home.path()).output().unwrap(), 2, "error: ");
    }
    let mut help = hfbucket(&["status", "--help"], home.path());
    help.env("HFBUCKET_L2_ADAPTER", secret);
    check(help.output().unwrap(), 0, "HFBUCKET_L2_ADAPTER");
}

#[tokio::test]
async fn quiet_ones_hear_of_errors_only_and_help_has_examples() {
    let pool = Pool::new();
    pool.fill(&of_100_bytes(3)).await;
    let silent = |args: &[&str], code: i32| {
        let output = pool.run(&pool.json(), &[args, &["--quiet"]].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        text(&output.stderr)
    };
    assert_eq!(silent(&["status"], 0), "");
    assert_eq!(silent(&["ls"], 0), "");
    assert_eq!(silent(&["verify"], 0), "");
    assert_eq!(
        silent(&["bench", "--chunks", "2", "--chunk-size", "10"], 0),
        ""
    );
    assert_eq!(silent(&["evict", "--yes", "--to-bytes", "0"], 0), "");
    assert!(silent(&["evict", "--yes"], 1).starts_with("error: "));
    for command in ["status", "ls", "verify", "evict", "bench"] {
        let output = hfbucket(&[command, "--help"], pool.home.path())
            .output()
            .unwrap();
        let shown = text(&output.stdout);
        assert!(shown.contains("Example"), "{shown}");
        assert!(shown.contains(&format!("hfbucket l2 {command}")), "{shown}");
    }
}
