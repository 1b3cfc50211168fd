//! Closing in bounded time: first everything may end by itself, then it is ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::adapter::{Inner, L2Adapter};
use super::error::L2Error;

/// How long [`L2Adapter::close`] lets work end by itself.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// How long calls are waited for after they were ended. Each ends when its caller polls it the next
/// time; a caller that does not must not hold up the close for ever.
const CALLER_GRACE: Duration = Duration::from_secs(1);

impl L2Adapter {
    /// Ends the adapter: waits for running work, stops eviction, forgets cache and locks.
    ///
    /// As [`close_within`](Self::close_within) with a limit of 30 seconds.
    pub async fn close(&self) {
        self.close_within(CLOSE_LIMIT).await;
    }

    /// Ends the adapter in bounded time; true if all accepted work ended by itself.
    ///
    /// From the first poll on, new calls fail with [`L2Error::Closed`] and eviction starts no other
    /// delete. What was accepted before goes on, also what waits for its turn, until the limit.
    /// Then it is ended: keys that were not done fail with [`L2Error::Closed`], and their objects
    /// may or may not be in the store. When this returns, no task of the adapter is left, its cache
    /// and its locks are forgotten, and usage and status stay readable.
    ///
    /// Closing again, also at the same time, waits for the same end; the shortest limit counts.
    ///
    /// # Limits of the limit
    ///
    /// Work ends where it waits, and so a store that blocks its thread holds up the close. A call
    /// whose future nobody polls is waited for one second longer, then left to its owner; if it is
    /// polled later, it fails like the others. A blocking read or write of a local file that has
    /// begun finishes in the background, and so does what the store itself does there.
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves the adapter closed and its work running, now without a limit.
    /// Closing again finishes the job.
    ///
    /// # Panics
    ///
    /// If the tokio runtime has no timer.
    pub async fn close_within(&self, limit: Duration) -> bool {
        let inner = &self.inner;
        inner.closed.store(true, Ordering::SeqCst);
        inner.stop.cancel();
        inner.calls.close();
        inner.tracker.close();
        if timeout(limit, inner.idle()).await.is_err() {
            inner.kill().await;
        }
        inner.ordered.send_replace(true);
        inner.state.lock().clear();
        !inner.killed.is_cancelled()
    }
}

impl Inner {
    /// Waits until nothing runs. Calls come first, since they start tasks.
    async fn idle(&self) {
        self.calls.wait().await;
        self.tracker.wait().await;
    }

    async fn kill(&self) {
        self.killed.cancel();
        if timeout(CALLER_GRACE, self.calls.wait()).await.is_err() {
            tracing::warn!(
                calls = self.calls.len(),
                "an L2 adapter closes before calls that nobody polls"
            );
        }
        self.tracker.wait().await;
    }

    /// Runs work until it ends, or until a close that waited long enough ends it.
    pub(super) async fn unless_killed<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, L2Error> {
        tokio::select! {
            // First, since the end of one may be the turn of the next, which must not begin.
            biased;
            () = self.killed.cancelled() => Err(L2Error::Closed),
            result = work => Ok(result),
        }
    }

    /// Runs work as a task that a close waits for, or ends.
    pub(super) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Result<T, L2Error>> {
        let inner = Arc::clone(self);
        self.spawn_unkilled(async move { inner.unless_killed(work).await })
    }

    /// Runs work as a task that a close waits for and does not end. On the adapter's runtime, whoever
    /// calls: a lock may end on a thread that knows nothing of tokio, and begin an eviction.
    pub(super) fn spawn_unkilled<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tracker.spawn_on(work, &self.runtime)
    }
}
