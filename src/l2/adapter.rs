//! The adapter itself: what it holds, how it opens and closes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::config::L2Config;
use super::error::{L2Error, refuses_name};
use super::eviction::controller::Controller;
use super::gates::Gates;
use super::key::ObjectKey;
use super::metadata_cache::{Known, Version};
use super::naming::Namer;
use super::open;
use super::recovery::{Keeper, Recovery};
use super::state::State;
use super::stats::Stats;
use super::usage::Usage;
use crate::ChangeMark;

/// Questions to the store at a time. They are small, wait for nothing but the network, and a store
/// that can answer many at once sees them together.
const LOOKUPS_AT_ONCE: usize = 256;

/// A KV-cache tier over any [`ObjectStore`].
///
/// A clone is another handle on the same adapter. All methods take many keys at once and may run
/// concurrently; results stand by submitted position. An adapter's tasks run on the tokio runtime in
/// which it was opened; locks may end on any thread.
///
/// # Where objects lie
///
/// At `<prefix>/<encoded name>` below the root of the store, the prefix being the configuration's
/// [`object_prefix`](L2Config::object_prefix): do not scope the store itself to the prefix as well.
///
/// # Cancellation
///
/// Dropping the future of [`store`](Self::store) or [`delete`](Self::delete) does not stop them: they
/// run to their end in the background, so that what the adapter counts is what the store holds.
/// Dropping the future of a lookup releases its locks; of a load, leaves the buffers half written.
///
/// # Example
///
/// ```
/// use bytes::Bytes;
/// use hfbucket::l2::{L2Adapter, L2Config, ObjectKey};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = L2Config::from_json(r#"{"type": "object_store", "url": "memory:///pool"}"#)?;
/// let adapter = L2Adapter::open(config).await?;
///
/// let keys: Vec<ObjectKey> = (0..3)
///     .map(|chunk| ObjectKey::new("meta-llama/Llama-3.1-8B", 0x0100_0100, [chunk]))
///     .collect::<Result<_, _>>()?;
/// let chunk = Bytes::from(vec![7; 4096]);
/// let report = adapter
///     .store(keys[..2].iter().map(|key| (key.clone(), chunk.clone())).collect())
///     .await;
/// assert!(report.is_ok());
///
/// let found = adapter.lookup_and_lock(&keys).await;
/// assert_eq!(found.prefix_hits(), 2);
///
/// let mut buffers = vec![vec![0; 4096]; found.prefix_hits()];
/// let loaded = adapter.load(&keys[..2], &mut buffers).await;
/// assert!(loaded.is_ok());
/// assert_eq!(buffers[1], chunk);
///
/// drop(found); // releases the locks, as does `adapter.unlock(&keys[..2])`
/// assert_eq!(adapter.usage().total_bytes_used, 8192);
/// adapter.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct L2Adapter {
    pub(super) inner: Arc<Inner>,
    /// Stops background work when the last handle is gone.
    _stop: Arc<DropGuard>,
}

/// Leave to run an operation, or why there is none.
pub(super) type Entered = Result<TaskTrackerToken, L2Error>;

pub(super) struct Inner {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) config: L2Config,
    pub(super) namer: Namer,
    pub(super) capacity: u64,
    pub(super) state: Mutex<State>,
    pub(super) gates: Gates,
    /// Uploads, downloads and questions have each their own permits: a lookup or a load is what a
    /// model waits for, and must not queue behind uploads.
    pub(super) uploads: Semaphore,
    pub(super) downloads: Semaphore,
    lookups: Semaphore,
    /// Where the adapter's tasks run: on the runtime that opened it.
    pub(super) runtime: Handle,
    /// Tasks that the adapter runs.
    pub(super) tracker: TaskTracker,
    /// Operations that were let in, most of which run in their callers' futures.
    pub(super) calls: TaskTracker,
    pub(super) stop: CancellationToken,
    /// Ends what `stop` leaves running, when a close has waited long enough.
    pub(super) killed: CancellationToken,
    pub(super) closed: AtomicBool,
    /// The store does not let us read by version: loads stop trying.
    pub(super) versions_refused: AtomicBool,
    pub(super) controller: Option<Controller>,
    pub(super) stats: Stats,
    /// Says whether a listing is still good, if the store can.
    pub(super) mark: Option<Arc<dyn ChangeMark>>,
    /// As it was before the last listing.
    pub(super) last_mark: Mutex<Option<String>>,
    /// One listing at a time.
    pub(super) listing_turn: AsyncMutex<()>,
    /// One was done.
    pub(super) listed: AtomicBool,
    pub(super) recovery: watch::Sender<Recovery>,
    /// Eviction need not wait for the first listing, or no longer.
    pub(super) ordered: watch::Sender<bool>,
    /// A lock with a lease was taken.
    pub(super) locked: Notify,
    /// Tells cursors of this adapter from those of others.
    pub(super) instance: u64,
}

