//! What an adapter does as time passes, on a clock that only the test moves.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[path = "support/l2_helpers.rs"]
mod l2_helpers;
#[path = "support/l2_listed.rs"]
mod l2_listed;
#[cfg(feature = "local-hub")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hfbucket::ChangeMark;
use hfbucket::l2::{L2Adapter, L2Config, RecoveryPhase};
use l2_backends::Harness;
use l2_faults::{Fault, Op};
use l2_helpers::{GIB, assert_counted, find, keys, store, used};
use object_store::ObjectStore;
use serde_json::json;
use tokio::time::{Instant, advance};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_lost_unlock_pins_a_key_no_longer_than_its_lease() {
    let harness = l2_backends::in_memory().await;
    let adapter = harness
        .adapter(json!({"lock_ttl_secs": LEASE.as_secs()}))
        .await;
    let keys = keys(2);
    store(&adapter, &keys, 10).await;
    adapter.lookup_and_lock(&keys).await.into_guard().detach();
    advance(LEASE / 2).await;
    // Another lookup of one of them begins its lease anew.
    let held = adapter.lookup_and_lock(&keys[1..]).await;
    advance(LEASE / 2).await;
    tokio::task::yield_now().await;
    assert_eq!(adapter.status().locked_key_count, 1);
    assert_eq!(adapter.status().totals.lapsed_locks, 1);
    assert!(adapter.delete(&keys[..1]).await.is_ok());
    assert!(!adapter.delete(&keys[1..]).await.is_ok());
    // Who works for longer keeps the lease.
    assert!(held.guard.renew());
    advance(LEASE - Duration::from_millis(1)).await;
    assert_eq!(adapter.status().locked_key_count, 1);
    advance(Duration::from_millis(2)).await;
    assert!(!held.guard.renew(), "too late");
    assert!(adapter.delete(&keys[1..]).await.is_ok());
    // The late guard ends no newer lock.
    store(&adapter, &keys[1..], 10).await;
    let newer = adapter.lookup_and_lock(&keys[1..]).await;
    drop(held);
    assert_eq!(adapter.status().locked_key_count, 1);
    drop(newer);
    assert_eq!(adapter.status().locked_key_count, 0);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_goes_on_when_a_lease_ends() {
    let harness = l2_backends::in_memory().await;
    let adapter = harness
        .adapter(json!({
            "max_capacity_gb": 1000.0 / GIB,
            "lock_ttl_secs": LEASE.as_secs(),
            "eviction": {"eviction_policy": "LRU"},
        }))
        .await;
    adapter.recovered().await.unwrap();
    let keys = keys(10);
    store(&adapter, &keys[..5], 100).await;
    adapter
        .lookup_and_lock(&keys[..5])
        .await
        .into_guard()
        .detach();
    store(&adapter, &keys[..5], 200).await;
    adapter.eviction_idle().await;
    assert_eq!(used(&adapter), 1000, "all are locked");
    advance(LEASE).await;
    while !adapter.status().is_evicting && used(&adapter) == 1000 {
        tokio::task::yield_now().await;
    }
    adapter.eviction_idle().await;
    assert!(used(&adapter) < 800);
    assert_counted(&harness, &adapter).await;
}

#[tokio::test(start_paused = true)]
async fn misses_have_a_lifetime_of_their_own() {
    let harness = l2_backends::in_memory().await;
    let adapter = harness
        .adapter(json!({"metadata_cache_ttl_secs": 5, "negative_cache_ttl_secs": 20}))
        .await;
    let keys = keys(1);
    assert_eq!(find(&adapter, &keys).await, [false]);
    harness.put(&adapter, &keys[0], vec![1]).await;
    advance(Duration::from_millis(19_999)).await;
    assert_eq!(find(&adapter, &keys).await, [false]);
    advance(Duration::from_millis(1)).await;
    assert_eq!(find(&adapter, &keys).await, [true]);
    assert_eq!(harness.faults.calls(Op::Head), 2);
    advance(Duration::from_secs(5)).await;
    assert_eq!(find(&adapter, &keys).await, [true]);
    assert_eq!(harness.faults.calls(Op::Head), 3);

    let forgetful = harness.adapter(json!({"negative_cache_ttl_secs": 0})).await;
    let missing = &l2_helpers::keys(2)[1..];
    for asked in 4..7 {
        assert_eq!(find(&forgetful, missing).await, [false]);
        assert_eq!(harness.faults.calls(Op::Head), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_is_tried_again_later_and_later() {
    let harness = l2_backends::in_memory().await;
    let keys = keys(3);
    let first = harness.adapter(json!({})).await;
    store(&first, &keys, 100).await;
    harness.faults.inject(Op::List, None, 4, Fault::Refuse);
    let started = Instant::now();
    let adapter = harness.adapter(json!({"recover_on_start": true})).await;
    let mut recovery = adapter.watch_recovery();
    let done = |recovery: &hfbucket::l2::Recovery| recovery.phase == RecoveryPhase::Done;
    recovery.wait_for(done).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 1 + 2 + 4 + 8);
    assert_counted(&harness, &adapter).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_listed_again_from_time_to_time() {
    let harness = l2_backends::in_memory().await;
    let keys = keys(2);
    let adapter = harness.adapter(json!({"resync_interval_secs": 300})).await;
    harness.put(&adapter, &keys[0], vec![1; 7]).await;
    advance(Duration::from_secs(299)).await;
    assert_eq!((used(&adapter), harness.faults.calls(Op::List)), (0, 0));
    let mut recovery = adapter.watch_recovery();
    advance(Duration::from_secs(1)).await;
    let done = |recovery: &hfbucket::l2::Recovery| recovery.phase == RecoveryPhase::Done;
    recovery.wait_for(done).await.unwrap();
    assert_eq!((used(&adapter), harness.faults.calls(Op::List)), (7, 1));
    adapter.close().await;
    advance(Duration::from_secs(1000)).await;
    assert_eq!(harness.faults.calls(Op::List), 1);
}

/// Says what its counter says.
#[derive(Debug)]
struct Marked {
    store: Arc<l2_faults::FaultStore>,
    changes: AtomicUsize,
    asked: AtomicUsize,
}

#[async_trait]
impl ChangeMark for Marked {
    async fn change_mark(&self) -> object_store::Result<Option<String>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Some(self.changes.load(Ordering::SeqCst).to_string()))
    }
}

mod marked {
    //! The store part of [`Marked`](super::Marked): everything goes to the store below.

    use std::fmt;

    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use object_store::path::Path;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    };

    use super::Marked;

    impl fmt::Display for Marked {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Marked({})", self.store)
        }
    }

    #[async_trait]
    impl ObjectStore for Marked {
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            opts: PutOptions,
        ) -> Result<PutResult> {
            self.store.put_opts(location, payload, opts).await
        }

        async fn put_multipart_opts(
            &self,
            location: &Path,
            opts: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.store.put_multipart_opts(location, opts).await
        }

        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            self.store.get_opts(location, options).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.store.delete_stream(locations)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.store.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.store.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.store.copy_opts(from, to, options).await
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_pool_is_not_listed_again() {
    let harness: Harness = l2_backends::in_memory().await;
    let keys = keys(1);
    let store = Arc::new(Marked {
        store: Arc::clone(&harness.faults),
        changes: AtomicUsize::new(0),
        asked: AtomicUsize::new(0),
    });
    let config = L2Config::from_json(
        r#"{"bucket_handle": "hf://buckets/o/b/pool/a b", "recover_on_start": true,
            "resync_interval_secs": 10}"#,
    );
    let adapter = L2Adapter::with_marked_store(Arc::clone(&store), config.unwrap())
        .await
        .unwrap();
    adapter.recovered().await.unwrap();
    let counts = || {
        let asked = store.asked.load(Ordering::SeqCst);
        (asked, harness.faults.calls(Op::List))
    };
    assert_eq!(counts(), (1, 1));
    for _ in 0..5 {
        advance(Duration::from_secs(10)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(counts(), (6, 1));
    harness.put(&adapter, &keys[0], vec![1; 7]).await;
    store.changes.fetch_add(1, Ordering::SeqCst);
    let mut recovery = adapter.watch_recovery();
    recovery.mark_unchanged();
    advance(Duration::from_secs(10)).await;
    let done = |recovery: &hfbucket::l2::Recovery| {
        recovery.phase == RecoveryPhase::Done && recovery.listed_objects == 1
    };
    recovery.wait_for(done).await.unwrap();
    assert_eq!(counts(), (8, 2));
    assert_eq!(used(&adapter), 7);
    let _: &dyn ObjectStore = adapter.object_store();
}

#[cfg(feature = "local-hub")]
mod bucket {
    //! A bucket says itself whether it changed.

    use super::*;
    use hfbucket::local_hub::Class;
    use object_store::ObjectStoreExt;

    #[tokio::test]
    async fn a_bucket_changes_its_mark_with_every_write_and_delete() {
        let fixture = support::Fixture::start().await;
        let store = fixture.store("b");
        let path = object_store::path::Path::from("a");
        store.put(&path, "1".into()).await.unwrap();
        let mut marks = vec![store.change_mark().await.unwrap().unwrap()];
        assert_eq!(store.change_mark().await.unwrap().as_ref(), marks.last());
        store.put(&path, "2".into()).await.unwrap();
        marks.push(store.change_mark().await.unwrap().unwrap());
        store.delete(&path).await.unwrap();
        let before = fixture.hub.requests();
        marks.push(store.change_mark().await.unwrap().unwrap());
        assert_eq!(fixture.hub.requests().since(&before).of(Class::Api), 1);
        marks.sort();
        marks.dedup();
        assert_eq!(marks.len(), 3);
    }
}

/// On one thread, so that whoever holds it holds up all others.
#[tokio::test]
async fn a_large_pool_is_taken_over_in_small_steps() {
    const OBJECTS: usize = 50_000;
    let config = L2Config::from_json(
        r#"{"bucket_handle": "hf://buckets/o/b/pool", "max_capacity_gb": 1e6,
            "eviction": {"eviction_policy": "LRU"}}"#,
    );
    let store = Arc::new(l2_listed::Listed::new(OBJECTS));
    let adapter = L2Adapter::with_store(store, config.unwrap()).await.unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let others = tokio::spawn({
        let turns = Arc::clone(&turns);
        async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let recovery = adapter.recovered().await.unwrap();
    others.abort();
    assert_eq!(recovery.recovered_keys as usize, OBJECTS);
    assert_eq!(used(&adapter), (OBJECTS as u64) << 20);
    // Others had a turn between every thousand objects listed, ordered and swept.
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= 3 * OBJECTS / 1000, "{turns}");
}
