//! What happens to the keys of an adapter, told to whoever listens.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

use super::adapter::L2Adapter;
use super::key::ObjectKey;

/// Events that wait for one listener at most, which is also what a listener can be behind.
const CHANNEL: usize = 1024;

/// Something that happened to keys, in the order in which the adapter counted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To which keys. For [`EventKind::Accessed`] in the order of the lookup, duplicates included.
    pub entries: Vec<EventEntry>,
}

/// What can happen to keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EventKind {
    /// Objects were stored by this adapter, and are counted. Comes before the store returns.
    Stored,
    /// A lookup found and locked keys. Comes when its result is known.
    Accessed,
    /// Objects were deleted on request, and are not counted any more.
    Deleted,
    /// Objects were deleted to make room, and are not counted any more.
    Evicted,
    /// Objects were found in the store by a listing, and are counted now.
    Recovered,
    /// Counted objects turned out to be gone, by someone else's doing.
    Vanished,
}

/// A key that something happened to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EventEntry {
    /// The key.
    pub key: ObjectKey,
    /// The object's size in bytes: what is counted now, or was counted until now.
    pub bytes: u64,
    /// For [`EventKind::Stored`], the bytes that were counted for the key before: `None` if it is new.
    pub replaced_bytes: Option<u64>,
}

impl EventEntry {
    pub(super) fn new(key: ObjectKey, bytes: u64) -> Self {
        Self {
            key,
            bytes,
            replaced_bytes: None,
        }
    }
}

/// What a listener gets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Something happened.
    Event(Arc<Event>),
    /// The listener was too slow: so many events are lost to it, all before the next one.
    /// [`L2Adapter::list_keys`] says what is stored now.
    Missed {
        /// How many.
        events: u64,
    },
}

/// A listener; see [`L2Adapter::events`].
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Arc<Event>>,
}

impl Events {
    /// Waits for the next notice; `None` when the adapter is closed and all was told. Dropping the
    /// future loses nothing.
    pub async fn next(&mut self) -> Option<Notice> {
        match self.receiver.recv().await {
            Ok(event) => Some(Notice::Event(event)),
            Err(RecvError::Lagged(events)) => Some(Notice::Missed { events }),
            Err(RecvError::Closed) => None,
        }
    }

    /// The next notice if there is one now.
    pub fn try_next(&mut self) -> Option<Notice> {
        match self.receiver.try_recv() {
            Ok(event) => Some(Notice::Event(event)),
            Err(TryRecvError::Lagged(events)) => Some(Notice::Missed { events }),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl L2Adapter {
    /// Listens to what happens from now on.
    ///
    /// Up to 1024 events wait for a listener; beyond that the oldest are dropped and it is told how
    /// many ([`Notice::Missed`]). Events have the order in which the adapter counted: a key's
    /// `Stored` comes before its `Deleted`. Stores and deletes tell before they return, lookups when
    /// their result is known. After [`close`](Self::close) the channel ends.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use hfbucket::l2::{EventKind, L2Adapter, L2Config, Notice, ObjectKey};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = L2Config::from_json(r#"{"type": "object_store", "url": "memory:///pool"}"#)?;
    /// let adapter = L2Adapter::open(config).await?;
    /// let mut events = adapter.events();
    /// let key = ObjectKey::new("m", 0x0100_0100, [1])?;
    /// adapter.store(vec![(key.clone(), Bytes::from_static(b"chunk"))]).await;
    /// let Some(Notice::Event(event)) = events.next().await else { panic!() };
    /// assert_eq!(event.kind, EventKind::Stored);
    /// assert_eq!((&event.entries[0].key, event.entries[0].bytes), (&key, 5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        Events {
            receiver: self.inner.state.lock().events.subscribe(),
        }
    }
}

/// The adapter's end of the channel.
#[derive(Debug)]
pub(super) struct Publisher {
    /// `None` after the end.
    sender: Option<broadcast::Sender<Arc<Event>>>,
}

impl Default for Publisher {
    fn default() -> Self {
        Self {
            sender: Some(broadcast::Sender::new(CHANNEL)),
        }
    }
}

impl Publisher {
    /// Whether anyone listens.
    pub(super) fn is_heard(&self) -> bool {
        self.heard().is_some()
    }

    fn heard(&self) -> Option<&broadcast::Sender<Arc<Event>>> {
        let sender = self.sender.as_ref();
        sender.filter(|sender| sender.receiver_count() > 0)
    }

    /// Tells, if anyone listens; only then the entries are made. Never waits.
    pub(super) fn publish(&self, kind: EventKind, entries: impl FnOnce() -> Vec<EventEntry>) {
        let Some(sender) = self.heard() else {
            return;
        };
        let entries = entries();
        if !entries.is_empty() {
            // Fails only if the last listener is gone.
            let _ = sender.send(Arc::new(Event { kind, entries }));
        }
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        match &self.sender {
            Some(sender) => sender.subscribe(),
            None => broadcast::Sender::new(1).subscribe(),
        }
    }

    pub(super) fn end(&mut self) {
        self.sender = None;
    }
}
