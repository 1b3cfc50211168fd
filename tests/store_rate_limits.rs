//! The Hub's rate limit is never hit: stores count what they may still ask, together.

#![cfg(feature = "local-hub")]

mod support;

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use hfbucket::local_hub::{LocalHub, Plan};
use hfbucket::{HfBucket, HfBucketBuilder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use support::{Fixture, quick_retries};

async fn hub_with(plan: Plan, window: Duration) -> Fixture {
    let hub = LocalHub::builder()
        .with_plan(plan)
        .with_rate_limit_window(window)
        .start()
        .await
        .unwrap();
    Fixture::with_hub(hub)
}

fn custom(api: u64) -> Plan {
    Plan::Custom {
        api,
        resolvers: 1000,
    }
}

/// A store whose calls have this much time.
fn patient(fixture: &Fixture, seconds: f64) -> HfBucket {
    let retry = RetryConfig {
        retry_timeout: Duration::from_secs_f64(seconds),
        ..quick_retries()
    };
    fixture.builder("b").with_retry(retry).build().unwrap()
}

fn path(n: usize) -> Path {
    Path::from(format!("small/{n}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_stores_and_loads_fit_into_a_free_plan() {
    let fixture = hub_with(Plan::Free, Duration::from_secs(300)).await;
    let store = fixture.store("b");
    let content = |n: usize| format!("content of {n}");
    stream::iter(0..2000)
        .map(|n| {
            let store = &store;
            async move { store.put(&path(n), content(n).into()).await }
        })
        .buffer_unordered(64)
        .try_for_each(async |_| Ok(()))
        .await
        .unwrap();
    let stored = fixture.hub.requests();
    stream::iter(0..2000)
        .map(|n| {
            let store = &store;
            async move {
                let read = store.get(&path(n)).await?.bytes().await?;
                assert_eq!(read, content(n));
                Ok::<_, object_store::Error>(())
            }
        })
        .buffer_unordered(64)
        .try_for_each(async |()| Ok(()))
        .await
        .unwrap();
    let all = fixture.hub.requests();
    assert_eq!(all.limited, 0);
    // A commit for each 64 or so, and as many look-ups as the loads come in groups.
    assert!(stored.api <= 120, "{stored:?}");
    assert!(all.api + all.token + all.resolver < 1000, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_window_holds_waits_for_the_next_one() {
    let fixture = hub_with(custom(20), Duration::from_secs(1)).await;
    let store = patient(&fixture, 60.0);
    store.put(&path(0), "x".into()).await.unwrap();
    for _ in 0..50 {
        assert_eq!(store.head(&path(0)).await.unwrap().size, 1);
    }
    let spent = fixture.hub.requests();
    assert!(spent.api >= 50, "{spent:?}");
    assert_eq!(spent.limited, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_of_one_token_share_what_is_left() {
    let fixture = hub_with(custom(40), Duration::from_secs(300)).await;
    let (one, other) = (patient(&fixture, 0.2), patient(&fixture, 0.2));
    one.put(&path(0), "x".into()).await.unwrap();
    let mut heads = 0;
    let error = loop {
        let store = if heads % 2 == 0 { &one } else { &other };
        match store.head(&path(0)).await {
            Ok(_) => heads += 1,
            Err(error) => break error,
        }
        assert!(heads <= 40);
    };
    // All that the plan allows, and nothing beyond, was sent.
    let spent = fixture.hub.requests();
    assert_eq!(
        (spent.api + spent.token, spent.limited),
        (40, 0),
        "{spent:?}"
    );
    let text = error.to_string();
    for part in [
        "my-org/b",
        "nothing was sent: the Hub allows no more 'api' requests for now",
        "(limit of 'api': 40 requests per 300 s)",
        "the next may go in ",
        "only 0.2 s are left",
        "use a token of a higher plan",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Whoever asks now learns it at once, from either store and for writes too.
    let started = Instant::now();
    let put = other.put(&path(1), "y".into()).await.unwrap_err();
    assert!(put.to_string().contains("nothing was sent"), "{put}");
    let listed = one.list(None).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(listed.to_string().contains("nothing was sent"), "{listed}");
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "no wait for the window's end"
    );
    assert_eq!(fixture.hub.requests(), spent);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_token_has_a_budget_of_its_own() {
    let fixture = hub_with(custom(10), Duration::from_secs(300)).await;
    let store = patient(&fixture, 0.2);
    store.put(&path(0), "x".into()).await.unwrap();
    while store.head(&path(0)).await.is_ok() {}
    let anonymous = HfBucketBuilder::new()
        .with_url("hf://buckets/my-org/b")
        .with_endpoint(fixture.hub.endpoint());
    let anonymous = anonymous.build().unwrap();
    assert_eq!(anonymous.head(&path(0)).await.unwrap().size, 1);
    assert_eq!(fixture.hub.requests().limited, 0);
}
