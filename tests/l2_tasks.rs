//! The task interface: whatever happens, each task completes once, and its event says so.

#[path = "support/l2_backends.rs"]
mod l2_backends;
#[path = "support/l2_faults.rs"]
mod l2_faults;
#[path = "support/l2_helpers.rs"]
mod l2_helpers;
#[cfg(feature = "local-hub")]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hfbucket::l2::{
    DeleteOutcome, L2Adapter, L2Error, LoadOutcome, ObjectKey, Pending, TaskId, TaskKind, Tasks,
};
use l2_backends::{Harness, in_memory};
use l2_faults::{Fault, Gate, Op};
use l2_helpers::{batch, content, keys, store};
use serde_json::json;
use tokio::runtime::{Handle, Runtime};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(10);
const KINDS: [TaskKind; 4] = [
    TaskKind::Store,
    TaskKind::Lookup,
    TaskKind::Load,
    TaskKind::Delete,
];

fn hold(harness: &Harness, op: Op, calls: usize) -> Gate {
    let gate = Gate::default();
    harness
        .faults
        .inject(op, None, calls, Fault::Hold(gate.clone()));
    gate
}

fn buffers(count: usize, size: usize) -> Vec<Vec<u8>> {
    vec![vec![0; size]; count]
}

fn pending<B>(tasks: &Tasks<B>) -> [usize; 4] {
    let Pending {
        stores,
        lookups,
        loads,
        deletes,
        ..
    } = tasks.pending();
    [stores, lookups, loads, deletes]
}

/// Waits until no task is pending.
async fn all_complete<B>(tasks: &Tasks<B>) {
    while tasks.pending().total() > 0 {
        tokio::task::yield_now().await;
    }
}

/// One task of each kind, with the given keys.
fn submit_each(tasks: &Tasks, keys: &[ObjectKey]) -> [TaskId; 4] {
    [
        tasks.submit_store(batch(keys, 10)),
        tasks.submit_lookup_and_lock(keys.to_vec()),
        tasks.submit_load(keys.to_vec(), buffers(keys.len(), 10)),
        tasks.submit_delete(keys.to_vec()),
    ]
}

/// Collects one task of each kind, all of which must fail for each of two keys alike.
fn assert_each_failed(tasks: &Tasks, ids: [TaskId; 4], expected: impl Fn(&L2Error) -> bool) {
    let store = tasks.take_store(ids[0]).unwrap();
    assert_eq!(store.results.len(), 2);
    for result in &store.results {
        assert!(expected(result.as_ref().unwrap_err()), "{result:?}");
    }
    let found = tasks.take_lookup(ids[1]).unwrap();
    assert_eq!((found.hits(), found.bitmap.len()), (0, 2));
    assert_eq!(found.errors.len(), 2);
    assert!(found.errors.iter().all(|(_, error)| expected(error)));
    let load = tasks.take_load(ids[2]).unwrap();
    assert_eq!(load.buffers, buffers(2, 10));
    assert_eq!(load.loaded.outcomes.len(), 2);
    for outcome in &load.loaded.outcomes {
        assert!(matches!(outcome, LoadOutcome::Failed(error) if expected(error)));
    }
    let delete = tasks.take_delete(ids[3]).unwrap();
    assert_eq!(delete.outcomes.len(), 2);
    for outcome in &delete.outcomes {
        assert!(matches!(outcome, DeleteOutcome::Failed(error) if expected(error)));
    }
}

