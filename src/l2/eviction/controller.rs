//! Starts an eviction the moment the cache is too full.
//!
//! One [run](super::run) at a time. Whatever fills the cache, makes room or frees keys again (a
//! store, an unlock, a listing, a lease that ends) wakes the controller.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::Instrument;

use super::run::Run;
use crate::l2::adapter::{Inner, L2Adapter};
use crate::l2::config::{EvictionConfig, EvictionUnit};

/// When to evict and how much, and whether a run is under way.
#[derive(Debug)]
pub(in crate::l2) struct Controller {
    pub(super) capacity: u64,
    pub(super) watermark: f64,
    pub(super) ratio: f64,
    pub(super) unit: EvictionUnit,
    /// Changed only under the state's lock, so that no wake-up falls between a run's last look and
    /// its end.
    running: watch::Sender<bool>,
}

impl Controller {
    pub(in crate::l2) fn new(config: &EvictionConfig, capacity: u64) -> Self {
        Self {
            capacity,
            watermark: config.trigger_watermark,
            ratio: config.eviction_ratio,
            unit: config.eviction_unit,
            running: watch::Sender::new(false),
        }
    }

    pub(in crate::l2) fn is_running(&self) -> bool {
        *self.running.borrow()
    }

    pub(super) fn set_running(&self, running: bool) {
        self.running.send_replace(running);
    }
}

impl L2Adapter {
    /// Waits until no eviction is running, nor held back by the first listing of the pool. Returns at
    /// once if that is so now.
    pub async fn eviction_idle(&self) {
        if let Some(controller) = &self.inner.controller {
            // Both senders live as long as the adapter.
            let mut ordered = self.inner.ordered.subscribe();
            let _ = ordered.wait_for(|ordered| *ordered).await;
            let mut running = controller.running.subscribe();
            let _ = running.wait_for(|running| !running).await;
        }
    }

    /// Evicts now if the cache is too full, and waits for the end of the run.
    ///
    /// Nobody needs to call this: stores, unlocks and listings start evictions by themselves. It is
    /// for tools that open a full pool and wait until it is within its capacity.
    pub async fn evict(&self) {
        self.inner.wake_eviction();
        self.eviction_idle().await;
    }

    /// Gives a salt a quota in bytes, from now on; `None` makes it unregistered again
    /// ([`unregistered_salts`](super::super::EvictionConfig::unregistered_salts) says what that
    /// means). For the policy `IsolatedLRU`; others have no quotas and ignore it.
    pub fn set_salt_quota(&self, cache_salt: &str, bytes: Option<u64>) {
        self.inner.state.lock().set_quota(cache_salt, bytes);
        self.inner.wake_eviction();
    }
}

impl Inner {
    /// Starts a run if the cache is too full and none is under way.
    pub(in crate::l2) fn wake_eviction(self: &Arc<Self>) {
        let Some(controller) = &self.controller else {
            return;
        };
        // A close that begins now waits until the run is known to it.
        let Ok(_work) = self.enter() else { return };
        {
            let state = self.state.lock();
            if !controller.is_over(&state) || controller.is_running() {
                return;
            }
            controller.set_running(true);
        }
        let run = Run::new(self).finish();
        self.spawn(run.instrument(tracing::debug_span!("l2_evict")));
    }
}
