//! The tasks of one kind: how many are under way, and the results that wait to be collected.

use std::io;
use std::sync::Arc;

use hashlink::LinkedHashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::event::Event;
use super::id::TaskId;
use crate::l2::error::L2Error;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Lane<T> {
    state: Mutex<State<T>>,
    /// Signalled and cleared under the lock, so that it is readable exactly while results wait
    /// (unless the poller reads it itself).
    event: Event,
    completed: Notify,
}

#[derive(Debug)]
struct State<T> {
    pending: usize,
    /// In the order of completion.
    done: LinkedHashMap<TaskId, T>,
}

impl<T> Lane<T> {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let state = State {
            pending: 0,
            done: LinkedHashMap::new(),
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            event: Event::new()?,
            completed: Notify::new(),
        }))
    }

    pub(super) fn pending(&self) -> usize {
        self.state.lock().pending
    }

    pub(super) fn drain(&self) -> Vec<(TaskId, T)> {
        let done = {
            let mut state = self.state.lock();
            self.event.clear();
            std::mem::take(&mut state.done)
        };
        done.into_iter().collect()
    }

    pub(super) fn take(&self, id: TaskId) -> Option<T> {
        let mut state = self.state.lock();
        let result = state.done.remove(&id)?;
        if state.done.is_empty() {
            self.event.clear();
        }
        Some(result)
    }

    /// Waits until a result can be collected.
    pub(super) async fn completed(&self) {
        loop {
            // Hears of every completion from here on, polled or not.
            let next = self.completed.notified();
            if !self.state.lock().done.is_empty() {
                return;
            }
            next.await;
        }
    }

    fn complete(&self, id: TaskId, result: T) {
        {
            let mut state = self.state.lock();
            state.pending = state.pending.saturating_sub(1);
            state.done.insert(id, result);
            // Each time, not only for the first: a poller that reads the event itself and collects
            // by id would else miss one that completes between the two.
            self.event.signal();
        }
        self.completed.notify_waiters();
    }

    #[cfg(target_os = "linux")]
    pub(super) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.fd()
    }
}

/// What a task is to result in.
pub(super) trait Promise {
    type Result;

    /// The result if nothing could be done.
    fn broken(&mut self, why: &L2Error) -> Self::Result;
}

/// A result that is owed: one way or other, it reaches the lane.
pub(super) struct Owed<P: Promise> {
    lane: Arc<Lane<P::Result>>,
    id: TaskId,
    pub(super) promise: P,
    is_paid: bool,
}

impl<P: Promise> Owed<P> {
    pub(super) fn new(lane: &Arc<Lane<P::Result>>, id: TaskId, promise: P) -> Self {
        lane.state.lock().pending += 1;
        Self {
            lane: Arc::clone(lane),
            id,
            promise,
            is_paid: false,
        }
    }

    pub(super) fn pay(mut self, result: P::Result) {
        self.complete(result);
    }

    pub(super) fn fail(mut self, why: &L2Error) {
        let result = self.promise.broken(why);
        self.complete(result);
    }

    fn complete(&mut self, result: P::Result) {
        self.is_paid = true;
        self.lane.complete(self.id, result);
    }
}

impl<P: Promise> Drop for Owed<P> {
    /// The task was dropped in the middle.
    fn drop(&mut self) {
        if self.is_paid {
            return;
        }
        let reason = if std::thread::panicking() {
            "it panicked"
        } else {
            "its runtime shut down"
        };
        let lost = L2Error::Lost {
            reason: reason.to_owned(),
        };
        let result = self.promise.broken(&lost);
        self.complete(result);
    }
}
