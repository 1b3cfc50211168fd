//! The L2 suite: pools that hold objects already.

use std::time::Duration;

use hfbucket::l2::{L2Adapter, ObjectKey, RecoveryPhase};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use serde_json::json;

use crate::l2_backends::Harness;
use crate::l2_faults::{Fault, Gate, Op};
use crate::l2_helpers::{assert_counted, evicting, find, keys, salted, store, used};

/// Uploads must differ in their times, which some stores keep in seconds.
async fn next_second() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

/// Whether the store has the objects: a lookup would count as a use.
async fn there(harness: &Harness, adapter: &L2Adapter, keys: &[ObjectKey]) -> Vec<bool> {
    let listed = harness.list().await;
    let is_listed = |key| {
        let path = adapter.object_path(key).unwrap();
        listed.iter().any(|(own, _)| *own == path)
    };
    keys.iter().map(is_listed).collect()
}

async fn put_raw(harness: &Harness, path: &str) {
    let path = Path::parse(path).unwrap();
    let payload = PutPayload::from_static(b"foreign");
    harness.store.put(&path, payload).await.unwrap();
}

async fn exists(harness: &Harness, path: &str) -> bool {
    harness
        .store
        .head(&Path::parse(path).unwrap())
        .await
        .is_ok()
}

const FOREIGN: [&str; 4] = [
    "pool/a b/README.md",
    "pool/a b/m%4001000100%40zz",
    "pool/a b/deeper/m%4001000100%40ab",
    "pool/elsewhere",
];

pub async fn a_restart_remembers_sizes_salts_and_order(harness: &Harness) {
    let keys = keys(4);
    let tenant = salted(&keys, "a");
    let first = harness.adapter(json!({})).await;
    store(&first, &tenant[..1], 300).await;
    next_second().await;
    store(&first, &keys[..1], 100).await;
    next_second().await;
    store(&first, &keys[1..2], 200).await;
    first.close().await;
    for path in FOREIGN {
        put_raw(harness, path).await;
    }

    let second = harness.adapter(evicting(2000, 0.5, 0.1)).await;
    let recovery = second.recovered().await.unwrap();
    assert_eq!(recovery.phase, RecoveryPhase::Done);
    assert_eq!((recovery.recovered_keys, recovery.listed_bytes), (3, 600));
    assert_eq!((recovery.listed_objects, recovery.foreign_objects), (6, 3));
    let usage = second.usage();
    assert_eq!(usage.total_bytes_used, 600);
    assert_eq!(
        usage.bytes_by_cache_salt.into_iter().collect::<Vec<_>>(),
        [(String::new(), 300), ("a".to_owned(), 300)]
    );
    assert_eq!(second.status().stored_object_count, 3);

    // The oldest upload goes first, and nothing foreign ever.
    store(&second, &keys[2..3], 400).await;
    second.eviction_idle().await;
    assert_eq!(there(harness, &second, &tenant[..1]).await, [false]);
    assert_eq!(there(harness, &second, &keys[..3]).await, [true; 3]);
    store(&second, &keys[3..4], 350).await;
    second.eviction_idle().await;
    assert_eq!(
        there(harness, &second, &keys).await,
        [false, true, true, true]
    );
    let ours: u64 = harness
        .list()
        .await
        .into_iter()
        .filter(|(path, _)| !FOREIGN.contains(&path.as_ref()))
        .map(|(_, size)| size)
        .sum();
    assert_eq!(used(&second), ours);
    for path in FOREIGN {
        assert!(exists(harness, path).await, "{path}");
    }
}

pub async fn a_full_pool_is_relieved_at_start(harness: &Harness) {
    let keys = keys(10);
    let first = harness.adapter(json!({})).await;
    store(&first, &keys, 100).await;
    first.close().await;
    let second = harness.adapter(evicting(500, 0.8, 0.2)).await;
    second.eviction_idle().await;
    assert_eq!(used(&second), 300, "of rounds of 2, 1, 1, 1, 1, 1 keys");
    assert_counted(harness, &second).await;
}

