//! A task interface over the adapter, for callers that live outside of its runtime.

mod event;
mod id;
mod lane;
mod promises;

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::field::Empty;
use tracing::{Instrument, Span};

pub use self::id::{Pending, TaskId, TaskKind};
use self::lane::{Lane, Owed, Promise};
pub use self::promises::LoadCompletion;
use self::promises::{Deleting, Loading, LookingUp, Storing};
use super::adapter::{Entered, L2Adapter};
use super::delete::DeleteReport;
use super::key::ObjectKey;
use super::lookup::Lookup;
use super::store::StoreReport;

/// An [`L2Adapter`] for callers outside of its runtime: submit, get woken, collect.
///
/// Made by [`L2Adapter::tasks`]. Submits return at once, whatever the store does, and may come from
/// any thread, also one that knows nothing of tokio: a Python thread that polls file descriptors,
/// say. Share it in an `Arc`. `B` is the type of the buffers that loads fill.
///
/// # Completions
///
/// Every task that was submitted completes exactly once:
///
/// - if the adapter is closed, was closed before, or its
///   [`close_within`](L2Adapter::close_within) runs out of time, with
///   [`L2Error::Closed`](super::L2Error::Closed) for each key that was not done;
/// - if it panics (a buffer's `as_mut` may), or the runtime shuts down, with
///   [`L2Error::Lost`](super::L2Error::Lost) for each key.
///
/// When a close returns, all tasks that were submitted before are complete. Results wait until they
/// are collected, by `drain_…` all of a kind, by `take_…` one by its id; each is handed out once,
/// to whichever thread comes first.
///
/// # Events
///
/// On Linux each kind has an eventfd (`store_event` and so on), non-blocking and closed on exec. It
/// is readable exactly while results of its kind wait to be collected: a result is there before its
/// event, completions coalesce, and collecting the last result clears the event. The poller need
/// not read it. One that does must look for all its results afterwards. Everywhere,
/// [`completed`](Self::completed) waits for the same.
///
/// # Memory
///
/// There is no limit to what can be submitted: each task holds its entries or buffers until it is
/// complete, and its result until that is collected. Callers bound what they have pending;
/// [`pending`](Self::pending) says how much it is. How much of it runs at a time is the adapter's
/// [`num_workers`](super::L2Config::num_workers).
///
/// # Dropping
///
/// Dropping this stops loads and lookups, whose results nobody can collect any more. Stores and
/// deletes go on, as [`L2Adapter`] promises, and end by themselves or by its close. Results that
/// were not collected are dropped, and so the locks of lookups released.
///
/// # Example
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::os::fd::BorrowedFd;
///
/// use bytes::Bytes;
/// use hfbucket::l2::{L2Adapter, L2Config, ObjectKey, Tasks};
/// use rustix::event::{PollFd, PollFlags, poll};
///
/// let runtime = tokio::runtime::Runtime::new()?;
/// let config = L2Config::from_json(r#"{"type": "object_store", "url": "memory:///pool"}"#)?;
/// let (adapter, tasks) = runtime.block_on(async {
///     let adapter = L2Adapter::open(config).await?;
///     let tasks: Tasks = adapter.tasks()?;
///     Ok::<_, Box<dyn std::error::Error>>((adapter, tasks))
/// })?;
///
/// // From here on, a thread that only polls file descriptors.
/// let wait = |event: BorrowedFd<'_>| {
///     poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], None)
/// };
/// let key = ObjectKey::new("meta-llama/Llama-3.1-8B", 0x0100_0100, [1, 2])?;
/// let id = tasks.submit_store(vec![(key.clone(), Bytes::from_static(b"chunk"))]);
/// wait(tasks.store_event())?;
/// for (done, report) in tasks.drain_stores() {
///     assert_eq!(done, id);
///     assert_eq!(report.bytes_transferred, 5);
/// }
///
/// let id = tasks.submit_lookup_and_lock(vec![key.clone()]);
/// wait(tasks.lookup_event())?;
/// let found = tasks.take_lookup(id).expect("the only lookup");
/// assert_eq!(found.prefix_hits(), 1);
/// // This caller cannot hold a guard: the lock stays until `unlock`.
/// found.into_guard().detach();
///
/// let id = tasks.submit_load(vec![key.clone()], vec![vec![0; 5]]);
/// wait(tasks.load_event())?;
/// let done = tasks.take_load(id).expect("the only load");
/// assert!(done.loaded.is_ok());
/// assert_eq!(done.buffers, [b"chunk"]);
///
/// adapter.unlock(&[key]);
/// runtime.block_on(adapter.close());
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
pub struct Tasks<B = Vec<u8>> {
    adapter: L2Adapter,
    runtime: Handle,
    next: AtomicU64,
    stores: Arc<Lane<StoreReport>>,
    lookups: Arc<Lane<Lookup>>,
    loads: Arc<Lane<LoadCompletion<B>>>,
    deletes: Arc<Lane<DeleteReport>>,
    /// Ends tasks whose results nobody can collect any more.
    abandoned: CancellationToken,
    _abandon: DropGuard,
}

