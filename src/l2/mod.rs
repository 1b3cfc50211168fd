//! A KV-cache L2 tier over any [`ObjectStore`](object_store::ObjectStore).
//!
//! [`L2Adapter`] keeps the chunks of an LLM's KV cache as objects: it names them as LMCache does,
//! remembers what it has seen, counts what is stored, locks what is in use and evicts when full.
//! Start there. [`L2Config`] is what it is told, [`ObjectKey`] what a chunk is called. [`Tasks`] is
//! the same for callers that live outside of its runtime and poll file descriptors.
//!
//! # What is certain
//!
//! - A store is reported as done when the object is in the store, each key for itself.
//! - A hit of [`lookup_and_lock`](L2Adapter::lookup_and_lock) is not deleted by this adapter before
//!   its lock ends.
//! - A load fills a buffer with one version of an object, or is no hit.
//! - Usage is the sum of the sizes of the tracked objects, whatever is overwritten, deleted or fails
//!   at the same time.

mod adapter;
mod admission;
mod bitmap;
mod bookkeeping;
mod chunk_hash;
mod close;
mod column;
mod config;
mod delete;
mod error;
mod events;
mod eviction;
mod gates;
mod guard;
mod index;
mod key;
mod keys;
mod leases;
mod listing;
mod lists;
mod load;
mod locks;
mod lookup;
mod metadata_cache;
mod naming;
mod open;
mod question;
mod recovery;
mod state;
mod stats;
mod status;
mod store;
mod tasks;
mod usage;

pub use self::adapter::L2Adapter;
pub use self::bitmap::Bitmap;
#[doc(hidden)]
pub use self::bookkeeping::Bookkeeping;
pub use self::config::{
    Admission, Backend, ConfigError, EvictionConfig, EvictionUnit, HfBucketConfig, L2Config,
    ObjectStoreConfig, PolicyName, UnregisteredSalts,
};
pub use self::delete::{DeleteOutcome, DeleteReport};
pub use self::error::L2Error;
pub use self::events::{Event, EventEntry, EventKind, Events, Notice};
pub use self::guard::LockGuard;
pub use self::key::{KeyError, MAX_SALT_CHARS, ObjectKey};
pub use self::keys::{KeyEntry, KeyPage, MAX_PAGE_SIZE};
pub use self::load::{LoadOutcome, Loaded};
pub use self::lookup::Lookup;
pub use self::naming::KeyLayout;
pub use self::recovery::{Recovery, RecoveryPhase};
pub use self::stats::Totals;
pub use self::status::Status;
pub use self::store::{StoreReport, Stored};
pub use self::tasks::{LoadCompletion, Pending, TaskId, TaskKind, Tasks};
pub use self::usage::Usage;
