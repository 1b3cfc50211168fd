//! What concurrent calls cost at the Hub, and that sharing requests mixes nothing up.

#![cfg(feature = "local-hub")]

mod support;

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use hfbucket::local_hub::Fault;
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
    // How many depends on how the threads take turns; alone each would cost a thousand.
    assert!(spent.api <= 20, "create and a few batches: {spent:?}");

    let before = fixture.hub.requests();
    let gets = paths.iter().map(|path| {
        let store = &store;
        async move { Ok::<_, Error>((path, store.get(path).await?.bytes().await?)) }
    });
    for (path, bytes) in try_join_all(gets).await.unwrap() {
        assert_eq!(bytes, format!("content of {path}"));
    }
    let spent = fixture.hub.requests().since(&before);
    assert!(spent.api <= 20, "a few look-ups: {spent:?}");

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
    assert!(spent.api <= 20, "{spent:?}");
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

/// A put that is dropped while its batch is on the way lands, and what comes after it wins.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_on_the_way_lands_whole() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    store.put(&Path::from("first"), "1".into()).await.unwrap();
    let content = support::noise(5, 200_000);
    let batches = || {
        fixture
            .hub
            .requests()
            .route("POST /api/buckets/{ns}/{name}/batch")
    };
    for overwrite in [false, true] {
        let path = Path::from(format!("dropped-{overwrite}"));
        let before = batches();
        let slow = Fault::delay(Duration::from_millis(300)).on_route("batch");
        fixture.hub.inject(slow);
        {
            let mut put = std::pin::pin!(store.put(&path, content.clone().into()));
            while batches() == before {
                assert!(futures::poll!(put.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
        }
        assert!(
            matches!(store.head(&path).await, Err(Error::NotFound { .. })),
            "on the way"
        );
        if overwrite {
            store.put(&path, "later".into()).await.unwrap();
        } else {
            // Goes after whatever is on the way.
            store.put(&Path::from("other"), "1".into()).await.unwrap();
        }
        let read = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(
            read == if overwrite {
                b"later".to_vec()
            } else {
                content.clone()
            }
        );
    }
}

/// One that is dropped before its turn is not done at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_in_the_queue_is_not_done() {
    let fixture = Fixture::start().await;
    let store = fixture.store("b");
    store.put(&Path::from("first"), "1".into()).await.unwrap();
    let slow = Fault::delay(Duration::from_millis(300)).on_route("batch");
    fixture.hub.inject(slow);
    let (busy, queued) = (Path::from("busy"), Path::from("queued"));
    let mut under_way = std::pin::pin!(store.put(&busy, "1".into()));
    while fixture.hub.pending_faults() > 0 {
        assert!(futures::poll!(under_way.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    {
        let mut dropped = std::pin::pin!(store.put(&queued, "2".into()));
        assert!(futures::poll!(dropped.as_mut()).is_pending());
    }
    under_way.await.unwrap();
    store.put(&Path::from("end"), "1".into()).await.unwrap();
    assert!(matches!(
        store.head(&queued).await,
        Err(Error::NotFound { .. })
    ));
}