#[tokio::test]
async fn each_kind_does_what_the_adapter_does() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let tasks: Tasks = adapter.tasks().unwrap();
    let keys = keys(3);

    let id = tasks.submit_store(batch(&keys[..2], 10));
    assert_eq!((u64::from(id), id.to_string().as_str()), (0, "0"));
    tasks.completed(TaskKind::Store).await;
    let report = tasks.take_store(id).unwrap();
    assert_eq!((report.is_ok(), report.bytes_newly_stored), (true, 20));
    assert!(tasks.take_store(id).is_none(), "collected");

    let id = tasks.submit_lookup_and_lock(keys.clone());
    assert_eq!(id, TaskId::from(1));
    tasks.completed(TaskKind::Lookup).await;
    assert!(tasks.take_load(id).is_none(), "of another kind");
    let found = tasks.take_lookup(id).unwrap();
    assert_eq!(found.bitmap.iter().collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(adapter.status().locked_key_count, 2);
    found.into_guard().detach();
    assert_eq!(adapter.status().locked_key_count, 2, "until unlocked");

    let id = tasks.submit_delete(keys[..1].to_vec());
    assert_eq!(id, TaskId::from(2));
    tasks.completed(TaskKind::Delete).await;
    let report = tasks.take_delete(id).unwrap();
    assert!(matches!(report.outcomes[..], [DeleteOutcome::Locked]));

    let id = tasks.submit_load(keys.clone(), buffers(3, 10));
    assert_eq!(id, TaskId::from(3));
    tasks.completed(TaskKind::Load).await;
    let load = tasks.take_load(id).unwrap();
    assert_eq!(load.loaded.prefix_hits(), 2);
    assert!(matches!(load.loaded.outcomes[2], LoadOutcome::NotFound));
    assert_eq!(load.buffers[0], content(&keys[0], 10));
    assert_eq!(load.buffers[1], content(&keys[1], 10));
    assert_eq!(load.buffers[2], vec![0; 10]);

    adapter.unlock(&keys);
    tasks.submit_delete(keys.clone());
    tasks.completed(TaskKind::Delete).await;
    let [(id, report)] = &tasks.drain_deletes()[..] else {
        panic!("one delete")
    };
    assert_eq!((*id, report.bytes_freed), (TaskId::from(4), 20));
    assert!(tasks.take_delete(TaskId::from(u64::MAX)).is_none());
    assert_eq!(tasks.pending(), Pending::default());
}

#[tokio::test]
async fn another_number_of_buffers_fails_and_gives_them_back() {
    let harness = in_memory().await;
    let tasks: Tasks = harness.adapter(json!({})).await.tasks().unwrap();
    let id = tasks.submit_load(keys(2), buffers(3, 7));
    tasks.completed(TaskKind::Load).await;
    let load = tasks.take_load(id).unwrap();
    assert_eq!(load.buffers, buffers(3, 7));
    assert!(matches!(
        load.loaded.outcomes[..],
        [
            LoadOutcome::Failed(L2Error::Buffers {
                keys: 2,
                buffers: 3
            }),
            LoadOutcome::Failed(_)
        ]
    ));
}

#[tokio::test]
async fn results_are_collected_once_in_the_order_of_completion() {
    let harness = in_memory().await;
    let tasks: Tasks = harness.adapter(json!({})).await.tasks().unwrap();
    let keys = keys(4);
    let gate = hold(&harness, Op::Put, 1);
    let slow = tasks.submit_store(batch(&keys[..1], 10));
    gate.arrivals(1).await;
    let quick: Vec<_> = keys[1..]
        .iter()
        .map(|key| tasks.submit_store(batch(std::slice::from_ref(key), 10)))
        .collect();
    while tasks.pending().stores > 1 {
        tokio::task::yield_now().await;
    }
    assert!(tasks.take_store(slow).is_none(), "not complete");
    assert!(tasks.take_store(quick[1]).unwrap().is_ok());
    gate.open();
    all_complete(&tasks).await;
    let drained: Vec<_> = tasks.drain_stores().iter().map(|(id, _)| *id).collect();
    assert_eq!(drained, [quick[0], quick[2], slow]);
    assert!(tasks.drain_stores().is_empty());
}

#[tokio::test]
async fn whoever_waits_for_a_completion_hears_of_it() {
    let harness = in_memory().await;
    let tasks: Arc<Tasks> = Arc::new(harness.adapter(json!({})).await.tasks().unwrap());
    let gate = hold(&harness, Op::Put, 1);
    let id = tasks.submit_store(batch(&keys(1), 10));
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let tasks = Arc::clone(&tasks);
            tokio::spawn(async move { tasks.completed(TaskKind::Store).await })
        })
        .collect();
    gate.arrivals(1).await;
    assert!(!waiting.iter().any(tokio::task::JoinHandle::is_finished));
    gate.open();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    assert!(tasks.take_store(id).unwrap().is_ok());
}

