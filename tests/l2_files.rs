//! The L2 adapter over local files: what it promises beyond every other store.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[cfg(feature = "local-hub")]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use hfbucket::l2::{DeleteOutcome, L2Adapter, L2Config, L2Error, LoadOutcome, ObjectKey};
use l2_faults::{Fault, Gate, Op};
use object_store::local::LocalFileSystem;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count)
        .map(|n| ObjectKey::new("org/model", 1, (n as u32).to_be_bytes()).unwrap())
        .collect()
}

fn content(seed: usize, size: usize) -> Vec<u8> {
    let repeated: Vec<u8> = (0..251).map(|n| ((n + 3 * seed) % 251) as u8).collect();
    let mut content = repeated.repeat(size / 251 + 1);
    content.truncate(size);
    content
}

/// A directory in a temporary one, which an adapter by URL works in.
struct Pool {
    parent: tempfile::TempDir,
}

impl Pool {
    fn new() -> Self {
        Self {
            parent: tempfile::tempdir().unwrap(),
        }
    }

    /// Does not exist until something is stored.
    fn directory(&self) -> PathBuf {
        self.parent.path().join("to be made/kv")
    }

    async fn open(&self, fields: Value) -> L2Adapter {
        let url = url::Url::from_file_path(self.directory()).unwrap();
        let mut config = json!({"type": "object_store", "url": url.as_str()});
        let (Value::Object(config), Value::Object(fields)) = (&mut config, fields) else {
            panic!("fields are an object");
        };
        config.extend(fields);
        let config = L2Config::from_json(&serde_json::to_string(config).unwrap()).unwrap();
        L2Adapter::open(config).await.unwrap()
    }

    /// Paths below the directory, with what files hold.
    fn tree(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        let root = self.directory();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let bytes = path.is_file().then(|| std::fs::read(&path).unwrap());
                if bytes.is_none() {
                    folders.push(path.clone());
                }
                found.insert(path.strip_prefix(&root).unwrap().to_owned(), bytes);
            }
        }
        found
    }
}

fn name(adapter: &L2Adapter, key: &ObjectKey) -> String {
    let path = adapter.object_path(key).unwrap();
    path.filename().unwrap().to_owned()
}

/// Both kinds of runtime, and one whose workers are all the same.
fn runtimes() -> Vec<Runtime> {
    let threads = |count| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(count);
        builder
    };
    [Builder::new_current_thread(), threads(1), threads(3)]
        .iter_mut()
        .map(|builder| builder.enable_all().build().unwrap())
        .collect()
}

fn in_time<T>(runtime: &Runtime, run: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    runtime.block_on(async { tokio::time::timeout(limit, run).await.unwrap() })
}

const COUNT: usize = 300;

/// Empty, small and some of several chunks.
fn size(n: usize) -> usize {
    match n % 50 {
        7 => 0,
        8 => 1_200_000,
        _ => 100 + n,
    }
}

async fn store_many(adapter: &L2Adapter) -> Vec<ObjectKey> {
    let keys = keys(COUNT);
    let stored = keys.iter().enumerate().filter(|(n, _)| n % 10 != 3);
    let entries = stored.map(|(n, key)| (key.clone(), Bytes::from(content(n, size(n)))));
    let report = adapter.store(entries.collect()).await;
    assert!(report.is_ok(), "{report:?}");
    keys
}

/// Of each ten keys the fourth is not there, and the sixth has another size.
async fn load_many(adapter: &L2Adapter, keys: &[ObjectKey]) {
    let other = |n: usize| usize::from(n % 10 == 5);
    let mut buffers: Vec<Vec<u8>> = (0..COUNT).map(|n| vec![0xee; size(n) + other(n)]).collect();
    let loaded = adapter.load(keys, &mut buffers).await;
    assert_eq!(loaded.outcomes.len(), COUNT);
    for (n, (outcome, buffer)) in loaded.outcomes.iter().zip(&buffers).enumerate() {
        let untouched = || *buffer == vec![0xee; buffer.len()];
        let right = match (n % 10, outcome) {
            (3, LoadOutcome::NotFound) => untouched(),
            (5, LoadOutcome::SizeMismatch { actual }) => *actual == size(n) as u64 && untouched(),
            (3 | 5, _) => false,
            (_, outcome) => outcome.is_hit() && *buffer == content(n, size(n)),
        };
        assert!(right, "{n}: {outcome:?}");
    }
}

