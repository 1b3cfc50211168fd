//! What is in the store already: listed at start, so that usage and eviction order survive a restart,
//! and again from time to time, so that they count what others do in a shared pool.

mod keeper;
mod pass;

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::sync::watch;

pub(super) use self::keeper::Keeper;
use super::adapter::{Inner, L2Adapter};
use super::error::L2Error;
use super::store::lost;

/// How far a listing is, or what came of the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether it is under way.
    pub phase: RecoveryPhase,
    /// Objects seen below the prefix.
    pub listed_objects: u64,
    /// Bytes of them, foreign ones not included.
    pub listed_bytes: u64,
    /// Objects whose names are no keys of this adapter's layout. They are left alone and not counted.
    pub foreign_objects: u64,
    /// Keys that were not tracked before.
    pub recovered_keys: u64,
    /// Tracked keys that turned out to be gone.
    pub vanished_keys: u64,
    /// Time from the first request until now, or until the end; serialised as `elapsed_secs`.
    #[serde(rename = "elapsed_secs", serialize_with = "as_seconds")]
    pub elapsed: Duration,
    /// Why the last attempt failed; the next one follows by itself.
    pub error: Option<String>,
}

/// See [`Recovery`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RecoveryPhase {
    /// The pool was never listed: only what this adapter stored itself is known.
    #[default]
    Never,
    /// A listing is under way.
    Listing,
    /// All objects are listed, and their keys are being put in order.
    Ordering,
    /// The last listing is done.
    Done,
    /// The last listing failed. What it had seen by then is counted.
    Failed,
}

fn as_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl Recovery {
    fn is_running(&self) -> bool {
        matches!(self.phase, RecoveryPhase::Listing | RecoveryPhase::Ordering)
    }
}

impl L2Adapter {
    /// How far the listing of the pool is, or what came of the last one.
    pub fn recovery(&self) -> Recovery {
        self.inner.recovery.borrow().clone()
    }

    /// Waits until the pool was listed once since the adapter was opened, and begins that if nobody
    /// has. Lookups, stores and loads need not wait for it.
    ///
    /// # Errors
    ///
    /// [`L2Error::Store`] if an attempt failed; with
    /// [`recover_on_start`](super::L2Config::recover_on_start) others follow by themselves.
    /// [`L2Error::Closed`] if the adapter is closed.
    pub async fn recovered(&self) -> Result<Recovery, L2Error> {
        if self.inner.is_listed() {
            return Ok(self.recovery());
        }
        self.list(true).await
    }

    /// Lists the pool now and makes usage agree with it: other writers' objects are counted, and
    /// what others deleted is forgotten. Stores and deletes may run meanwhile; what they do is newer
    /// than what the listing says. One listing at a time: others wait for their turn.
    ///
    /// Dropping the future does not stop the listing.
    ///
    /// # Errors
    ///
    /// [`L2Error::Store`] if the store refused; what had been seen by then is counted.
    /// [`L2Error::Closed`] if the adapter is closed.
    pub async fn resync(&self) -> Result<Recovery, L2Error> {
        self.list(false).await
    }

    /// What [`recovery`](Self::recovery) says, as it changes.
    pub fn watch_recovery(&self) -> watch::Receiver<Recovery> {
        self.inner.recovery.subscribe()
    }

    async fn list(&self, once: bool) -> Result<Recovery, L2Error> {
        let _work = self.inner.enter()?;
        let listing = Arc::clone(&self.inner).list_until_stopped(once);
        match self.inner.spawn_unkilled(listing).await {
            Ok(listed) => listed,
            Err(error) => Err(lost(&error)),
        }
    }
}

impl Inner {
    async fn list_until_stopped(self: Arc<Self>, once: bool) -> Result<Recovery, L2Error> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(L2Error::Closed),
            listed = self.list_pool(once) => listed,
        }
    }
}
