//! What concurrent calls cost at the Hub, and that sharing requests mixes nothing up.

#![cfg(feature = "local-hub")]

mod support;

use futures::future::{join_all, try_join_all};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use support::Fixture;

const COUNT: usize = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_concurrent_calls_share_a_few_requests() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let paths: Vec<_> = (0..COUNT).map(|n| Path::from(format!("{n}"))).collect();

    let puts = paths
        .iter()
        .map(|path| store.put(path, format!("content of {path}").into()));
    try_join_all(puts).await.unwrap();
    let spent = fixture.hub.requests();
    assert!(spent.api <= 6, "create and a few batches: {spent:?}");

    let before = fixture.hub.requests();
    let gets = paths.iter().map(|path| {
        let store = &store;
        async move { Ok::<_, Error>((path, store.get(path).await?.bytes().await?)) }
    });
    for (path, bytes) in try_join_all(gets).await.unwrap() {
        assert_eq!(bytes, format!("content of {path}"));
    }
    let spent = fixture.hub.requests().since(&before);
    assert!(spent.api <= 6, "a few look-ups: {spent:?}");

    // Found and missing ones together: each caller has its own answer.
    let before = fixture.hub.requests();
    let heads = (0..2 * COUNT).map(|n| {
        let store = &store;
        async move { store.head(&Path::from(format!("{n}"))).await }
    });
    for (n, outcome) in join_all(heads).await.into_iter().enumerate() {
        match outcome {
            Ok(meta) => assert_eq!(
                (n < COUNT, meta.location),
                (true, Path::from(format!("{n}")))
            ),
            Err(error) => assert!(
                n >= COUNT && matches!(error, Error::NotFound { .. }),
                "{error}"
            ),
        }
    }
    let spent = fixture.hub.requests().since(&before);
    assert!(spent.api <= 8, "{spent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_on_one_path_end_as_they_came() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let path = Path::from("x");
    for round in 0..10 {
        let last = format!("last of {round}");
        let (first, deleted, second) = futures::join!(
            store.put(&path, "first".into()),
            store.delete(&path),
            store.put(&path, last.clone().into()),
        );
        first.unwrap();
        deleted.unwrap();
        second.unwrap();
        let read = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(read, last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_lands_whole_or_not_at_all() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    let content = support::noise(5, 200_000);
    let paths: Vec<_> = (0..40).map(|n| Path::from(format!("{n}"))).collect();
    for (n, path) in paths.iter().enumerate() {
        let put = store.put(path, content.clone().into());
        // Polled a few times, more each time, then dropped.
        let mut put = std::pin::pin!(put);
        for _ in 0..n {
            if futures::poll!(put.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // Whatever is still under way goes before this one.
    store.put(&Path::from("end"), "1".into()).await.unwrap();
    for path in &paths {
        match store.get(path).await {
            Ok(found) => assert!(found.bytes().await.unwrap() == content, "{path}"),
            Err(error) => assert!(matches!(error, Error::NotFound { .. }), "{error}"),
        }
    }
}