impl L2Adapter {
    /// A task interface over this adapter, for callers outside of its runtime.
    ///
    /// Tasks run on the tokio runtime from which this is called. There may be several; each has its
    /// own ids, completions and events.
    ///
    /// # Errors
    ///
    /// If this is not called within a tokio runtime, or, on Linux, if there can be no more file
    /// descriptors.
    pub fn tasks<B>(&self) -> io::Result<Tasks<B>> {
        let abandoned = CancellationToken::new();
        Ok(Tasks {
            adapter: self.clone(),
            runtime: Handle::try_current().map_err(io::Error::other)?,
            next: AtomicU64::new(0),
            stores: Lane::new()?,
            lookups: Lane::new()?,
            loads: Lane::new()?,
            deletes: Lane::new()?,
            _abandon: abandoned.clone().drop_guard(),
            abandoned,
        })
    }
}

impl<B: AsMut<[u8]> + Send + 'static> Tasks<B> {
    /// Stores a batch, as [`L2Adapter::store`].
    pub fn submit_store(&self, entries: Vec<(ObjectKey, Bytes)>) -> TaskId {
        let keys = entries.len();
        let bytes: usize = entries.iter().map(|(_, bytes)| bytes.len()).sum();
        let (id, span) = self.begin(TaskKind::Store, keys);
        span.record("bytes", bytes);
        let owed = Owed::new(&self.stores, id, Storing(keys));
        self.spawn(owed, span, |adapter, entered, owed| async move {
            owed.pay(adapter.store_entered(entered, entries).await);
        });
        id
    }

    /// Looks up a batch and locks the hits, as [`L2Adapter::lookup_and_lock`]. The locks last until
    /// the result is dropped, unless its guard is [detached](super::LockGuard::detach).
    pub fn submit_lookup_and_lock(&self, keys: Vec<ObjectKey>) -> TaskId {
        let (id, span) = self.begin(TaskKind::Lookup, keys.len());
        let promise = LookingUp(Arc::clone(&self.adapter.inner), keys.len());
        let owed = Owed::new(&self.lookups, id, promise);
        let abandoned = self.abandoned.clone();
        self.spawn(owed, span, |adapter, entered, owed| async move {
            let lookup = adapter.lookup_entered(entered, &keys);
            if let Some(found) = abandoned.run_until_cancelled(lookup).await {
                owed.pay(found);
            }
        });
        id
    }

    /// Loads a batch into buffers, as [`L2Adapter::load`]. The buffers come back with the result.
    ///
    /// `as_mut` is called on the runtime, and twice per buffer if the task's span is listened to.
    pub fn submit_load(&self, keys: Vec<ObjectKey>, buffers: Vec<B>) -> TaskId {
        let (id, span) = self.begin(TaskKind::Load, keys.len());
        let promise = Loading {
            keys: keys.len(),
            buffers,
        };
        let owed = Owed::new(&self.loads, id, promise);
        let abandoned = self.abandoned.clone();
        self.spawn(owed, span, |adapter, entered, mut owed| async move {
            let buffers = &mut owed.promise.buffers;
            record_bytes(buffers);
            let load = adapter.load_entered(entered, &keys, buffers);
            if let Some(loaded) = abandoned.run_until_cancelled(load).await {
                let completion = owed.promise.end(loaded);
                owed.pay(completion);
            }
        });
        id
    }

    /// Deletes a batch, as [`L2Adapter::delete`].
    pub fn submit_delete(&self, keys: Vec<ObjectKey>) -> TaskId {
        let (id, span) = self.begin(TaskKind::Delete, keys.len());
        let owed = Owed::new(&self.deletes, id, Deleting(keys.len()));
        self.spawn(owed, span, |adapter, entered, owed| async move {
            owed.pay(adapter.delete_entered(entered, &keys).await);
        });
        id
    }

    fn begin(&self, kind: TaskKind, keys: usize) -> (TaskId, Span) {
        let id = TaskId::from(self.next.fetch_add(1, Ordering::Relaxed));
        let kind = kind.as_str();
        let span = tracing::debug_span!("l2_task", %id, kind, keys, bytes = Empty);
        (id, span)
    }

    /// Runs a task that was let in at this moment, or ends it here if the adapter is closed: after
    /// its close no task is started.
    fn spawn<P, R>(
        &self,
        owed: Owed<P>,
        span: Span,
        run: impl FnOnce(L2Adapter, Entered, Owed<P>) -> R,
    ) where
        P: Promise,
        R: Future<Output = ()> + Send + 'static,
    {
        let inner = &self.adapter.inner;
        match inner.enter() {
            Ok(work) => {
                let task = run(self.adapter.clone(), Ok(work), owed).instrument(span);
                inner.tracker.spawn_on(task, &self.runtime);
            }
            Err(closed) => owed.fail(&closed),
        }
    }
}

