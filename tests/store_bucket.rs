//! Buckets themselves, and whose token may do what.

#![cfg(feature = "local-hub")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use hfbucket::local_hub::{LocalHub, TokenGrant};
use hfbucket::{HfToken, HfTokenProvider};
use object_store::path::Path;
use object_store::{CredentialProvider, Error, ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use support::Fixture;

async fn with_several_tokens() -> Fixture {
    let hub = LocalHub::builder()
        .with_token(TokenGrant::new("hf_owner", "alice").owner_of("my-org"))
        .with_token(
            TokenGrant::new("hf_reader", "bob")
                .owner_of("my-org")
                .read_only(),
        )
        .with_token(TokenGrant::new("hf_stranger", "carol"))
        .start()
        .await
        .unwrap();
    Fixture::with_hub(hub)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_made_described_and_deleted() {
    let fixture = Fixture::start().await;
    let store = fixture
        .builder("b/some/prefix")
        .with_private(true)
        .build()
        .unwrap();
    assert_eq!(store.whoami().await.unwrap(), ["local", "my-org"]);
    assert!(matches!(
        store.bucket_info().await,
        Err(Error::NotFound { .. })
    ));
    assert!(store.create_bucket().await.unwrap());
    assert!(!store.create_bucket().await.unwrap());
    let empty = store.bucket_info().await.unwrap();
    assert_eq!((empty.id.as_str(), empty.private), ("my-org/b", true));
    assert_eq!((empty.size, empty.objects), (0, 0));
    store.put(&Path::from("x"), "12345".into()).await.unwrap();
    let full = store.bucket_info().await.unwrap();
    assert_eq!((full.size, full.objects), (5, 1));
    assert!(full.updated_at > empty.updated_at);
    store.delete_bucket().await.unwrap();
    assert!(matches!(
        store.delete_bucket().await,
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        store.head(&Path::from("x")).await,
        Err(Error::NotFound { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_write_makes_the_bucket_and_only_if_asked() {
    let fixture = Fixture::start().await;
    let path = Path::from("x");
    let strict = fixture
        .builder("b")
        .with_create_bucket_if_missing(false)
        .build()
        .unwrap();
    let error = strict.put(&path, "1".into()).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert!(error.to_string().contains("my-org/b"), "{error}");
    let error = strict.list(None).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");

    let store = fixture.store("b");
    assert!(
        store
            .list(None)
            .try_collect::<Vec<_>>()
            .await
            .unwrap()
            .is_empty()
    );
    assert!(matches!(
        store.head(&path).await,
        Err(Error::NotFound { .. })
    ));
    let before = fixture.hub.requests();
    store.put(&path, "1".into()).await.unwrap();
    store.put(&path, "2".into()).await.unwrap();
    let spent = fixture.hub.requests().since(&before);
    assert_eq!(
        spent.route("POST /api/buckets/{ns}/{name}"),
        1,
        "asked once"
    );
    assert_eq!(strict.get(&path).await.unwrap().bytes().await.unwrap(), "2");

    // Deleted under its feet: one write finds out, the next makes it anew.
    strict.delete_bucket().await.unwrap();
    let error = store.put(&path, "3".into()).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    store.put(&path, "4".into()).await.unwrap();
    assert_eq!(strict.get(&path).await.unwrap().bytes().await.unwrap(), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_refused_by_name() {
    let fixture = with_several_tokens().await;
    let path = Path::from("x");
    let owner = fixture.builder("b").with_private(true).build().unwrap();
    owner.put(&path, "1".into()).await.unwrap();
    let with = |token: &str| fixture.builder("b").with_token(token).build().unwrap();

    let reader = with("hf_reader");
    assert_eq!(reader.get(&path).await.unwrap().bytes().await.unwrap(), "1");
    for error in [
        reader.put(&path, "2".into()).await.unwrap_err(),
        reader.delete(&path).await.unwrap_err(),
        reader.copy(&path, &Path::from("y")).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
    }
    // To others a private bucket is not there; who has no token is not told which it is.
    let error = with("hf_stranger").get(&path).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    let error = with("hf_nonsense").get(&path).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert!(!error.to_string().contains("hf_nonsense"), "{error}");
    let anonymous = hfbucket::HfBucketBuilder::new()
        .with_url("hf://buckets/my-org/b")
        .with_endpoint(fixture.hub.endpoint())
        .build()
        .unwrap();
    let error = anonymous.get(&path).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert!(
        error.to_string().contains("HF_TOKEN"),
        "says what to do: {error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_bucket_is_read_without_a_token() {
    let fixture = Fixture::start().await;
    let path = Path::from("x");
    fixture.store("b").put(&path, "1".into()).await.unwrap();
    let anonymous = hfbucket::HfBucketBuilder::new()
        .with_url("hf://buckets/my-org/b")
        .with_endpoint(fixture.hub.endpoint())
        .build()
        .unwrap();
    assert_eq!(
        anonymous.get(&path).await.unwrap().bytes().await.unwrap(),
        "1"
    );
}

/// Hands out one token after the other.
#[derive(Debug)]
struct Rotating(Mutex<Vec<&'static str>>);

#[async_trait]
impl CredentialProvider for Rotating {
    type Credential = HfToken;

    async fn get_credential(&self) -> object_store::Result<Arc<HfToken>> {
        let mut tokens = self.0.lock();
        let token = match tokens.len() {
            1 => tokens[0],
            _ => tokens.remove(0),
        };
        Ok(Arc::new(HfToken::new(token)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_rotates_is_asked_again_after_a_refusal() {
    let fixture = with_several_tokens().await;
    let path = Path::from("x");
    let owner = fixture.store("b");
    owner.put(&path, "1".into()).await.unwrap();
    let tokens = vec!["hf_expired", "hf_owner"];
    let provider: HfTokenProvider = Arc::new(Rotating(Mutex::new(tokens)));
    let store = fixture
        .builder("b")
        .with_token_provider(provider)
        .build()
        .unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_and_without_xet_say_so_before_any_request() {
    let fixture = Fixture::start().await;
    let path = Path::from("x");
    fixture.store("b").put(&path, "1".into()).await.unwrap();
    let before = fixture.hub.requests();
    let key = hfbucket::HfBucketConfigKey::Offline;
    let offline = fixture
        .builder("b")
        .with_config(key, "true")
        .build()
        .unwrap();
    let error = offline.get(&path).await.unwrap_err();
    assert!(error.to_string().contains("HF_HUB_OFFLINE"), "{error}");
    let key = hfbucket::HfBucketConfigKey::DisableXet;
    let plain = fixture
        .builder("b")
        .with_config(key, "true")
        .build()
        .unwrap();
    let error = plain.put(&path, "2".into()).await.unwrap_err();
    assert!(error.to_string().contains("HF_HUB_DISABLE_XET"), "{error}");
    assert_eq!(fixture.hub.requests(), before);
    assert_eq!(plain.get(&path).await.unwrap().bytes().await.unwrap(), "1");
    assert!(fixture.hub.requests().since(&before).resolver > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_kept_until_they_expire() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let path = Path::from("x");
    store.put(&path, "1".into()).await.unwrap();
    for _ in 0..5 {
        store.put(&path, "2".into()).await.unwrap();
        store.get(&path).await.unwrap().bytes().await.unwrap();
    }
    assert_eq!(fixture.hub.requests().token, 2, "one to read, one to write");
    // The store's own clock has not moved: it finds out by the refusal.
    fixture.hub.advance(Duration::from_secs(3600));
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "2");
    store.put(&path, "3".into()).await.unwrap();
    assert_eq!(fixture.hub.requests().token, 4);
}
