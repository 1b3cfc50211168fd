//! OpenDAL's own `hf` service on LocalHub: what it writes, `HfBucket` reads, and the other way round.

#![cfg(feature = "local-hub")]

mod support;

use hfbucket::HfBucket;
use hfbucket::local_hub::{LocalHub, TokenGrant};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use opendal::options::ListOptions;
use opendal::{EntryMode, ErrorKind, Operator, services};
use support::{Fixture, noise, own_process};

const NAMES: [&str; 8] = [
    "plain.bin",
    "d/with space",
    "d/100% #1 a+b&c?d=e",
    "already%20encoded",
    "日本語/🦀",
    "logs",
    "logs.json",
    "logs/a",
];

fn hf(fixture: &Fixture, bucket: &str) -> services::Hf {
    // The HTTP client of the process; further calls do nothing.
    opendal::install_default();
    services::Hf::default()
        .repo_type("bucket")
        .repo_id(&format!("my-org/{bucket}"))
        .endpoint(fixture.hub.endpoint())
        .token(fixture.hub.token())
}

/// OpenDAL creates no buckets, so `HfBucket` does, by writing into it.
async fn bucket(fixture: &Fixture, name: &str) -> (HfBucket, Operator) {
    let store = fixture.store(name);
    store
        .put(&path("ours"), "from HfBucket".into())
        .await
        .unwrap();
    (store, Operator::new(hf(fixture, name)).unwrap())
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

async fn names(operator: &Operator, path: &str, recursive: bool) -> Vec<String> {
    let options = ListOptions {
        recursive,
        ..Default::default()
    };
    let entries = operator.list_options(path, options).await.unwrap();
    let mut names: Vec<_> = entries
        .iter()
        .map(|entry| entry.path().to_owned())
        .collect();
    names.sort();
    names
}

async fn get(store: &HfBucket, name: &str) -> Vec<u8> {
    let got = store.get(&path(name)).await.unwrap();
    got.bytes().await.unwrap().to_vec()
}

#[test]
fn each_reads_what_the_other_writes() {
    own_process::run("each_reads_what_the_other_writes", async {
        let fixture = Fixture::start().await;
        let (store, operator) = bucket(&fixture, "shared").await;
        assert_eq!(
            operator.read("ours").await.unwrap().to_vec(),
            b"from HfBucket"
        );

        for (seed, name) in NAMES.into_iter().enumerate() {
            let theirs = noise(seed as u64, 10_000 * seed);
            let written = operator.write(name, theirs.clone()).await.unwrap();
            assert_eq!(written.content_length(), theirs.len() as u64, "{name}");
            let stat = operator.stat(name).await.unwrap();
            assert_eq!(stat.content_length(), theirs.len() as u64, "{name}");
            assert_eq!(stat.mode(), EntryMode::FILE, "{name}");
            assert_eq!(
                store.head(&path(name)).await.unwrap().size,
                theirs.len() as u64
            );
            assert_eq!(get(&store, name).await, theirs, "{name}");

            let ours = noise(100 + seed as u64, 20_000);
            store.put(&path(name), ours.clone().into()).await.unwrap();
            assert_eq!(operator.read(name).await.unwrap().to_vec(), ours, "{name}");
            let part = operator.read_with(name).range(5_000..7_000).await.unwrap();
            assert_eq!(part.to_vec(), ours[5_000..7_000], "{name}");
        }
    });
}

#[test]
fn large_objects_and_plain_http() {
    own_process::run("large_objects_and_plain_http", async {
        let fixture = Fixture::start().await;
        let (store, operator) = bucket(&fixture, "large").await;
        let data = noise(1, 20 << 20);
        let mut writer = operator.writer("large").await.unwrap();
        for part in data.chunks(5 << 20) {
            writer.write(part.to_vec()).await.unwrap();
        }
        writer.close().await.unwrap();
        assert!(
            get(&store, "large").await == data,
            "HfBucket reads other bytes"
        );

        let http = Operator::new(hf(&fixture, "large").download_mode("http")).unwrap();
        for (mode, operator) in [("xet", &operator), ("http", &http)] {
            assert!(
                operator.read("large").await.unwrap().to_vec() == data,
                "{mode}"
            );
            let part = operator.read_with("large").range(9_999_999..10_000_009);
            let part = part.await.unwrap().to_vec();
            assert_eq!(part, data[9_999_999..10_000_009], "{mode}");
        }
    });
}

#[test]
fn listings() {
    own_process::run("listings", async {
        let short = LocalHub::builder().with_short_pages(true);
        for builder in [LocalHub::builder(), short] {
            let fixture = Fixture::with_hub(builder.start().await.unwrap());
            let (store, operator) = bucket(&fixture, "listed").await;
            for name in NAMES {
                store.put(&path(name), "x".into()).await.unwrap();
            }
            let mut all = [&NAMES[..], &["ours"]].concat();
            all.sort_unstable();
            let files = |names: Vec<String>| -> Vec<String> {
                names
                    .into_iter()
                    .filter(|name| !name.ends_with('/'))
                    .collect()
            };
            assert_eq!(files(names(&operator, "", true).await), all);
            assert_eq!(
                names(&operator, "", false).await,
                [
                    "already%20encoded",
                    "d/",
                    "logs",
                    "logs.json",
                    "logs/",
                    "ours",
                    "plain.bin",
                    "日本語/"
                ]
            );
            assert_eq!(
                files(names(&operator, "d/", false).await),
                ["d/100% #1 a+b&c?d=e", "d/with space"]
            );
            // OpenDAL asks for the prefix without its slash and takes all that the Hub matches with it.
            assert_eq!(
                files(names(&operator, "logs/", true).await),
                ["logs", "logs.json", "logs/a"]
            );
            assert!(files(names(&operator, "missing/", true).await).is_empty());
        }
    });
}

#[test]
fn deletes() {
    own_process::run("deletes", async {
        let fixture = Fixture::start().await;
        let (store, operator) = bucket(&fixture, "deleted").await;
        for name in NAMES {
            store.put(&path(name), "x".into()).await.unwrap();
        }
        operator.delete("logs").await.unwrap();
        let gone = store.head(&path("logs")).await.unwrap_err();
        assert!(
            matches!(gone, object_store::Error::NotFound { .. }),
            "{gone}"
        );
        assert_eq!(
            operator.stat("logs").await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(get(&store, "logs/a").await, b"x");

        operator.delete("never there").await.unwrap();
        let rest = NAMES.into_iter().filter(|name| *name != "logs");
        operator
            .delete_iter(rest.collect::<Vec<_>>())
            .await
            .unwrap();
        assert_eq!(names(&operator, "", true).await, ["ours"]);

        store.delete(&path("ours")).await.unwrap();
        assert!(!operator.exists("ours").await.unwrap());
    });
}

#[test]
fn refusals() {
    own_process::run("refusals", async {
        let hub = LocalHub::builder()
            .with_token(TokenGrant::new("hf_owner", "owner").owner_of("my-org"))
            .with_token(
                TokenGrant::new("hf_reader", "reader")
                    .owner_of("my-org")
                    .read_only(),
            )
            .start()
            .await
            .unwrap();
        let fixture = Fixture::with_hub(hub);
        let (_store, operator) = bucket(&fixture, "refused").await;
        for missing in ["none", "d/none", "our"] {
            let error = operator.stat(missing).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        let reader = Operator::new(hf(&fixture, "refused").token("hf_reader")).unwrap();
        assert_eq!(
            reader.read("ours").await.unwrap().to_vec(),
            b"from HfBucket"
        );
        let error = reader.write("theirs", "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        let error = reader.delete("ours").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");

        let nowhere = Operator::new(hf(&fixture, "nowhere")).unwrap();
        let error = nowhere.stat("ours").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let stranger = Operator::new(hf(&fixture, "refused").token("hf_unknown")).unwrap();
        let error = stranger.stat("ours").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert_eq!(names(&operator, "", true).await, ["ours"]);
    });
}