impl L2Adapter {
    /// Builds the store that the configuration names, and an adapter over it.
    ///
    /// # Errors
    ///
    /// [`L2Error::Unusable`] names the field that nothing can work with: a prefix with a `..`
    /// segment, a watermark beyond 1, an unknown option of the store, a scheme without its feature.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn open(config: L2Config) -> Result<Self, L2Error> {
        let open::Opened { store, mark } = open::build_store(&config)?;
        Self::start(store, mark, config)
    }

    /// An adapter over a store of your own, which must be the root of what the configuration names.
    ///
    /// The configuration's prefix, capacity, cache and eviction apply; its bucket, URL and token are
    /// not looked at.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), for the fields that apply.
    pub async fn with_store(
        store: Arc<dyn ObjectStore>,
        config: L2Config,
    ) -> Result<Self, L2Error> {
        Self::start(store, None, config)
    }

    /// The same over a store that can say whether it changed, such as
    /// [`HfBucket`](crate::HfBucket): a shared pool is listed again only if it has.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), for the fields that apply.
    pub async fn with_marked_store<S: ObjectStore + ChangeMark>(
        store: Arc<S>,
        config: L2Config,
    ) -> Result<Self, L2Error> {
        let mark: Arc<dyn ChangeMark> = Arc::clone(&store) as _;
        Self::start(store, Some(mark), config)
    }

    fn start(
        store: Arc<dyn ObjectStore>,
        mark: Option<Arc<dyn ChangeMark>>,
        config: L2Config,
    ) -> Result<Self, L2Error> {
        let settings = open::settings(&config)?;
        let stop = CancellationToken::new();
        let keeper = Keeper {
            at_start: config.recover_on_start(),
            every: settings.resync,
        };
        let has_leases = settings.parts.lease.is_some();
        let mut state = State::new(settings.parts, Instant::now());
        // Until the pool is listed, nobody knows which of its keys are the oldest.
        state.listing.unordered = keeper.at_start;
        let inner = Arc::new(Inner {
            stats: Stats::new(format!("{store}/{}", settings.namer.prefix())),
            store,
            namer: settings.namer,
            capacity: config.max_capacity_bytes(),
            state: Mutex::new(state),
            gates: Gates::default(),
            uploads: Semaphore::new(settings.uploads),
            downloads: Semaphore::new(settings.workers),
            lookups: Semaphore::new(LOOKUPS_AT_ONCE),
            runtime: Handle::current(),
            tracker: TaskTracker::new(),
            calls: TaskTracker::new(),
            stop: stop.clone(),
            killed: CancellationToken::new(),
            closed: AtomicBool::new(false),
            versions_refused: AtomicBool::new(false),
            controller: settings.controller,
            mark,
            last_mark: Mutex::new(None),
            listing_turn: AsyncMutex::new(()),
            listed: AtomicBool::new(false),
            recovery: watch::Sender::new(Recovery::default()),
            ordered: watch::Sender::new(!keeper.at_start),
            locked: Notify::new(),
            instance: rand::random(),
            config,
        });
        keeper.spawn(&inner);
        if has_leases {
            inner.watch_leases();
        }
        Ok(Self {
            inner,
            _stop: Arc::new(stop.drop_guard()),
        })
    }

    /// The configuration that the adapter was opened with.
    pub fn config(&self) -> &L2Config {
        &self.inner.config
    }

    /// The store below.
    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.inner.store
    }

    /// Where the key's object lies in the store.
    ///
    /// # Errors
    ///
    /// [`L2Error::Key`] if the layout has no name for the key.
    pub fn object_path(&self, key: &ObjectKey) -> Result<Path, L2Error> {
        Ok(self.inner.namer.path(key)?)
    }

    /// How full the cache is, without asking the store.
    pub fn usage(&self) -> Usage {
        self.inner.state.lock().usage(self.inner.capacity)
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }
}

impl Inner {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Begins an operation, which `close` will wait for as long as the token lives.
    pub(super) fn enter(&self) -> Entered {
        // The token comes first: `close` either sees it, or has set the flag that is read next.
        let token = self.calls.token();
        if self.is_closed() {
            return Err(L2Error::Closed);
        }
        Ok(token)
    }

    /// What the store holds at a path; `None` if nothing.
    pub(super) async fn head(&self, path: &Path) -> Result<Option<Known>, object_store::Error> {
        // The semaphore is never closed.
        let _permit = self.lookups.acquire().await.ok();
        let found = self.get(path, GetOptions::new().with_head(true)).await?;
        Ok(found.map(|found| known(found.meta)))
    }

    /// Asks for what the store holds at a path; `None` if nothing.
    pub(super) async fn get(
        &self,
        path: &Path,
        options: GetOptions,
    ) -> Result<Option<GetResult>, object_store::Error> {
        match self.store.get_opts(path, options).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            // Where no object can have such a name, there is none.
            Err(error) if refuses_name(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the recorder how full the cache is; not under the lock, since it is not our code.
    pub(super) fn count_used(&self) {
        let (bytes, keys) = {
            let state = self.state.lock();
            (state.ledger.total(), state.ledger.len())
        };
        self.stats.used(bytes, keys);
    }

    pub(super) fn store_error(
        &self,
        operation: &'static str,
        path: &Path,
        source: Arc<object_store::Error>,
    ) -> L2Error {
        L2Error::Store {
            operation,
            path: path.to_string(),
            store: self.store.to_string(),
            source,
        }
    }
}

pub(super) fn known(meta: ObjectMeta) -> Known {
    Known {
        size: meta.size,
        version: meta.version.map(Version::from),
    }
}

impl fmt::Debug for L2Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("L2Adapter")
            .field("store", &format_args!("{}", self.inner.store))
            .field("prefix", &self.inner.namer.prefix().as_ref())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A lifetime in seconds; what no clock can count is for ever, as good as.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
