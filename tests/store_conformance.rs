//! `object_store`'s own suite, on a bucket and on a prefix in one.

#![cfg(feature = "local-hub")]

mod support;

use object_store::integration;
use support::Fixture;

/// All of the suite but what needs conditional writes, on a store that is empty.
async fn conforms(rest: &str) {
    let fixture = Fixture::start().await;
    let store = fixture.store(rest);
    integration::put_get_delete_list(&store).await;
    integration::put_get_attributes(&store).await;
    integration::get_opts(&store).await;
    integration::stream_get(&store).await;
    integration::list_uses_directories_correctly(&store).await;
    integration::list_with_delimiter(&store).await;
    integration::list_with_offset_exclusivity(&store).await;
    integration::rename_and_copy(&store).await;
    integration::copy_rename_nonexistent_object(&store).await;
    integration::multipart_race_condition(&store, true).await;
    integration::multipart_out_of_order(&store).await;
    let location = object_store::path::Path::from("not/there");
    let error = integration::get_nonexistent_object(&store, Some(location)).await;
    assert!(
        matches!(error.unwrap_err(), object_store::Error::NotFound { .. }),
        "a missing object is NotFound"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_conforms() {
    conforms("conformance").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_conforms() {
    conforms("conformance/deep/er prefix").await;
}
