//! The same work through each client.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use hf_hub::HFClient;
use hf_hub::buckets::HFBucket;
use hf_hub::repository::AddSource;
use hfbucket::{HfBucket, HfBucketBuilder};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt};
use opendal::options::ListOptions;
use opendal::{Operator, services};
use parking_lot::Mutex;
use xet::xet_session::{
    HeaderMap, Sha256Policy, XetDownloadStreamGroup, XetFileInfo, XetSession, XetSessionBuilder,
};

use crate::hub::Hub;
use crate::measure::sum;

type Objects = Vec<(String, Bytes)>;

/// What every client can do. `None` where it has no such call.
pub trait Client: Send + Sync {
    fn name(&self) -> &'static str;
    fn put(&self, objects: Objects, at_once: usize) -> BoxFuture<'_, ()>;
    /// The sum of all objects' [`sum`]s.
    fn get<'a>(&'a self, paths: &'a [String], at_once: usize) -> BoxFuture<'a, u64>;
    /// As [`get`](Self::get), of contents that the caller knows already.
    fn get_known<'a>(&'a self, _: &'a [String], _: usize) -> Option<BoxFuture<'a, u64>> {
        None
    }
    fn head<'a>(&'a self, _: &'a [String], _: usize) -> Option<BoxFuture<'a, ()>> {
        None
    }
    fn range<'a>(&'a self, _: &'a [String], _: Range<u64>, _: usize) -> Option<BoxFuture<'a, ()>> {
        None
    }
    fn delete<'a>(&'a self, _: &'a [String], _: usize) -> Option<BoxFuture<'a, ()>> {
        None
    }
    fn list<'a>(&'a self, _: &'a str) -> Option<BoxFuture<'a, usize>> {
        None
    }
}

/// Runs a future per item, some at a time, and adds up what they return.
async fn each<I: Send, F: Future<Output = u64> + Send>(
    items: impl IntoIterator<Item = I>,
    at_once: usize,
    run: impl Fn(I) -> F,
) -> u64 {
    stream::iter(items)
        .map(run)
        .buffer_unordered(at_once)
        .fold(0, async |sum: u64, one| sum + one)
        .await
}

/// `HfBucket`, and the versions that its puts returned.
pub struct Ours {
    store: HfBucket,
    versions: Mutex<HashMap<String, String>>,
}

impl Ours {
    pub async fn new(hub: &Hub) -> Self {
        let store = HfBucketBuilder::new()
            .with_url("hf://buckets/my-org/b")
            .with_endpoint(&hub.endpoint)
            .with_token(hub.token.as_str())
            .with_cache_dir(hub.cache.path().join("ours"))
            .with_create_bucket_if_missing(true)
            .build()
            .expect("a store");
        store.create_bucket().await.expect("a bucket");
        Self {
            store,
            versions: Mutex::default(),
        }
    }

    async fn read(&self, path: &str, options: GetOptions) -> u64 {
        let got = self.store.get_opts(&Path::from(path), options).await;
        let mut parts = got.expect("get").into_stream();
        let mut whole = Vec::new();
        while let Some(part) = parts.try_next().await.expect("get") {
            whole.extend_from_slice(&part);
        }
        sum(&whole)
    }
}

impl Client for Ours {
    fn name(&self) -> &'static str {
        "hfbucket"
    }

    fn put(&self, objects: Objects, at_once: usize) -> BoxFuture<'_, ()> {
        each(objects, at_once, async |(path, data)| {
            let to = Path::from(path.as_str());
            let put = self.store.put(&to, data.into()).await.expect("put");
            let version = put.version.expect("a version");
            self.versions.lock().insert(path, version);
            0
        })
        .map(drop)
        .boxed()
    }

    fn get<'a>(&'a self, paths: &'a [String], at_once: usize) -> BoxFuture<'a, u64> {
        each(paths, at_once, async |path| {
            self.read(path, GetOptions::default()).await
        })
        .boxed()
    }

    fn get_known<'a>(&'a self, paths: &'a [String], at_once: usize) -> Option<BoxFuture<'a, u64>> {
        let gets = each(paths, at_once, async |path| {
            let version = self.versions.lock().get(path).cloned();
            let options = GetOptions::default().with_version(version);
            self.read(path, options).await
        });
        Some(gets.boxed())
    }

    fn head<'a>(&'a self, paths: &'a [String], at_once: usize) -> Option<BoxFuture<'a, ()>> {
        let heads = each(paths, at_once, async |path| {
            self.store
                .head(&Path::from(path.as_str()))
                .await
                .expect("head");
            0
        });
        Some(heads.map(drop).boxed())
    }

    fn range<'a>(
        &'a self,
        paths: &'a [String],
        range: Range<u64>,
        at_once: usize,
    ) -> Option<BoxFuture<'a, ()>> {
        let gets = each(paths, at_once, move |path| {
            let range = range.clone();
            async move {
                let path = Path::from(path.as_str());
                let bytes = self.store.get_range(&path, range).await.expect("range");
                assert_eq!(bytes.len(), 4096);
                0
            }
        });
        Some(gets.map(drop).boxed())
    }

    fn delete<'a>(&'a self, paths: &'a [String], _: usize) -> Option<BoxFuture<'a, ()>> {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| Ok(Path::from(path.as_str())))
            .collect();
        let deletes = self.store.delete_stream(stream::iter(paths).boxed());
        Some(
            deletes
                .try_for_each(async |_| Ok(()))
                .map(|deleted| deleted.expect("delete"))
                .boxed(),
        )
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Option<BoxFuture<'a, usize>> {
        let prefix = Path::from(prefix);
        Some(
            async move {
                let listed: Vec<_> = self
                    .store
                    .list(Some(&prefix))
                    .try_collect()
                    .await
                    .expect("list");
                listed.len()
            }
            .boxed(),
        )
    }
}

