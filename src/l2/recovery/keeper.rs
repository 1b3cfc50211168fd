//! Keeps the books in agreement with the pool: lists it at start, then from time to time.

use std::sync::Arc;
use std::time::Duration;

use crate::l2::adapter::Inner;

/// Waits after failed attempts at the first listing; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is listed when.
#[derive(Debug, Clone, Copy)]
pub(in crate::l2) struct Keeper {
    pub(in crate::l2) at_start: bool,
    pub(in crate::l2) every: Option<Duration>,
}

impl Keeper {
    /// Works in the background until the adapter is closed or dropped.
    pub(in crate::l2) fn spawn(self, inner: &Arc<Inner>) {
        if self.at_start || self.every.is_some() {
            inner.spawn_unkilled(self.run(Arc::clone(inner)));
        }
    }

    async fn run(self, inner: Arc<Inner>) {
        let stop = inner.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.keep(&inner) => {}
        }
    }

    async fn keep(self, inner: &Arc<Inner>) {
        if self.at_start {
            recover(inner).await;
        }
        let Some(every) = self.every else { return };
        loop {
            tokio::time::sleep(every).await;
            let mark = inner.change_mark().await;
            if mark.is_some() && *inner.last_mark.lock() == mark {
                continue;
            }
            // What went wrong is in the log and in the adapter's status.
            let _ = inner.list_pool(false).await;
        }
    }
}

/// Until it succeeds: without it a full pool looks empty, and is never evicted.
async fn recover(inner: &Arc<Inner>) {
    let mut pause = FIRST_PAUSE;
    while inner.list_pool(true).await.is_err() {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
