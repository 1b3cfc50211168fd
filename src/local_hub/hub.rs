//! What all routes share: the state, and the one way to change it.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::answer::Refusal;
use super::auth::TokenGrant;
use super::clock::Clock;
use super::content::Content;
use super::extract::Origins;
use super::faults::Faults;
use super::limiter::Limiter;
use super::persist::Persist;
use super::requests::Counter;
use super::signing::Signer;
use super::state::{Change, State};

pub(super) struct Hub {
    /// As this machine reaches it.
    pub(super) origins: Origins,
    pub(super) cas_port: u16,
    pub(super) files_port: u16,
    pub(super) grants: Vec<TokenGrant>,
    pub(super) clock: Clock,
    pub(super) requests: Counter,
    pub(super) faults: Faults,
    pub(super) limiter: Option<Limiter>,
    pub(super) signer: Signer,
    pub(super) content: Content,
    /// At most this many items on a page, and now and then an empty one.
    pub(super) short_pages: bool,
    pub(super) state: RwLock<State>,
    /// Held while a change is made, on a blocking thread: changes follow one another.
    writer: Mutex<Option<Persist>>,
    serial: std::sync::atomic::AtomicU64,
}

/// What a [`Hub`] starts from.
pub(super) struct HubParts {
    pub(super) origins: Origins,
    pub(super) cas_port: u16,
    pub(super) files_port: u16,
    pub(super) grants: Vec<TokenGrant>,
    pub(super) limiter: Option<Limiter>,
    pub(super) content: Content,
    pub(super) short_pages: bool,
    pub(super) state: State,
    pub(super) persist: Option<Persist>,
}

impl Hub {
    pub(super) fn new(parts: HubParts) -> Self {
        Self {
            origins: parts.origins,
            cas_port: parts.cas_port,
            files_port: parts.files_port,
            grants: parts.grants,
            clock: Clock::default(),
            requests: Counter::default(),
            faults: Faults::default(),
            limiter: parts.limiter,
            signer: Signer::new(),
            content: parts.content,
            short_pages: parts.short_pages,
            state: RwLock::new(parts.state),
            writer: Mutex::new(parts.persist),
            serial: std::sync::atomic::AtomicU64::new(1),
        }
    }

    /// Makes a change: `plan` sees the state and says what to change and what to answer. The changes
    /// are on disk, if there is one, before they are seen by anybody else.
    pub(super) async fn change<R: Send + 'static>(
        self: &Arc<Self>,
        plan: impl FnOnce(&State) -> Result<(Vec<Change>, R), Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let hub = Arc::clone(self);
        tokio::task::spawn_blocking(move || hub.change_blocking(plan))
            .await
            .map_err(Refusal::internal)?
    }

    fn change_blocking<R>(
        &self,
        plan: impl FnOnce(&State) -> Result<(Vec<Change>, R), Refusal>,
    ) -> Result<R, Refusal> {
        let writer = self.writer.lock();
        let (changes, answer) = plan(&self.state.read())?;
        if changes.is_empty() {
            return Ok(answer);
        }
        if let Some(persist) = &*writer {
            // Readers go on: only this thread may change what the guard protects.
            persist
                .write(&self.state.read(), &changes)
                .map_err(Refusal::internal)?;
        }
        let mut state = self.state.write();
        for change in changes {
            state.apply(change);
        }
        Ok(answer)
    }

    /// A number that no other call gets: for request ids and bucket ids.
    pub(super) fn next_serial(&self) -> u64 {
        self.serial
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}