#[test]
fn a_slow_store_holds_up_no_submit_from_any_thread() {
    let runtime = Runtime::new().unwrap();
    let (harness, adapter, tasks) = runtime.block_on(async {
        let harness = in_memory().await;
        let adapter = harness.adapter(json!({"num_workers": 2})).await;
        let tasks: Tasks = adapter.tasks().unwrap();
        (harness, adapter, tasks)
    });
    let gates = [Op::Put, Op::Head, Op::Get, Op::Delete].map(|op| hold(&harness, op, 1000));
    let keys = keys(80);
    // This thread is none of the runtime's, and nothing can complete while it submits: the kinds
    // have keys of their own, so none is answered for being locked or deleted by another.
    for n in 0..50 {
        let [store, lookup, load, delete] = [0, 20, 40, 60].map(|first| {
            let at = first + n % 18;
            keys[at..at + 2].to_vec()
        });
        tasks.submit_store(batch(&store, 10));
        tasks.submit_lookup_and_lock(lookup);
        tasks.submit_load(load, buffers(2, 10));
        tasks.submit_delete(delete);
    }
    assert_eq!(pending(&tasks), [50; 4]);
    assert_eq!(tasks.pending().total(), 200);
    for gate in &gates {
        gate.open();
        gate.open();
    }
    runtime.block_on(all_complete(&tasks));
    assert_eq!(pending(&tasks), [0; 4]);
    let collected = [
        tasks.drain_stores().len(),
        tasks.drain_lookups().len(),
        tasks.drain_loads().len(),
        tasks.drain_deletes().len(),
    ];
    assert_eq!(collected, [50; 4]);
    runtime.block_on(adapter.close());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_end_within_the_limit_of_a_close_succeed() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let tasks: Tasks = adapter.tasks().unwrap();
    let keys = keys(2);
    let gate = hold(&harness, Op::Put, 2);
    // None has been polled when the close begins: submitting is what counts.
    let stored = tasks.submit_store(batch(&keys, 10));
    let missed = tasks.submit_load(keys.clone(), buffers(2, 10));
    let (by_itself, ()) = tokio::join!(adapter.close_within(LIMIT), async {
        gate.arrivals(2).await;
        tokio::time::sleep(LIMIT / 2).await;
        gate.open();
    });
    assert!(by_itself);
    assert!(tasks.take_store(stored).unwrap().is_ok());
    let load = tasks.take_load(missed).unwrap();
    assert!(matches!(
        load.loaded.outcomes[..],
        [LoadOutcome::NotFound, LoadOutcome::NotFound]
    ));
    assert_eq!(harness.list().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn tasks_beyond_the_limit_of_a_close_are_closed() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
    let keys = keys(4);
    store(&adapter, &keys[2..], 10).await;
    let before = Handle::current().metrics().num_alive_tasks();
    let tasks: Tasks = adapter.tasks().unwrap();
    for (op, calls) in [(Op::Put, 2), (Op::Head, 2), (Op::Get, 2), (Op::Delete, 1)] {
        hold(&harness, op, calls);
    }
    let ids = [
        tasks.submit_store(batch(&keys[..2], 10)),
        tasks.submit_lookup_and_lock(keys[..2].to_vec()),
        tasks.submit_load(keys[..2].to_vec(), buffers(2, 10)),
        tasks.submit_delete(keys[2..].to_vec()),
    ];
    let started = Instant::now();
    let ended = tokio::join!(adapter.close_within(LIMIT), adapter.close_within(2 * LIMIT));
    assert_eq!(ended, (false, false));
    assert_eq!(started.elapsed(), LIMIT);
    assert_eq!(pending(&tasks), [0; 4], "complete when the close returns");
    assert_each_failed(&tasks, ids, |error| matches!(error, L2Error::Closed));
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before);
    adapter.close().await;
    assert_eq!(started.elapsed(), LIMIT);
}

#[tokio::test]
async fn tasks_after_a_close_complete_as_closed() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let tasks: Tasks = adapter.tasks().unwrap();
    let before = Handle::current().metrics().num_alive_tasks();
    adapter.close().await;
    adapter.close().await;
    let ids = submit_each(&tasks, &keys(2));
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before);
    for kind in KINDS {
        tasks.completed(kind).await;
    }
    #[cfg(target_os = "linux")]
    assert_eq!(events::readable(&tasks), [true; 4]);
    assert_each_failed(&tasks, ids, |error| matches!(error, L2Error::Closed));
    #[cfg(target_os = "linux")]
    assert_eq!(events::readable(&tasks), [false; 4]);
}