/// The contents that [`Raw`] wrote, by path.
pub type Hashes = Arc<Mutex<HashMap<String, XetFileInfo>>>;

/// hf-xet alone: bytes to and from the CAS, no bucket. What nobody can be faster than.
pub struct Raw {
    session: XetSession,
    cas: String,
    write: (String, u64),
    downloads: XetDownloadStreamGroup,
    hashes: Hashes,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct CasToken {
    access_token: String,
    exp: u64,
    cas_url: String,
}

impl Raw {
    pub async fn new(hub: &Hub, hashes: &Hashes) -> Self {
        let http = reqwest::Client::new();
        let token = async |access: &str| {
            let url = format!("{}/api/buckets/my-org/b/xet-{access}-token", hub.endpoint);
            let reply = http.get(url).bearer_auth(&hub.token).send().await;
            let reply = reply.and_then(reqwest::Response::error_for_status);
            reply
                .expect("a token")
                .json::<CasToken>()
                .await
                .expect("a token")
        };
        let (read, write) = (token("read").await, token("write").await);
        let session = XetSessionBuilder::new()
            .with_cache_dir(hub.cache.path().join("raw"))
            .build()
            .expect("a session");
        let downloads = session
            .new_download_stream_group()
            .expect("a group")
            .with_endpoint(&read.cas_url)
            .with_token_info(&read.access_token, read.exp)
            .with_token_refresh_url(hub.endpoint.clone(), HeaderMap::new())
            .build()
            .await
            .expect("a group");
        Self {
            session,
            cas: write.cas_url,
            write: (write.access_token, write.exp),
            downloads,
            hashes: Arc::clone(hashes),
        }
    }
}

impl Client for Raw {
    fn name(&self) -> &'static str {
        "hf-xet"
    }

    fn put(&self, objects: Objects, at_once: usize) -> BoxFuture<'_, ()> {
        async move {
            let commit = self
                .session
                .new_upload_commit()
                .expect("a commit")
                .with_endpoint(&self.cas)
                .with_token_info(&self.write.0, self.write.1)
                .with_token_refresh_url(self.cas.clone(), HeaderMap::new())
                .build()
                .await
                .expect("a commit");
            let commit = &commit;
            each(objects, at_once, async |(path, data)| {
                let size = data.len() as u64;
                let upload = commit.upload_stream(None, Sha256Policy::Skip).await;
                let upload = upload.expect("an upload");
                upload.write(data).await.expect("write");
                let done = upload.finish().await.expect("finish");
                let info = XetFileInfo::new(done.xet_info.hash, size);
                self.hashes.lock().insert(path, info);
                0
            })
            .await;
            commit.commit().await.expect("commit");
        }
        .boxed()
    }

    fn get<'a>(&'a self, paths: &'a [String], at_once: usize) -> BoxFuture<'a, u64> {
        each(paths, at_once, async |path| {
            let info = self
                .hashes
                .lock()
                .get(path)
                .cloned()
                .expect("written before");
            let stream = self.downloads.download_stream(info, None).await;
            let mut stream = stream.expect("a download");
            let mut whole = Vec::new();
            while let Some(part) = stream.next().await.expect("get") {
                whole.extend_from_slice(&part);
            }
            sum(&whole)
        })
        .boxed()
    }
}

/// OpenDAL's own hf service.
pub struct OpenDal(Operator);

