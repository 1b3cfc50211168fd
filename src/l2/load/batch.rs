//! A batch under way: objects are opened concurrently, streams fill their buffers as they come, and
//! opened files gather until a window of them is read at once.
//!
//! Of the permits for downloads an opening takes one, and keeps it while its stream flows. A window
//! keeps one in all, so that the next files can be opened, and takes others that nobody needs when it
//! is read by several threads. No window waits for a permit: when no opening is with the store, what
//! has gathered is read. So loads end whatever the number of permits, of keys and of other loads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use object_store::path::Path;
use object_store::{GetResult, GetResultPayload};
use tokio::sync::SemaphorePermit;

use super::files::{self, OpenFile, Window};
use super::{Broken, LoadOutcome, stream};
use crate::l2::adapter::Inner;
use crate::l2::error::L2Error;
use crate::l2::key::ObjectKey;

/// Objects of one load that are opened or open, or as many as downloads at a time if that is more.
const MOST_FILES: usize = 32;

/// What became of an opening.
enum Step<'a> {
    /// The position is settled.
    Done(usize, LoadOutcome),
    /// Its file is to be read.
    Opened(OpenFile<'a>, Option<SemaphorePermit<'a>>),
}

/// Loads each key into the buffer at its position.
pub(super) async fn load<'a>(
    inner: &'a Arc<Inner>,
    keys: &'a [ObjectKey],
    buffers: impl Iterator<Item = &'a mut [u8]>,
) -> Vec<LoadOutcome> {
    // Openings that hold a permit and wait for the store.
    let with_store = AtomicUsize::new(0);
    let mut waiting = (keys.iter().zip(buffers).enumerate())
        .map(|(position, (key, buffer))| Opening {
            inner,
            position,
            key,
            buffer,
        })
        .fuse();
    let mut openings = FuturesUnordered::new();
    let mut window = Window::new(&inner.downloads);
    let at_once = MOST_FILES.max(inner.config.num_workers());
    let mut outcomes = vec![LoadOutcome::NotFound; keys.len()];
    let mut settle = |position: usize, outcome: LoadOutcome| {
        if let Some(place) = outcomes.get_mut(position) {
            *place = outcome;
        }
    };
    loop {
        while openings.len() + window.len() < at_once
            && let Some(opening) = waiting.next()
        {
            let position = opening.position;
            let step = inner.unless_killed(opening.run(&with_store));
            openings.push(step.map(move |step| {
                step.unwrap_or_else(|closed| Step::Done(position, LoadOutcome::Failed(closed)))
            }));
        }
        let gathers = window.len() == 0 || with_store.load(Ordering::Relaxed) > 0;
        let step = if gathers {
            openings.next().await
        } else {
            // Those that wait for a permit may have one by now.
            let step = openings.next().now_or_never();
            if step.is_none() && with_store.load(Ordering::Relaxed) > 0 {
                continue;
            }
            step.flatten()
        };
        match step {
            Some(Step::Done(position, outcome)) => settle(position, outcome),
            Some(Step::Opened(file, permit)) => window.push(file, permit),
            None if window.len() == 0 => break,
            None => {
                for (file, read) in window.take().read().await {
                    let outcome = inner.outcome(&file.path, file.buffer.len(), read);
                    settle(file.position, outcome);
                }
            }
        }
    }
    outcomes
}

/// One position of a load.
struct Opening<'a> {
    inner: &'a Arc<Inner>,
    position: usize,
    key: &'a ObjectKey,
    buffer: &'a mut [u8],
}

impl<'a> Opening<'a> {
    async fn run(self, with_store: &AtomicUsize) -> Step<'a> {
        let path = match self.inner.namer.path(self.key) {
            Ok(path) => path,
            Err(error) => return Step::Done(self.position, LoadOutcome::Failed(error.into())),
        };
        // The semaphore is never closed.
        let permit = self.inner.downloads.acquire().await.ok();
        with_store.fetch_add(1, Ordering::Relaxed);
        let size = self.buffer.len();
        let found = self.inner.open_object(self.key, &path, size).await;
        with_store.fetch_sub(1, Ordering::Relaxed);
        let outcome = match found {
            Ok(None) => LoadOutcome::NotFound,
            Ok(Some(found)) if found.meta.size != size as u64 => LoadOutcome::SizeMismatch {
                actual: found.meta.size,
            },
            Ok(Some(found)) => return self.fill(path, found, permit).await,
            Err(error) => (self.inner).outcome(&path, size, Err(Broken::Store(error))),
        };
        Step::Done(self.position, outcome)
    }

    async fn fill(
        self,
        path: Path,
        found: GetResult,
        permit: Option<SemaphorePermit<'a>>,
    ) -> Step<'a> {
        let size = self.buffer.len();
        let read = match found.payload {
            GetResultPayload::Stream(stream) => stream::fill(stream, self.buffer).await,
            GetResultPayload::File(file, _) => {
                let mut file = OpenFile {
                    position: self.position,
                    path,
                    file: Arc::new(file),
                    start: found.range.start,
                    buffer: self.buffer,
                };
                if files::may_block_here() {
                    return Step::Opened(file, permit);
                }
                let read = file.read_elsewhere().await;
                return Step::Done(file.position, self.inner.outcome(&file.path, size, read));
            }
        };
        Step::Done(self.position, self.inner.outcome(&path, size, read))
    }
}

impl Inner {
    fn outcome(&self, path: &Path, size: usize, read: Result<(), Broken>) -> LoadOutcome {
        LoadOutcome::Failed(match read {
            Ok(()) => {
                tracing::trace!(%path, size, "loaded");
                return LoadOutcome::Hit;
            }
            Err(Broken::Store(error)) => self.store_error("load", path, Arc::new(error)),
            Err(Broken::Length(found)) => L2Error::Truncated {
                path: path.to_string(),
                store: self.store.to_string(),
                expected: size as u64,
                found,
            },
        })
    }
}