#[test]
fn tasks_of_a_runtime_that_ended_are_lost_and_complete() {
    let runtime = Runtime::new().unwrap();
    let (harness, tasks) = runtime.block_on(async {
        let harness = in_memory().await;
        let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
        (harness, adapter.tasks().unwrap())
    });
    let gates = [Op::Put, Op::Head, Op::Get, Op::Delete].map(|op| hold(&harness, op, 2));
    // Each kind has its own, or a delete that comes first would answer the lookup.
    let keys = keys(8);
    let running = [
        tasks.submit_store(batch(&keys[..2], 10)),
        tasks.submit_lookup_and_lock(keys[2..4].to_vec()),
        tasks.submit_load(keys[4..6].to_vec(), buffers(2, 10)),
        tasks.submit_delete(keys[6..].to_vec()),
    ];
    runtime.block_on(async {
        // A delete's keys come one by one.
        for (gate, calls) in gates.iter().zip([2, 2, 2, 1]) {
            gate.arrivals(calls).await;
        }
    });
    drop(runtime);
    let lost = |error: &L2Error| matches!(error, L2Error::Lost { .. });
    assert_each_failed(&tasks, running, lost);
    let late = submit_each(&tasks, &keys[..2]);
    assert_each_failed(&tasks, late, lost);
    assert_eq!(pending(&tasks), [0; 4]);
}

#[test]
fn without_a_runtime_there_are_no_tasks() {
    let adapter = Runtime::new().unwrap().block_on(async {
        let harness = in_memory().await;
        harness.adapter(json!({})).await
    });
    assert!(adapter.tasks::<Vec<u8>>().is_err());
}

/// A buffer that panics when it is to lend its bytes, if it is told to.
#[derive(Debug, PartialEq)]
enum Buffer {
    Sound([u8; 10]),
    Rotten,
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Sound(bytes) => bytes,
            Self::Rotten => panic!("a rotten buffer, on purpose"),
        }
    }
}

#[tokio::test]
async fn a_buffer_that_panics_loses_its_own_task_only() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys, 10).await;
    let tasks = adapter.tasks::<Buffer>().unwrap();
    let rotten = tasks.submit_load(keys.clone(), vec![Buffer::Sound([0; 10]), Buffer::Rotten]);
    let sound = tasks.submit_load(keys[..1].to_vec(), vec![Buffer::Sound([0; 10])]);
    all_complete(&tasks).await;
    let load = tasks.take_load(rotten).unwrap();
    assert!(matches!(load.buffers[1], Buffer::Rotten));
    assert_eq!((load.buffers.len(), load.loaded.outcomes.len()), (2, 2));
    for outcome in &load.loaded.outcomes {
        let LoadOutcome::Failed(L2Error::Lost { reason }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(reason, "it panicked");
    }
    let load = tasks.take_load(sound).unwrap();
    assert!(load.loaded.is_ok());
    let expected: [u8; 10] = content(&keys[0], 10).as_ref().try_into().unwrap();
    assert_eq!(load.buffers, [Buffer::Sound(expected)]);
    assert!(adapter.close_within(LIMIT).await);
}

#[tokio::test]
async fn a_consumer_that_panics_takes_only_its_own_results_with_it() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let keys = keys(2);
    store(&adapter, &keys, 10).await;
    let tasks: Arc<Tasks> = Arc::new(adapter.tasks().unwrap());
    tasks.submit_lookup_and_lock(keys[..1].to_vec());
    tasks.completed(TaskKind::Lookup).await;
    let consumer = std::thread::spawn({
        let tasks = Arc::clone(&tasks);
        move || {
            let drained = tasks.drain_lookups();
            panic!("a consumer of {} lookup panics, on purpose", drained.len());
        }
    });
    assert!(consumer.join().is_err());
    assert_eq!(adapter.status().locked_key_count, 0);
    let next = tasks.submit_lookup_and_lock(keys.clone());
    tasks.completed(TaskKind::Lookup).await;
    let drained = tasks.drain_lookups();
    assert_eq!((drained.len(), drained[0].0), (1, next));
    assert_eq!(drained[0].1.hits(), 2);
}