impl<B> Tasks<B> {
    /// All stores that are complete and were not collected, in the order of completion.
    pub fn drain_stores(&self) -> Vec<(TaskId, StoreReport)> {
        self.stores.drain()
    }

    /// All lookups that are complete and were not collected, in the order of completion.
    pub fn drain_lookups(&self) -> Vec<(TaskId, Lookup)> {
        self.lookups.drain()
    }

    /// All loads that are complete and were not collected, in the order of completion.
    pub fn drain_loads(&self) -> Vec<(TaskId, LoadCompletion<B>)> {
        self.loads.drain()
    }

    /// All deletes that are complete and were not collected, in the order of completion.
    pub fn drain_deletes(&self) -> Vec<(TaskId, DeleteReport)> {
        self.deletes.drain()
    }

    /// The result of a store, once: `None` if it is not complete, was collected, or is no store.
    pub fn take_store(&self, id: TaskId) -> Option<StoreReport> {
        self.stores.take(id)
    }

    /// The result of a lookup, once: `None` if it is not complete, was collected, or is no lookup.
    pub fn take_lookup(&self, id: TaskId) -> Option<Lookup> {
        self.lookups.take(id)
    }

    /// The result of a load, once: `None` if it is not complete, was collected, or is no load.
    pub fn take_load(&self, id: TaskId) -> Option<LoadCompletion<B>> {
        self.loads.take(id)
    }

    /// The result of a delete, once: `None` if it is not complete, was collected, or is no delete.
    pub fn take_delete(&self, id: TaskId) -> Option<DeleteReport> {
        self.deletes.take(id)
    }

    /// Readable while stores can be collected.
    #[cfg(target_os = "linux")]
    pub fn store_event(&self) -> BorrowedFd<'_> {
        self.stores.fd()
    }

    /// Readable while lookups can be collected.
    #[cfg(target_os = "linux")]
    pub fn lookup_event(&self) -> BorrowedFd<'_> {
        self.lookups.fd()
    }

    /// Readable while loads can be collected.
    #[cfg(target_os = "linux")]
    pub fn load_event(&self) -> BorrowedFd<'_> {
        self.loads.fd()
    }

    /// Readable while deletes can be collected.
    #[cfg(target_os = "linux")]
    pub fn delete_event(&self) -> BorrowedFd<'_> {
        self.deletes.fd()
    }

    /// Waits until a task of the kind can be collected. Returns at once if one can, and never if
    /// none is pending. Dropping the future loses nothing.
    pub async fn completed(&self, kind: TaskKind) {
        match kind {
            TaskKind::Store => self.stores.completed().await,
            TaskKind::Lookup => self.lookups.completed().await,
            TaskKind::Load => self.loads.completed().await,
            TaskKind::Delete => self.deletes.completed().await,
        }
    }

    /// Tasks that were submitted and are not complete, by kind.
    pub fn pending(&self) -> Pending {
        Pending {
            stores: self.stores.pending(),
            lookups: self.lookups.pending(),
            loads: self.loads.pending(),
            deletes: self.deletes.pending(),
        }
    }
}

/// Notes the bytes of a load in its span, if anybody listens.
fn record_bytes<B: AsMut<[u8]>>(buffers: &mut [B]) {
    let span = Span::current();
    if !span.is_disabled() {
        let bytes: usize = buffers.iter_mut().map(|buffer| buffer.as_mut().len()).sum();
        span.record("bytes", bytes);
    }
}

impl<B> fmt::Debug for Tasks<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("adapter", &self.adapter)
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
