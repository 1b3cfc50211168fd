//! The `hf-hub` crate on LocalHub: what it writes, `HfBucket` reads, and the other way round.

#![cfg(feature = "local-hub")]

mod support;

use futures::TryStreamExt;
use hf_hub::buckets::{
    BucketAddFile, BucketCopyFile, BucketCopySourceType, BucketDownload, BucketTreeEntry,
    BucketUpload, HFBucket,
};
use hf_hub::repository::AddSource;
use hf_hub::{HFClient, HFError};
use hfbucket::HfBucket;
use hfbucket::local_hub::{LocalHub, TokenGrant};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use support::{Fixture, noise, own_process};
use tempfile::TempDir;

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

fn client(fixture: &Fixture, token: &str) -> HFClient {
    HFClient::builder()
        .endpoint(fixture.hub.endpoint())
        .token(token)
        .build()
        .unwrap()
}

/// A bucket that hf-hub has made, and both ways to it.
async fn bucket(fixture: &Fixture, name: &str) -> (HfBucket, HFBucket) {
    let client = client(fixture, fixture.hub.token());
    let url = client
        .create_bucket()
        .namespace("my-org")
        .name(name)
        .send()
        .await
        .unwrap();
    assert_eq!(
        url.url,
        format!("{}/buckets/my-org/{name}", fixture.hub.endpoint())
    );
    (fixture.store(name), client.bucket("my-org", name))
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

async fn get(store: &HfBucket, name: &str) -> Vec<u8> {
    let got = store.get(&path(name)).await.unwrap();
    got.bytes().await.unwrap().to_vec()
}

async fn upload(bucket: &HFBucket, files: &[(&str, &[u8])]) {
    let files = files
        .iter()
        .map(|(name, data)| ((*name).to_owned(), AddSource::bytes(data.to_vec())))
        .collect();
    bucket
        .upload_source_files()
        .files(files)
        .send()
        .await
        .unwrap();
}

async fn read(bucket: &HFBucket, name: &str) -> Vec<u8> {
    let (size, stream) = bucket
        .download_file_stream()
        .remote_path(name)
        .send()
        .await
        .unwrap();
    let parts: Vec<_> = stream.try_collect().await.unwrap();
    let data = parts.concat();
    assert_eq!(size, Some(data.len() as u64), "{name}");
    data
}

/// By paths-info: `get_file_metadata` of hf-hub 1.0.0 takes the Hub's redirect for an error.
async fn xet_hash(bucket: &HFBucket, name: &str) -> String {
    let paths = vec![name.to_owned()];
    let infos = bucket.get_paths_info().paths(paths).send().await.unwrap();
    match infos.as_slice() {
        [BucketTreeEntry::File { xet_hash, .. }] => xet_hash.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

/// `(kind, path, size)` of a listing, by path.
async fn tree(bucket: &HFBucket, prefix: Option<&str>) -> Vec<(char, String, u64)> {
    let listing = bucket
        .list_tree()
        .maybe_prefix(prefix)
        .recursive(true)
        .send()
        .unwrap();
    let mut entries: Vec<_> = listing.map_ok(describe).try_collect().await.unwrap();
    entries.sort();
    entries
}

fn describe(entry: BucketTreeEntry) -> (char, String, u64) {
    match entry {
        BucketTreeEntry::File { path, size, .. } => ('f', path, size),
        BucketTreeEntry::Directory { path, .. } => ('d', path, 0),
    }
}

#[test]
fn each_reads_what_the_other_writes() {
    own_process::run("each_reads_what_the_other_writes", async {
        let fixture = Fixture::start().await;
        let (store, bucket) = bucket(&fixture, "shared").await;
        for (seed, name) in NAMES.into_iter().enumerate() {
            let theirs = noise(seed as u64, 1 + 10_000 * seed);
            upload(&bucket, &[(name, &theirs)]).await;
            assert_eq!(
                store.head(&path(name)).await.unwrap().size,
                theirs.len() as u64
            );
            assert_eq!(get(&store, name).await, theirs, "{name}");

            let ours = noise(100 + seed as u64, 20_000);
            store.put(&path(name), ours.clone().into()).await.unwrap();
            assert_eq!(read(&bucket, name).await, ours, "{name}");
            let hash = xet_hash(&bucket, name).await;
            let etag = store.head(&path(name)).await.unwrap().e_tag;
            assert_eq!(Some(hash), etag, "{name}");
        }
    });
}

#[test]
fn files_on_disk() {
    own_process::run("files_on_disk", async {
        let fixture = Fixture::start().await;
        let (store, bucket) = bucket(&fixture, "disk").await;
        let folder = TempDir::new().unwrap();
        let data = [noise(1, 5 << 20), Vec::new(), b"1".to_vec()];
        let names = ["large", "d/empty", "d/one"];
        let mut uploads = Vec::new();
        let mut downloads = Vec::new();
        for (index, (name, data)) in names.into_iter().zip(&data).enumerate() {
            let local = folder.path().join(index.to_string());
            std::fs::write(&local, data).unwrap();
            uploads.push(BucketUpload::new(local, name));
            downloads.push(BucketDownload::new(
                name,
                folder.path().join("down").join(name),
            ));
        }
        bucket.upload_files().files(uploads).send().await.unwrap();
        for (name, data) in names.into_iter().zip(&data) {
            assert!(
                get(&store, name).await == *data,
                "{name}: HfBucket reads other bytes"
            );
        }
        bucket
            .download_files()
            .files(downloads)
            .send()
            .await
            .unwrap();
        for (name, data) in names.into_iter().zip(&data) {
            let local = folder.path().join("down").join(name);
            assert!(
                std::fs::read(local).unwrap() == *data,
                "{name}: other bytes on disk"
            );
        }
    });
}

#[test]
fn listings_copies_and_deletes() {
    own_process::run("listings_copies_and_deletes", async {
        let fixture = Fixture::start().await;
        let (store, bucket) = bucket(&fixture, "listed").await;
        for name in NAMES {
            store.put(&path(name), name.into()).await.unwrap();
        }
        let mut all: Vec<_> = NAMES
            .map(|name| ('f', name.to_owned(), name.len() as u64))
            .into();
        all.sort();
        assert_eq!(tree(&bucket, None).await, all);
        all.retain(|(_, name, _)| name.starts_with("logs"));
        assert_eq!(tree(&bucket, Some("logs")).await, all);
        assert_eq!(tree(&bucket, Some("missing")).await, []);

        let asked = ["logs", "missing", "日本語/🦀"].map(str::to_owned).to_vec();
        let infos = bucket.get_paths_info().paths(asked).send().await.unwrap();
        let mut infos: Vec<_> = infos.into_iter().map(describe).collect();
        infos.sort();
        assert_eq!(
            infos,
            [('f', "logs".into(), 4), ('f', "日本語/🦀".into(), 14)]
        );

        let hash = xet_hash(&bucket, "logs").await;
        let copy = BucketCopyFile {
            path: "copy".into(),
            xet_hash: hash.clone(),
            source_repo_type: BucketCopySourceType::Bucket,
            source_repo_id: bucket.bucket_id(),
            size: Some(4),
            mtime: None,
            content_type: Some("text/plain".into()),
        };
        let add = BucketAddFile {
            path: "added by hash".into(),
            xet_hash: hash,
            size: 4,
            mtime: None,
            content_type: None,
        };
        let batch = bucket
            .batch_operations()
            .copy(vec![copy])
            .add_files(vec![add]);
        batch.send().await.unwrap();
        assert_eq!(get(&store, "copy").await, b"logs");
        assert_eq!(get(&store, "added by hash").await, b"logs");

        bucket
            .delete_files()
            .paths(NAMES.map(str::to_owned).to_vec())
            .send()
            .await
            .unwrap();
        assert_eq!(
            tree(&bucket, None).await,
            [('f', "added by hash".into(), 4), ('f', "copy".into(), 4)]
        );
        store.delete(&path("copy")).await.unwrap();
        let gone = bucket
            .download_file_stream()
            .remote_path("copy")
            .send()
            .await
            .err();
        assert!(
            matches!(gone, Some(HFError::EntryNotFound { .. })),
            "{gone:?}"
        );
    });
}

#[test]
fn several_pages() {
    own_process::run("several_pages", async {
        let fixture = Fixture::start().await;
        let (store, bucket) = bucket(&fixture, "pages").await;
        let names: Vec<_> = (0..1_200).map(|i| format!("many/{i:04}")).collect();
        let files: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), name.as_bytes()))
            .collect();
        upload(&bucket, &files).await;
        let listed: Vec<_> = tree(&bucket, None)
            .await
            .into_iter()
            .map(|entry| entry.1)
            .collect();
        assert_eq!(listed, names);
        let ours: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert_eq!(ours.len(), names.len());
        bucket.delete_files().paths(names).send().await.unwrap();
        assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap(), []);
    });
}

