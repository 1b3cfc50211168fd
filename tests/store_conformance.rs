//! `object_store`'s own suite, on a bucket and on a prefix in one.

#![cfg(feature = "local-hub")]

mod support;

use object_store::path::Path;
use object_store::{Error, integration};
use support::Fixture;

/// All of the suite but what needs conditional writes; each function on a bucket that is empty. The
/// halves of `copy_rename_nonexistent_object` that need none are in `store_objects.rs`.
async fn conforms(prefix: &str) {
    let fixture = Fixture::start().await;
    let empty = |bucket: &str| fixture.store(&format!("{bucket}/{prefix}"));
    integration::put_get_delete_list(&empty("put-get-delete-list")).await;
    integration::put_get_attributes(&empty("attributes")).await;
    integration::get_opts(&empty("get-opts")).await;
    integration::stream_get(&empty("stream-get")).await;
    integration::list_uses_directories_correctly(&empty("directories")).await;
    integration::list_with_delimiter(&empty("delimiter")).await;
    integration::list_with_offset_exclusivity(&empty("offset")).await;
    integration::rename_and_copy(&empty("rename-and-copy")).await;
    integration::multipart_race_condition(&empty("race"), true).await;
    integration::multipart_out_of_order(&empty("out-of-order")).await;
    let location = Path::from("not/there");
    let error = integration::get_nonexistent_object(&empty("missing"), Some(location))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_conforms() {
    conforms("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_conforms() {
    conforms("deep/er prefix").await;
}