pub async fn work_goes_on_while_the_pool_is_listed(harness: &Harness) {
    let keys = keys(6);
    let first = harness.adapter(json!({})).await;
    store(&first, &keys[..4], 100).await;
    first.close().await;

    let gate = Gate::default();
    harness
        .faults
        .inject(Op::List, None, 1, Fault::Hold(gate.clone()));
    let second = harness
        .adapter(json!({"recover_on_start": true, "metadata_cache_ttl_secs": 0}))
        .await;
    gate.arrivals(1).await;
    assert_eq!(second.recovery().phase, RecoveryPhase::Listing);
    // The listing was made before this, and is seen after.
    store(&second, &keys[4..5], 70).await;
    store(&second, &keys[..1], 30).await;
    assert!(second.delete(&keys[1..2]).await.is_ok());
    harness.put(&second, &keys[5], vec![1; 50]).await;
    assert_eq!(
        find(&second, &keys).await,
        [true, false, true, true, true, true]
    );
    gate.open();
    second.recovered().await.unwrap();
    assert_eq!(used(&second), 30 + 100 + 100 + 70, "{:?}", second.usage());
    assert_eq!(second.status().stored_object_count, 4);
    // What another writer did since is seen by the next listing.
    second.resync().await.unwrap();
    assert_counted(harness, &second).await;
}

pub async fn a_failed_listing_is_tried_again(harness: &Harness) {
    let keys = keys(3);
    let first = harness.adapter(json!({})).await;
    store(&first, &keys, 100).await;
    first.close().await;
    harness.faults.inject(Op::List, None, 1, Fault::Refuse);
    let second = harness.adapter(json!({})).await;
    let error = second.recovered().await.unwrap_err().to_string();
    assert!(error.contains("could not list 'pool/a b'"), "{error}");
    let recovery = second.recovery();
    assert_eq!(recovery.phase, RecoveryPhase::Failed);
    assert_eq!(recovery.error.as_deref(), Some(error.as_str()));
    assert_eq!(second.recovered().await.unwrap().recovered_keys, 3);
    assert_counted(harness, &second).await;
}

pub async fn keys_are_listed_page_by_page(harness: &Harness) {
    let keys = keys(23);
    let first = harness.adapter(json!({})).await;
    store(&first, &keys[..10], 100).await;
    first.close().await;
    let adapter = harness.adapter(json!({})).await;
    let other = ObjectKey::new("another/model", 1, [1]).unwrap();
    store(&adapter, std::slice::from_ref(&other), 5).await;
    store(&adapter, &keys[10..20], 50).await;

    // The pool is listed by the first call.
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    let mut pages = 0;
    loop {
        let page = adapter
            .list_keys(Some("org/model"), 3, cursor.as_deref())
            .await
            .unwrap();
        assert!(page.entries.len() <= 3);
        seen.extend(
            page.entries
                .into_iter()
                .map(|entry| (entry.key, entry.size)),
        );
        pages += 1;
        // Keys come and go meanwhile.
        match pages {
            2 => store(&adapter, &keys[20..], 50).await,
            3 => assert!(adapter.delete(&keys[15..16]).await.is_ok()),
            _ => {}
        }
        match page.next_page_token {
            Some(token) => cursor = Some(token),
            None => break,
        }
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "no key twice");
    for (position, key) in keys.iter().enumerate() {
        let size = if position < 10 { 100 } else { 50 };
        let listed = seen.contains(&(key.clone(), size));
        match position {
            15 | 20.. => {}
            _ => assert!(listed, "{position}"),
        }
    }
    let all = adapter.list_keys(None, 5000, None).await.unwrap();
    assert_eq!(all.entries.len(), 23);
    assert_eq!(all.next_page_token, None);
    assert!(all.entries.iter().any(|entry| entry.key == other));

    let refused = [
        adapter.list_keys(None, 0, None).await,
        adapter.list_keys(None, 5001, None).await,
        adapter.list_keys(None, 1, Some("x")).await,
        adapter.list_keys(None, 1, Some("0-1")).await,
        adapter
            .list_keys(
                None,
                1,
                cursor
                    .map(|mut token| {
                        token.push(' ');
                        token
                    })
                    .as_deref(),
            )
            .await,
    ];
    for page in refused {
        let error = page.unwrap_err().to_string();
        assert!(
            error.starts_with("L2 adapter cannot list keys: "),
            "{error}"
        );
    }
}
