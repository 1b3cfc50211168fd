//! Ends locks whose lease is over, also when nothing else happens: a full cache may wait for them.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::adapter::Inner;

impl Inner {
    /// Works in the background until the adapter is closed or dropped.
    pub(super) fn watch_leases(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.spawn_unkilled(async move {
            tokio::select! {
                biased;
                () = inner.stop.cancelled() => {}
                () = inner.end_leases() => {}
            }
        });
    }

    async fn end_leases(self: &Arc<Self>) {
        loop {
            let next = self.state.lock().locks.next_lapse();
            match next {
                Some(at) => sleep_until(at).await,
                None => self.locked.notified().await,
            }
            let lapsed = {
                let mut state = self.state.lock();
                let state = &mut *state;
                state.locks.lapse(&mut state.index, Instant::now())
            };
            if lapsed > 0 {
                tracing::warn!(keys = lapsed, "locks lapsed: nobody ended them in time");
                self.stats.lapsed(lapsed);
                self.wake_eviction();
            }
        }
    }
}
