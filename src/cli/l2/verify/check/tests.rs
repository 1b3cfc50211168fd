use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use hfbucket::l2::L2Config;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use tempfile::TempDir;

use super::*;

struct Pool {
    dir: TempDir,
    adapter: L2Adapter,
}

impl Pool {
    /// Three objects of 1000 bytes, in files.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/p", dir.path().display());
        let json = serde_json::json!({"type": "object_store", "url": url});
        let config = L2Config::from_json(&json.to_string()).unwrap();
        let adapter = L2Adapter::open(config).await.unwrap();
        let entries = (0..3).map(|n| (key(n), Bytes::from(vec![n; 1000])));
        assert!(adapter.store(entries.collect()).await.is_ok());
        // The listing that knows nothing but the listing.
        let adapter = L2Adapter::open(adapter.config().clone()).await.unwrap();
        Self { dir, adapter }
    }

    fn file(&self, n: u8) -> std::path::PathBuf {
        let name = key(n).encoded_name(Default::default()).unwrap();
        self.dir.path().join("p").join(name)
    }

    async fn listed(&self) -> Vec<KeyEntry> {
        let page = self.adapter.list_keys(None, 10, None).await.unwrap();
        let mut entries = page.entries;
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries
    }

    async fn check(&self, entry: KeyEntry) -> Option<Finding> {
        let checker = Arc::new(Checker::new(self.adapter.clone()));
        checker
            .check(entry)
            .await
            .unwrap_or_else(|_| panic!("a verdict"))
    }
}

fn key(n: u8) -> ObjectKey {
    ObjectKey::new("m", 1, [n]).unwrap()
}

#[tokio::test]
async fn what_is_well_passes() {
    let pool = Pool::new().await;
    for entry in pool.listed().await {
        assert!(pool.check(entry).await.is_none());
    }
}

#[tokio::test]
async fn an_object_cut_short_after_the_listing_is_a_failure() {
    let pool = Pool::new().await;
    let listed = pool.listed().await;
    std::fs::write(pool.file(1), [1; 400]).unwrap();
    let finding = pool.check(listed[1].clone()).await.unwrap();
    assert_eq!(finding.kind, Kind::Size);
    assert!(
        finding
            .detail
            .starts_with("listed with 1000 bytes, has 400"),
        "{}",
        finding.detail
    );
    assert!(pool.check(listed[0].clone()).await.is_none());
}

#[tokio::test]
async fn an_object_deleted_after_the_listing_is_gone_and_no_failure() {
    let pool = Pool::new().await;
    let listed = pool.listed().await;
    std::fs::remove_file(pool.file(2)).unwrap();
    let finding = pool.check(listed[2].clone()).await.unwrap();
    assert_eq!(finding.kind, Kind::Gone);
    assert!(!finding.kind.is_failure());
}

#[tokio::test]
async fn a_key_that_a_lookup_does_not_see_is_a_failure() {
    let pool = Pool::new().await;
    let listed = pool.listed().await;
    let hidden = pool.dir.path().join("hidden");
    std::fs::rename(pool.file(0), &hidden).unwrap();
    // A miss that the adapter believes for a while.
    assert_eq!(pool.adapter.lookup_and_lock(&[key(0)]).await.hits(), 0);
    std::fs::rename(&hidden, pool.file(0)).unwrap();
    let finding = pool.check(listed[0].clone()).await.unwrap();
    assert_eq!(finding.kind, Kind::Lookup);
    assert_eq!(finding.detail, "the store has 1000 bytes of it");
}

/// Names a version of each object, and gives other bytes with each read of one.
#[derive(Debug)]
struct Fickle {
    inner: InMemory,
    reads: AtomicU64,
    /// Whether it is a new version each time it is asked.
    is_rewritten: bool,
    asked: AtomicU64,
}

impl Fickle {
    async fn check(is_rewritten: bool) -> Finding {
        let store = Arc::new(Self {
            inner: InMemory::new(),
            reads: AtomicU64::new(0),
            is_rewritten,
            asked: AtomicU64::new(0),
        });
        let json = r#"{"type": "object_store", "url": "memory:///"}"#;
        let config = L2Config::from_json(json).unwrap();
        let adapter = L2Adapter::with_store(store.clone(), config).await.unwrap();
        let path = adapter.object_path(&key(1)).unwrap();
        store.inner.put(&path, "12345".into()).await.unwrap();
        let page = adapter.list_keys(None, 10, None).await.unwrap();
        let checker = Arc::new(Checker::new(adapter));
        let checked = checker.check(page.entries[0].clone()).await;
        checked.unwrap_or_else(|_| panic!("a verdict")).unwrap()
    }
}

impl std::fmt::Display for Fickle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fickle")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Fickle {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let plain = GetOptions::new().with_head(is_head);
        let mut found = self.inner.get_opts(location, plain).await?;
        let version = match is_head && self.is_rewritten {
            true => self.asked.fetch_add(1, Ordering::SeqCst),
            false => 0,
        };
        found.meta.version = Some(format!("v{version}"));
        if !is_head {
            let read = self.reads.fetch_add(1, Ordering::SeqCst);
            let bytes = Bytes::from(format!("{read:05}"));
            found.payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
        }
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn two_contents_of_one_version_are_a_failure() {
    let finding = Fickle::check(false).await;
    assert_eq!(finding.kind, Kind::Version);
    assert_eq!(
        finding.detail,
        "a second read of version v0 gave other bytes"
    );
}

#[tokio::test]
async fn an_object_replaced_while_it_is_read_is_no_failure() {
    let finding = Fickle::check(true).await;
    assert_eq!(finding.kind, Kind::Changed);
    assert!(!finding.kind.is_failure());
}