#[tokio::test]
async fn dropped_tasks_finish_their_stores_and_deletes_and_nothing_else() {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
    let keys = keys(4);
    store(&adapter, &keys[..2], 10).await;
    let before = Handle::current().metrics().num_alive_tasks();
    let tasks: Tasks = adapter.tasks().unwrap();
    // A lookup that nobody collects.
    tasks.submit_lookup_and_lock(keys[..1].to_vec());
    tasks.completed(TaskKind::Lookup).await;
    assert_eq!(adapter.status().locked_key_count, 1);
    let gates = [Op::Put, Op::Head, Op::Get, Op::Delete].map(|op| hold(&harness, op, 1));
    tasks.submit_store(batch(&keys[2..3], 10));
    tasks.submit_lookup_and_lock(keys[..1].to_vec());
    tasks.submit_load(keys[..1].to_vec(), buffers(1, 10));
    tasks.submit_delete(keys[1..2].to_vec());
    for gate in &gates {
        gate.arrivals(1).await;
    }
    drop(tasks);
    // The lookup and the load end although they are held. What remains is two tasks, and the
    // adapter's own for the store, its upload and the delete.
    while Handle::current().metrics().num_alive_tasks() > before + 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(adapter.status().locked_key_count, 0);
    gates[0].open();
    gates[3].open();
    assert!(adapter.close_within(LIMIT).await);
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before);
    let stored: Vec<_> = harness.list().await.into_iter().map(|(at, _)| at).collect();
    let mut expected = [&keys[0], &keys[2]].map(|key| adapter.object_path(key).unwrap());
    expected.sort();
    assert_eq!(stored, expected);
}

#[test]
fn two_drainers_see_each_result_once() {
    let runtime = Runtime::new().unwrap();
    let (_harness, tasks) = runtime.block_on(set_up());
    const TASKS: usize = 2000;
    let drainer = || {
        let mut seen = Vec::new();
        loop {
            // Looked at first: what is complete then is drained below, or by the other.
            let is_last = tasks.pending().total() == 0;
            seen.extend(tasks.drain_stores().into_iter().map(|(id, _)| id));
            if is_last {
                return seen;
            }
        }
    };
    let keys = keys(50);
    for n in 0..TASKS {
        tasks.submit_store(batch(&keys[n % 50..][..1], 3));
    }
    let (mut one, two) = std::thread::scope(|scope| {
        let (one, two) = (scope.spawn(drainer), scope.spawn(drainer));
        (one.join().unwrap(), two.join().unwrap())
    });
    one.extend(two);
    one.sort_unstable();
    assert_eq!(one, (0..TASKS as u64).map(TaskId::from).collect::<Vec<_>>());
}

async fn set_up() -> (Harness, Tasks) {
    let harness = in_memory().await;
    let adapter = harness.adapter(json!({})).await;
    let tasks = adapter.tasks().unwrap();
    (harness, tasks)
}

/// What a controller with a thread that polls file descriptors sees.
#[cfg(target_os = "linux")]
mod events {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::BorrowedFd;