#[test]
fn buckets() {
    own_process::run("buckets", async {
        let fixture = Fixture::start().await;
        let (store, bucket) = bucket(&fixture, "old").await;
        let client = bucket.client().clone();
        store.put(&path("a"), "12345".into()).await.unwrap();

        let create = || client.create_bucket().namespace("my-org").name("old");
        let error = create().send().await.unwrap_err();
        assert!(matches!(error, HFError::Conflict { .. }), "{error:?}");
        create().exist_ok(true).send().await.unwrap();
        let private = client
            .create_bucket()
            .namespace("my-org")
            .name("private")
            .private(true);
        private.send().await.unwrap();

        let info = bucket.info().send().await.unwrap();
        assert_eq!((info.id.as_str(), info.private), ("my-org/old", false));
        assert_eq!((info.size, info.total_files), (5, 1));
        let listing = client.list_buckets().namespace("my-org").send().unwrap();
        let mut ids: Vec<_> = listing
            .map_ok(|info| (info.id, info.private))
            .try_collect()
            .await
            .unwrap();
        ids.sort();
        assert_eq!(
            ids,
            [
                ("my-org/old".into(), false),
                ("my-org/private".into(), true)
            ]
        );

        client
            .move_bucket()
            .from_id("my-org/old")
            .to_id("my-org/new")
            .send()
            .await
            .unwrap();
        assert_eq!(get(&fixture.store("new"), "a").await, b"12345");
        client
            .delete_bucket()
            .bucket_id("my-org/new")
            .send()
            .await
            .unwrap();
        let error = client
            .delete_bucket()
            .bucket_id("my-org/new")
            .send()
            .await
            .unwrap_err();
        assert!(matches!(error, HFError::BucketNotFound { .. }), "{error:?}");
        client
            .delete_bucket()
            .bucket_id("my-org/new")
            .missing_ok(true)
            .send()
            .await
            .unwrap();
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
        let (store, bucket) = bucket(&fixture, "refused").await;
        store.put(&path("a"), "1".into()).await.unwrap();

        let error = bucket
            .get_file_metadata()
            .remote_path("none")
            .send()
            .await
            .unwrap_err();
        assert!(matches!(error, HFError::EntryNotFound { .. }), "{error:?}");
        let nowhere = bucket.client().bucket("my-org", "nowhere");
        let error = nowhere.info().send().await.unwrap_err();
        assert!(matches!(error, HFError::BucketNotFound { .. }), "{error:?}");

        let reader = client(&fixture, "hf_reader").bucket("my-org", "refused");
        assert_eq!(read(&reader, "a").await, b"1");
        let error = reader
            .delete_files()
            .paths(vec!["a".into()])
            .send()
            .await
            .unwrap_err();
        assert!(matches!(error, HFError::Forbidden { .. }), "{error:?}");
        let stranger = client(&fixture, "hf_unknown").bucket("my-org", "refused");
        let error = stranger.info().send().await.unwrap_err();
        assert!(matches!(error, HFError::AuthRequired { .. }), "{error:?}");
        assert_eq!(get(&store, "a").await, b"1");
    });
}
