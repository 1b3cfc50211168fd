//! Loading a batch into the caller's buffers.

mod batch;
mod files;
mod open;
mod stream;

use tokio::time::Instant;
use tracing::Instrument;

use super::adapter::{Entered, Inner, L2Adapter};
use super::bitmap::Bitmap;
use super::error::L2Error;
use super::key::ObjectKey;

/// What became of each position of a load.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loaded {
    /// By submitted position.
    pub outcomes: Vec<LoadOutcome>,
}

/// What became of one position of a load.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LoadOutcome {
    /// The buffer holds the object, all of it and of one version.
    Hit,
    /// There is no such object. The buffer is untouched.
    NotFound,
    /// The object has another size than the buffer, which is untouched.
    SizeMismatch {
        /// The object's size.
        actual: u64,
    },
    /// The object could not be read. The buffer may hold a part of it.
    Failed(L2Error),
}

impl LoadOutcome {
    /// Whether the buffer holds the object.
    pub fn is_hit(&self) -> bool {
        matches!(self, Self::Hit)
    }
}

impl Loaded {
    /// By submitted position: whether the buffer holds the object.
    pub fn bitmap(&self) -> Bitmap {
        self.outcomes.iter().map(LoadOutcome::is_hit).collect()
    }

    /// Whether every buffer holds its object.
    pub fn is_ok(&self) -> bool {
        self.outcomes.iter().all(LoadOutcome::is_hit)
    }

    /// How many leading buffers hold their object.
    pub fn prefix_hits(&self) -> usize {
        self.bitmap().leading_ones()
    }

    /// The first failure, if any; misses are none.
    pub fn first_error(&self) -> Option<&L2Error> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            LoadOutcome::Failed(error) => Some(error),
            _ => None,
        })
    }

    pub(super) fn failed(keys: usize, error: &L2Error) -> Self {
        Self {
            outcomes: vec![LoadOutcome::Failed(error.clone()); keys],
        }
    }
}

impl L2Adapter {
    /// Reads each key's object into the buffer at the same position, whose length is the size that
    /// the object must have. Takes anything that lends its bytes: `&mut [u8]`, `Vec<u8>`,
    /// `BytesMut`.
    ///
    /// Bytes go from the store's stream, or from its files, into the buffer with one copy and nothing
    /// between, at most [`num_workers`](super::L2Config::num_workers) objects at a time. Files are
    /// read by the calling thread and some more, in [`tokio::task::block_in_place`]; where that may
    /// not be used (on a runtime of one thread, in a `LocalSet`) by the runtime's blocking threads,
    /// with a second copy. A position is a hit if the buffer was filled by exactly one version of the
    /// object. An empty object fills an empty buffer, although a lookup calls it a miss.
    ///
    /// If the store names its contents (the Hub does; S3 with versioning), a load reads the very
    /// content that the last store or lookup saw, as long as that is believed
    /// ([`metadata_cache_ttl_secs`](super::L2Config::metadata_cache_ttl_secs)): it costs no question
    /// to the store, and gives what was looked up even if another writer replaced or deleted the
    /// object since. Otherwise the path decides, and what is found corrects what later lookups
    /// answer.
    ///
    /// A load needs no lock and releases none, and does not count as a use.
    ///
    /// With another number of buffers than keys, every position fails with [`L2Error::Buffers`].
    pub async fn load<B: AsMut<[u8]> + Send>(
        &self,
        keys: &[ObjectKey],
        buffers: &mut [B],
    ) -> Loaded {
        self.load_entered(self.inner.enter(), keys, buffers).await
    }

    pub(super) async fn load_entered<B: AsMut<[u8]> + Send>(
        &self,
        entered: Entered,
        keys: &[ObjectKey],
        buffers: &mut [B],
    ) -> Loaded {
        let _work = match entered {
            Ok(work) => work,
            Err(error) => return Loaded::failed(keys.len(), &error),
        };
        if keys.len() != buffers.len() {
            let (keys, buffers) = (keys.len(), buffers.len());
            return Loaded::failed(keys, &L2Error::Buffers { keys, buffers });
        }
        let started = Instant::now();
        let span = tracing::debug_span!("l2_load", keys = keys.len());
        let buffers: Vec<&mut [u8]> = buffers.iter_mut().map(AsMut::as_mut).collect();
        let sizes: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let load = batch::load(&self.inner, keys, buffers.into_iter());
        let outcomes = load.instrument(span).await;
        self.inner.count_loaded(&outcomes, &sizes, started);
        Loaded { outcomes }
    }
}

impl Inner {
    fn count_loaded(&self, outcomes: &[LoadOutcome], sizes: &[usize], started: Instant) {
        let both = || outcomes.iter().zip(sizes);
        let hits = both().filter(|(outcome, _)| outcome.is_hit());
        let (keys, bytes) = hits.fold((0, 0), |(keys, bytes), (_, size)| {
            (keys + 1, bytes + *size as u64)
        });
        self.stats
            .loaded(keys, bytes, outcomes.len() - keys, started);
    }
}

/// Why an object could not be read to its end.
#[derive(Debug)]
enum Broken {
    Store(object_store::Error),
    /// So many bytes came, and not as many as announced.
    Length(u64),
}

impl From<object_store::Error> for Broken {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}
