//! A fresh store per test, for each kind of store.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::any::Any;
use std::sync::Arc;

use futures::TryStreamExt;
use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use crate::l2_faults::FaultStore;

/// A store, the same with faults, and what keeps it alive.
pub struct Harness {
    /// The store as others see it, without faults.
    pub store: Arc<dyn ObjectStore>,
    /// What adapters work on.
    pub faults: Arc<FaultStore>,
    _alive: Box<dyn Any + Send>,
}

impl Harness {
    pub fn new(store: Arc<dyn ObjectStore>, alive: impl Any + Send) -> Self {
        Self {
            faults: Arc::new(FaultStore::new(Arc::clone(&store))),
            store,
            _alive: Box::new(alive),
        }
    }

    /// An adapter with the prefix `pool/a b` and the given fields.
    pub async fn adapter(&self, fields: Value) -> L2Adapter {
        let mut config = json!({"bucket_handle": "hf://buckets/o/b/pool/a b"});
        let (Value::Object(config), Value::Object(fields)) = (&mut config, fields) else {
            panic!("fields are an object");
        };
        config.extend(fields);
        let config = L2Config::from_json(&serde_json::to_string(config).unwrap()).unwrap();
        let store = Arc::clone(&self.faults);
        L2Adapter::with_store(store, config).await.unwrap()
    }

    /// What the store holds below the prefix: paths and sizes, sorted.
    pub async fn list(&self) -> Vec<(Path, u64)> {
        let prefix = Path::parse("pool/a b").unwrap();
        let mut found: Vec<_> = self
            .store
            .list(Some(&prefix))
            .map_ok(|meta| (meta.location, meta.size))
            .try_collect()
            .await
            .unwrap();
        found.sort();
        found
    }

    /// Whether the store gives contents a name by which they can be read.
    pub async fn names_contents(&self, adapter: &L2Adapter, key: &ObjectKey) -> bool {
        let path = adapter.object_path(key).unwrap();
        self.store.head(&path).await.unwrap().version.is_some()
    }

    /// Another writer stores an object.
    pub async fn put(&self, adapter: &L2Adapter, key: &ObjectKey, bytes: Vec<u8>) {
        let path = adapter.object_path(key).unwrap();
        self.store.put(&path, bytes.into()).await.unwrap();
    }

    /// Another writer deletes an object.
    pub async fn remove(&self, adapter: &L2Adapter, key: &ObjectKey) {
        let path = adapter.object_path(key).unwrap();
        self.store.delete(&path).await.unwrap();
    }
}

pub async fn in_memory() -> Harness {
    Harness::new(Arc::new(InMemory::new()), ())
}

pub async fn files() -> Harness {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    Harness::new(Arc::new(store), directory)
}

/// A bucket `bucket` on an S3 server in this process, over a directory.
pub async fn s3() -> Harness {
    let server = S3Server::start().await;
    let store = AmazonS3Builder::new()
        .with_endpoint(&server.endpoint)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name("bucket")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .build()
        .unwrap();
    Harness::new(Arc::new(store), server)
}

/// Serves one bucket, `bucket`, to the access key `key` with the secret `secret`.
pub struct S3Server {
    pub endpoint: String,
    accepting: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl S3Server {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("bucket")).unwrap();
        let files = s3s_fs::FileSystem::new(directory.path()).unwrap();
        let mut builder = s3s::service::S3ServiceBuilder::new(files);
        builder.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            accepting: tokio::spawn(accept(listener, builder.build())),
            _directory: directory,
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, service: s3s::service::S3Service) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let service = service.clone();
        connections.spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            // A client that hangs up is no failure of the server.
            let _ = connection.await;
        });
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A bucket on a hub in this process.
#[cfg(feature = "local-hub")]
pub async fn hf_bucket() -> Harness {
    let fixture = crate::support::Fixture::start().await;
    Harness::new(Arc::new(fixture.store("b")), fixture)
}