#[test]
fn many_files_at_once_on_every_runtime() {
    for runtime in runtimes() {
        for workers in [1, 4, 64] {
            let pool = Pool::new();
            in_time(&runtime, async {
                let adapter = pool.open(json!({"num_workers": workers})).await;
                let keys = store_many(&adapter).await;
                load_many(&adapter, &keys).await;
            });
        }
    }
}

#[test]
fn concurrent_loads_of_more_than_the_permits_end() {
    for runtime in runtimes() {
        for workers in [1, 3] {
            let pool = Pool::new();
            in_time(&runtime, async {
                let adapter = pool.open(json!({"num_workers": workers})).await;
                let keys = Arc::new(store_many(&adapter).await);
                // On this task all at once, and on tasks of their own.
                join_all((0..3).map(|_| load_many(&adapter, &keys))).await;
                let tasks = (0..5).map(|_| {
                    let (adapter, keys) = (adapter.clone(), Arc::clone(&keys));
                    tokio::spawn(async move { load_many(&adapter, &keys).await })
                });
                for task in join_all(tasks).await {
                    task.unwrap();
                }
            });
        }
    }
}

#[test]
fn a_local_set_loads_too() {
    let pool = Pool::new();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    in_time(
        &runtime,
        local.run_until(async {
            let adapter = pool.open(json!({})).await;
            let keys = store_many(&adapter).await;
            load_many(&adapter, &keys).await;
            let task = tokio::task::spawn_local(async move { load_many(&adapter, &keys).await });
            task.await.unwrap();
        }),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_files_of_one_batch_are_both_loaded() {
    let harness = l2_backends::files().await;
    for workers in [1, 2, 64] {
        let adapter = harness.adapter(json!({"num_workers": workers})).await;
        let keys = store_many(&adapter).await;
        for key in keys.iter().step_by(3) {
            let path = adapter.object_path(key).unwrap();
            let whole = Fault::Truncate(usize::MAX); // a stream, but nothing is missing
            harness.faults.inject(Op::Get, Some(path), 1, whole);
        }
        let load = load_many(&adapter, &keys);
        tokio::time::timeout(Duration::from_secs(60), load)
            .await
            .unwrap();
        harness.faults.heal();
    }
}

#[derive(Clone, Copy)]
enum Change {
    Cut,
    Replace,
    Delete,
}

/// What becomes of a load whose file changes once it is opened.
async fn change_while_open(change: Change, size: usize) -> (LoadOutcome, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    let path = directory.path().join("pool/a b");
    let harness = l2_backends::Harness::new(Arc::new(store), directory);
    let adapter = harness.adapter(json!({})).await;
    let key = keys(1).remove(0);
    let put = async |seed, size| {
        let entry = (key.clone(), Bytes::from(content(seed, size)));
        assert!(adapter.store(vec![entry]).await.is_ok());
    };
    put(1, size).await;
    let path = path.join(name(&adapter, &key));

    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Get, None, 1, Fault::Hold(gate.clone()));
    let mut buffers = [vec![0; size]];
    let load = adapter.load(std::slice::from_ref(&key), &mut buffers);
    let change = async {
        gate.arrivals(1).await;
        match change {
            Change::Cut => {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_len(3).unwrap();
            }
            Change::Replace => put(2, size + 1).await,
            Change::Delete => std::fs::remove_file(&path).unwrap(),
        }
        gate.open();
    };
    let (mut loaded, ()) = tokio::join!(load, change);
    (loaded.outcomes.remove(0), buffers[0].clone())
}

#[test]
fn a_file_that_changes_while_it_is_open_gives_one_version_or_none() {
    for runtime in runtimes() {
        for size in [10, 2_000_000] {
            in_time(&runtime, async {
                let (outcome, _) = change_while_open(Change::Cut, size).await;
                let LoadOutcome::Failed(L2Error::Truncated {
                    expected, found, ..
                }) = outcome
                else {
                    panic!("{outcome:?}");
                };
                assert_eq!((expected, found), (size as u64, 3));
                for change in [Change::Replace, Change::Delete] {
                    let (outcome, buffer) = change_while_open(change, size).await;
                    assert!(outcome.is_hit(), "{outcome:?}");
                    assert!(buffer == content(1, size));
                }
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_load_that_is_dropped_leaves_its_permits() {
    let harness = l2_backends::files().await;
    let adapter = harness.adapter(json!({"num_workers": 1})).await;
    let keys = store_many(&adapter).await;
    let gate = Gate::default();
    harness
        .faults
        .inject(Op::Get, None, 1, Fault::Hold(gate.clone()));
    let mut buffers = vec![vec![0; 100]; COUNT];
    tokio::select! {
        biased;
        _ = adapter.load(&keys, &mut buffers) => panic!("held"),
        () = gate.arrivals(1) => {}
    }
    load_many(&adapter, &keys).await;
}

/// A key whose encoded name has so many bytes: 16 after the model's name.
fn key_of_length(length: usize) -> ObjectKey {
    ObjectKey::new("m".repeat(length - 16), 1, [0xab]).unwrap()
}

async fn load_five(adapter: &L2Adapter, key: &ObjectKey) -> (LoadOutcome, [u8; 5]) {
    let mut buffers = [[0; 5]];
    let loaded = adapter.load(std::slice::from_ref(key), &mut buffers).await;
    (loaded.outcomes[0].clone(), buffers[0])
}

#[cfg(target_os = "linux")]
#[test]
fn names_are_stored_to_the_limit_and_beyond_it_are_misses() {
    for runtime in runtimes() {
        let pool = Pool::new();
        in_time(&runtime, async {
            let adapter = pool.open(json!({"metadata_cache_ttl_secs": 0})).await;
            for length in [200, 249, 250, 251, 252, 253] {
                check_name(&adapter, length, true).await;
            }
            // Two bytes more are needed while an object is written.
            for length in [254, 255, 256, 257, 300, 4000, 5000] {
                check_name(&adapter, length, false).await;
            }
            assert_eq!(adapter.status().stored_object_count, 0);
        });
        assert_eq!(pool.tree().len(), 0);
    }
}

#[cfg(target_os = "linux")]
async fn check_name(adapter: &L2Adapter, length: usize, fits: bool) {
    let key = key_of_length(length);
    assert_eq!(name(adapter, &key).len(), length);
    let entry = (key.clone(), Bytes::from_static(b"12345"));
    let report = adapter.store(vec![entry]).await;
    match report.first_error() {
        None => assert!(fits, "{length}"),
        Some(error @ L2Error::NameTooLong { bytes, path, .. }) => {
            assert!(!fits, "{length}");
            assert_eq!((*bytes, path.len() > length), (length, true));
            let said = error.to_string();
            assert!(
                said.contains(&format!("a name of {length} bytes")),
                "{said}"
            );
            assert!(said.contains("shorten the model's name"), "{said}");
        }
        Some(error) => panic!("{length}: {error}"),
    }
    let keys = std::slice::from_ref(&key);
    let found = adapter.lookup_and_lock(keys).await;
    assert!(found.errors.is_empty(), "{length}: {found:?}");
    assert_eq!(found.bitmap[0], fits, "{length}");
    drop(found);
    let (outcome, buffer) = load_five(adapter, &key).await;
    match outcome {
        LoadOutcome::Hit => assert_eq!((fits, &buffer), (true, b"12345")),
        LoadOutcome::NotFound => assert_eq!((fits, &buffer), (false, &[0; 5])),
        outcome => panic!("{length}: {outcome:?}"),
    }
    let report = adapter.delete(keys).await;
    let bytes = if fits { 5 } else { 0 };
    assert!(
        matches!(report.outcomes[..], [DeleteOutcome::Deleted { bytes: freed }] if freed == bytes),
        "{length}: {report:?}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_that_is_too_long_does_not_harm_its_batch() {
    let pool = Pool::new();
    let adapter = pool.open(json!({})).await;
    let short = keys(2);
    let batch = [short[0].clone(), key_of_length(256), short[1].clone()];
    let entries = batch
        .iter()
        .map(|key| (key.clone(), Bytes::from_static(b"12345")));
    let report = adapter.store(entries.collect()).await;
    let stored: Vec<bool> = report.results.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, true]);
    assert_eq!(
        (report.bytes_newly_stored, report.bytes_transferred),
        (10, 10)
    );

    let found = adapter.lookup_and_lock(&batch).await;
    assert_eq!(found.bitmap.iter().collect::<Vec<_>>(), [true, false, true]);
    assert!(found.errors.is_empty());
    drop(found);
    let mut buffers = [[0; 5]; 3];
    let loaded = adapter.load(&batch, &mut buffers).await;
    assert!(matches!(
        loaded.outcomes[..],
        [LoadOutcome::Hit, LoadOutcome::NotFound, LoadOutcome::Hit]
    ));
    assert!(loaded.first_error().is_none());
    assert_eq!(buffers, [*b"12345", [0; 5], *b"12345"]);
    let report = adapter.delete(&batch).await;
    assert!(report.is_ok() && report.bytes_freed == 10, "{report:?}");
    assert_eq!(adapter.usage().total_bytes_used, 0);
}

fn plant(directory: &Path, name: &str) {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, name).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_files_are_left_alone() {
    let pool = Pool::new();
    let adapter = pool
        .open(json!({
            "max_capacity_gb": 1e-6, // 1073 bytes
            "eviction": {"eviction_policy": "LRU", "trigger_watermark": 0.5},
            "metadata_cache_ttl_secs": 0,
        }))
        .await;
    let keys = keys(40);
    let staged = format!("{}#1", name(&adapter, &keys[0]));
    let folder = name(&adapter, &keys[39]);
    for foreign in [
        &staged,
        "notes.txt",
        "sub/folder/file",
        ".hidden",
        "with@at",
    ] {
        plant(&pool.directory(), foreign);
    }
    plant(&pool.directory(), &format!("{folder}/inside"));
    let foreign = pool.tree();
    assert_eq!(foreign.len(), 9);

    // Neither a leftover nor a folder is an object.
    for key in [&keys[0], &keys[39]] {
        let keys = std::slice::from_ref(key);
        let found = adapter.lookup_and_lock(keys).await;
        assert!(!found.bitmap[0] && found.errors.is_empty(), "{found:?}");
        drop(found);
        assert!(matches!(
            load_five(&adapter, key).await.0,
            LoadOutcome::NotFound
        ));
        assert!(adapter.delete(keys).await.is_ok());
    }
    assert_eq!(adapter.usage().total_bytes_used, 0);
    assert_eq!(pool.tree(), foreign);

    // What is stored beside them is counted alone, and evicted alone.
    for key in &keys[..39] {
        let entry = (key.clone(), Bytes::from(vec![7; 100]));
        assert!(adapter.store(vec![entry]).await.is_ok());
    }
    let evicted = async || {
        while adapter.usage().total_bytes_used > 1073 / 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), evicted())
        .await
        .unwrap();
    let report = adapter
        .store(vec![(keys[39].clone(), Bytes::from_static(b"12345"))])
        .await;
    assert!(matches!(report.first_error(), Some(L2Error::Store { .. })));
    adapter.close().await;

    let mut left = pool.tree();
    for (path, bytes) in &foreign {
        assert_eq!(left.remove(path).as_ref(), Some(bytes), "{path:?}");
    }
    let objects: usize = left.values().flatten().map(Vec::len).sum();
    assert_eq!(adapter.usage().total_bytes_used, objects as u64);
    assert_eq!(adapter.status().stored_object_count, left.len());
    assert!(!left.is_empty() && left.len() < 39);
}

#[tokio::test]
async fn directories_are_made_by_the_first_store_and_synced_if_wanted() {
    for fsync in [false, true] {
        let pool = Pool::new();
        let adapter = pool.open(json!({"fsync": fsync})).await;
        let keys = keys(2);
        let found = adapter.lookup_and_lock(&keys).await;
        assert!(found.errors.is_empty() && found.hits() == 0);
        assert!(adapter.delete(&keys).await.is_ok());
        assert!(!pool.directory().exists());
        let entries = keys
            .iter()
            .map(|key| (key.clone(), Bytes::from_static(b"12345")));
        let report = adapter.store(entries.collect()).await;
        assert!(report.is_ok(), "{report:?}");
        assert_eq!(&load_five(&adapter, &keys[1]).await.1, b"12345");
        // Nothing but the objects is left behind.
        assert_eq!(pool.tree().len(), 2);
    }
}