impl OpenDal {
    pub async fn new(hub: &Hub) -> Self {
        opendal::install_default();
        let service = services::Hf::default()
            .repo_type("bucket")
            .repo_id("my-org/b")
            .endpoint(&hub.endpoint)
            .token(&hub.token);
        Self(Operator::new(service).expect("an operator"))
    }
}

impl Client for OpenDal {
    fn name(&self) -> &'static str {
        "OpenDAL hf"
    }

    fn put(&self, objects: Objects, at_once: usize) -> BoxFuture<'_, ()> {
        each(objects, at_once, async |(path, data)| {
            self.0.write(&path, data).await.expect("write");
            0
        })
        .map(drop)
        .boxed()
    }

    fn get<'a>(&'a self, paths: &'a [String], at_once: usize) -> BoxFuture<'a, u64> {
        each(paths, at_once, async |path| {
            sum(&self.0.read(path).await.expect("read").to_bytes())
        })
        .boxed()
    }

    fn head<'a>(&'a self, paths: &'a [String], at_once: usize) -> Option<BoxFuture<'a, ()>> {
        let heads = each(paths, at_once, async |path| {
            self.0.stat(path).await.expect("stat");
            0
        });
        Some(heads.map(drop).boxed())
    }

    fn range<'a>(
        &'a self,
        paths: &'a [String],
        range: Range<u64>,
        at_once: usize,
    ) -> Option<BoxFuture<'a, ()>> {
        let gets = each(paths, at_once, move |path| {
            let range = range.clone();
            async move {
                let read = self.0.read_with(path).range(range).await.expect("range");
                assert_eq!(read.len(), 4096);
                0
            }
        });
        Some(gets.map(drop).boxed())
    }

    fn delete<'a>(&'a self, paths: &'a [String], _: usize) -> Option<BoxFuture<'a, ()>> {
        let paths = paths.to_vec();
        Some(async move { self.0.delete_iter(paths).await.expect("delete") }.boxed())
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Option<BoxFuture<'a, usize>> {
        let options = ListOptions {
            recursive: true,
            ..ListOptions::default()
        };
        Some(
            async move {
                let listed = self.0.list_options(prefix, options).await.expect("list");
                listed
                    .iter()
                    .filter(|entry| entry.metadata().is_file())
                    .count()
            }
            .boxed(),
        )
    }
}

/// The `hf-hub` crate.
pub struct HfHub(HFBucket);

impl HfHub {
    pub async fn new(hub: &Hub) -> Self {
        let client = HFClient::builder()
            .endpoint(hub.endpoint.clone())
            .token(hub.token.clone())
            .build()
            .expect("a client");
        Self(client.bucket("my-org", "b"))
    }
}

impl Client for HfHub {
    fn name(&self) -> &'static str {
        "hf-hub"
    }

    fn put(&self, objects: Objects, at_once: usize) -> BoxFuture<'_, ()> {
        each(objects, at_once, async |(path, data)| {
            let files = vec![(path, AddSource::bytes(data.to_vec()))];
            let upload = self.0.upload_source_files().files(files).send();
            upload.await.expect("upload");
            0
        })
        .map(drop)
        .boxed()
    }

    fn get<'a>(&'a self, paths: &'a [String], at_once: usize) -> BoxFuture<'a, u64> {
        each(paths, at_once, async |path| {
            let download = self.0.download_file_stream().remote_path(path.as_str());
            let (_, mut parts) = download.send().await.expect("download");
            let mut whole = Vec::new();
            while let Some(part) = parts.try_next().await.expect("download") {
                whole.extend_from_slice(&part);
            }
            sum(&whole)
        })
        .boxed()
    }

    fn head<'a>(&'a self, paths: &'a [String], at_once: usize) -> Option<BoxFuture<'a, ()>> {
        let heads = each(paths, at_once, async |path| {
            let infos = self.0.get_paths_info().paths(vec![path.clone()]).send();
            assert_eq!(infos.await.expect("info").len(), 1);
            0
        });
        Some(heads.map(drop).boxed())
    }

    fn delete<'a>(&'a self, paths: &'a [String], _: usize) -> Option<BoxFuture<'a, ()>> {
        let paths = paths.to_vec();
        Some(
            async move {
                let delete = self.0.delete_files().paths(paths).send();
                delete.await.expect("delete");
            }
            .boxed(),
        )
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Option<BoxFuture<'a, usize>> {
        Some(
            async move {
                let listing = self.0.list_tree().prefix(prefix).recursive(true).send();
                let entries: Vec<_> = listing.expect("list").try_collect().await.expect("list");
                entries.len()
            }
            .boxed(),
        )
    }
}
