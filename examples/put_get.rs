//! A bucket as an object store, on a local Hub: `cargo run --features local-hub --example put_get`.

use futures::TryStreamExt;
use hfbucket::HfBucketBuilder;
use hfbucket::local_hub::LocalHub;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hub = LocalHub::builder().in_memory().start().await?;
    let scratch = tempfile::tempdir()?;
    // Against the Hub itself: HfBucketBuilder::from_env().with_url("hf://buckets/my-org/data").
    let store = HfBucketBuilder::new()
        .with_url("hf://buckets/my-org/data/2026")
        .with_endpoint(hub.endpoint())
        .with_token(hub.token())
        .with_cache_dir(scratch.path())
        .with_create_bucket_if_missing(true)
        .build()?;

    // Made together, these three share one commit.
    let paths = ["a.txt", "b.txt", "dir/c.txt"].map(Path::from);
    futures::future::try_join_all(paths.iter().map(|path| {
        let content = format!("this is {path}");
        store.put(path, content.into())
    }))
    .await?;

    store.copy(&paths[0], &Path::from("dir/copy.txt")).await?;
    let mut objects: Vec<_> = store.list(None).try_collect().await?;
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    for meta in &objects {
        println!("{:>3} bytes  {}", meta.size, meta.location);
    }
    let content = store
        .get(&Path::from("dir/copy.txt"))
        .await?
        .bytes()
        .await?;
    assert_eq!(content, "this is a.txt");
    println!("requests: {:?}", hub.requests());
    hub.shutdown().await;
    Ok(())
}