    const POLL: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 500_000_000,
    };

    fn poll_all(tasks: &Tasks, timeout: &Timespec) -> [bool; 4] {
        let events: [BorrowedFd<'_>; 4] = [
            tasks.store_event(),
            tasks.lookup_event(),
            tasks.load_event(),
            tasks.delete_event(),
        ];
        let mut fds = events.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll(&mut fds, Some(timeout)).unwrap();
        fds.map(|fd| fd.revents().contains(PollFlags::IN))
    }

    /// Which events are readable now: of stores, lookups, loads, deletes.
    pub fn readable(tasks: &Tasks) -> [bool; 4] {
        poll_all(tasks, &Timespec::default())
    }

    #[tokio::test]
    async fn completions_coalesce_and_collecting_the_last_clears() {
        let (harness, tasks) = set_up().await;
        assert_eq!(readable(&tasks), [false; 4]);
        let gate = hold(&harness, Op::Put, 3);
        let ids: Vec<_> = keys(3)
            .iter()
            .map(|key| tasks.submit_store(batch(std::slice::from_ref(key), 10)))
            .collect();
        gate.arrivals(3).await;
        assert_eq!(readable(&tasks), [false; 4]);
        gate.open();
        all_complete(&tasks).await;
        assert_eq!(readable(&tasks), [true, false, false, false]);
        assert_eq!(tasks.drain_stores().len(), 3);
        assert_eq!(readable(&tasks), [false; 4]);
        assert!(ids.iter().all(|id| tasks.take_store(*id).is_none()));

        let ids: Vec<_> = keys(3)
            .iter()
            .map(|key| tasks.submit_lookup_and_lock(vec![key.clone()]))
            .collect();
        all_complete(&tasks).await;
        for id in ids {
            assert_eq!(readable(&tasks), [false, true, false, false]);
            assert_eq!(tasks.take_lookup(id).unwrap().hits(), 1);
        }
        assert_eq!(readable(&tasks), [false; 4]);
    }

    #[tokio::test]
    async fn a_poller_that_reads_its_event_is_woken_by_the_next_completion() {
        let (harness, tasks) = set_up().await;
        let keys = keys(2);
        let gate = hold(&harness, Op::Put, 1);
        let slow = tasks.submit_store(batch(&keys[..1], 10));
        gate.arrivals(1).await;
        let quick = tasks.submit_store(batch(&keys[1..], 10));
        tasks.completed(TaskKind::Store).await;
        let mut counter = [0; 8];
        rustix::io::read(tasks.store_event(), &mut counter).unwrap();
        assert_eq!(u64::from_ne_bytes(counter), 1);
        // It asks for each of its tasks, and before it comes to the second the first completes.
        assert!(tasks.take_store(slow).is_none());
        gate.open();
        all_complete(&tasks).await;
        assert!(tasks.take_store(quick).is_some());
        assert_eq!(readable(&tasks), [true, false, false, false]);
        assert!(tasks.take_store(slow).is_some());
        assert_eq!(readable(&tasks), [false; 4]);
    }

    /// As LMCache's controllers: a thread polls the events, and takes each chunk from its store to
    /// a lookup, a load and a delete.
    struct Controller<'a> {
        tasks: &'a Tasks,
        adapter: &'a L2Adapter,
        chunks: &'a [ObjectKey],
        /// For each task, the chunk with which it was submitted; by the submitting threads, too.
        chunk_of: &'a parking_lot::Mutex<std::collections::HashMap<TaskId, usize>>,
        seen: BTreeSet<TaskId>,
        wake_ups: usize,
    }

    const SIZE: usize = 33;

    impl Controller<'_> {
        fn run(mut self, chunks: usize) -> (BTreeSet<TaskId>, usize) {
            let mut deleted = 0;
            let deadline = std::time::Instant::now() + Duration::from_secs(120);
            while deleted < chunks {
                assert!(std::time::Instant::now() < deadline, "{:?}", self.tasks);
                let [stores, lookups, loads, deletes] = poll_all(self.tasks, &POLL);
                self.wake_ups += 1;
                if stores {
                    self.stored();
                }
                if lookups {
                    self.found();
                }
                if loads {
                    self.loaded();
                }
                if deletes {
                    deleted += self.deleted();
                }
            }
            (self.seen, self.wake_ups)
        }

        fn key(&mut self, id: TaskId) -> (usize, ObjectKey) {
            assert!(self.seen.insert(id), "{id} completed twice");
            let chunk = self.chunk_of.lock().remove(&id).unwrap();
            (chunk, self.chunks[chunk].clone())
        }

        fn stored(&mut self) {
            for (id, report) in self.tasks.drain_stores() {
                assert!(report.is_ok(), "{report:?}");
                assert_eq!(report.bytes_transferred, SIZE as u64);
                let (chunk, key) = self.key(id);
                // Noted in one step, as nobody else collects what this submits.
                let id = self.tasks.submit_lookup_and_lock(vec![key]);
                self.chunk_of.lock().insert(id, chunk);
            }
        }

        fn found(&mut self) {
            for (id, found) in self.tasks.drain_lookups() {
                assert_eq!((found.hits(), found.errors.len()), (1, 0));
                let (chunk, key) = self.key(id);
                found.into_guard().detach();
                let id = self.tasks.submit_load(vec![key], buffers(1, SIZE));
                self.chunk_of.lock().insert(id, chunk);
            }
        }

        fn loaded(&mut self) {
            for (id, load) in self.tasks.drain_loads() {
                let (chunk, key) = self.key(id);
                assert!(load.loaded.is_ok(), "{load:?}");
                assert_eq!(load.buffers, [bytes_of(chunk)]);
                self.adapter.unlock(std::slice::from_ref(&key));
                let id = self.tasks.submit_delete(vec![key]);
                self.chunk_of.lock().insert(id, chunk);
            }
        }

        fn deleted(&mut self) -> usize {
            let drained = self.tasks.drain_deletes();
            let deleted = drained.len();
            for (id, report) in drained {
                self.key(id);
                assert_eq!(report.bytes_freed, SIZE as u64);
            }
            deleted
        }
    }

    fn bytes_of(chunk: usize) -> Bytes {
        chunk.to_ne_bytes().into_iter().cycle().take(SIZE).collect()
    }

    #[test]
    fn a_controller_thread_sees_every_task_of_many_threads_once() {
        const THREADS: usize = 4;
        const EACH: usize = 400;
        let runtime = Runtime::new().unwrap();
        let (harness, adapter, tasks) = runtime.block_on(async {
            let harness = in_memory().await;
            let adapter = harness.adapter(json!({"metadata_cache_ttl_secs": 0})).await;
            let tasks: Tasks = adapter.tasks().unwrap();
            (harness, adapter, tasks)
        });
        for op in [Op::Put, Op::Head, Op::Get, Op::Delete] {
            let dawdle = Fault::Dawdle(1, 1);
            harness.faults.inject(op, None, THREADS * EACH / 2, dawdle);
        }
        let chunks = keys(THREADS * EACH);
        let chunk_of = parking_lot::Mutex::default();
        let controller = Controller {
            tasks: &tasks,
            adapter: &adapter,
            chunks: &chunks,
            chunk_of: &chunk_of,
            seen: BTreeSet::new(),
            wake_ups: 0,
        };
        let (seen, wake_ups) = std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (tasks, chunks, chunk_of) = (&tasks, &chunks, &chunk_of);
                scope.spawn(move || {
                    let own = chunks.iter().enumerate().skip(thread * EACH).take(EACH);
                    for (chunk, key) in own {
                        let entry = (key.clone(), bytes_of(chunk));
                        // Held over the submit: the controller may see the task at once.
                        let mut chunk_of = chunk_of.lock();
                        chunk_of.insert(tasks.submit_store(vec![entry]), chunk);
                    }
                });
            }
            let controller = scope.spawn(move || controller.run(THREADS * EACH));
            controller.join().unwrap()
        });
        let ids: BTreeSet<_> = (0..4 * (THREADS * EACH) as u64).map(TaskId::from).collect();
        assert_eq!(seen, ids);
        assert!(wake_ups <= ids.len(), "{wake_ups}");
        assert_eq!(tasks.pending(), Pending::default());
        assert_eq!(readable(&tasks), [false; 4]);
        assert!(runtime.block_on(adapter.close_within(LIMIT)));
        assert_eq!(adapter.usage().total_bytes_used, 0);
        assert_eq!(adapter.status().locked_key_count, 0);
        assert!(runtime.block_on(harness.list()).is_empty());
    }
}

#[cfg(feature = "cli")]
mod spans {
    use super::*;
    use std::io;
    use tracing_subscriber::fmt::format::FmtSpan;

    #[derive(Clone, Default)]
    struct Lines(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_task_has_a_span_with_its_size() {
        // The other tests have no subscriber, or would be heard here.
        support::own_process::run("spans::each_task_has_a_span_with_its_size", spans());
    }

    async fn spans() {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(tracing::Level::DEBUG)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .init();
        let harness = in_memory().await;
        let adapter = harness.adapter(json!({})).await;
        let tasks: Tasks = adapter.tasks().unwrap();
        let keys = keys(2);
        harness.faults.inject(Op::Put, None, 1, Fault::LoseAck);
        submit_each(&tasks, &keys);
        // A span closes with its task, after the completion.
        assert!(adapter.close_within(LIMIT).await);
        let lines = String::from_utf8(lines.0.lock().clone()).unwrap();
        for span in [
            r#"l2_task{id=0 kind="store" keys=2 bytes=20}: "#,
            r#"l2_task{id=1 kind="lookup" keys=2}: "#,
            r#"l2_task{id=2 kind="load" keys=2 bytes=20}: "#,
            r#"l2_task{id=3 kind="delete" keys=2}: "#,
        ] {
            let closed = |line: &str| line.contains(span) && line.contains("close");
            assert!(lines.lines().any(closed), "{span} in {lines}");
        }
        // Also what its uploads say.
        let noticed = r#"keys=2 bytes=20}: hfbucket::l2::store: an upload failed, and"#;
        assert!(lines.contains(noticed), "{lines}");
    }
}
