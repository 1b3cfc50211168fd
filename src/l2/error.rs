//! What goes wrong in an adapter.

use std::error::Error;
use std::sync::Arc;

use super::config::ConfigError;
use super::key::KeyError;

/// Why an adapter does not open, or why one key of a batch failed.
///
/// Clones share their source, because one failed request may concern several positions of a batch.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum L2Error {
    /// The configuration cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration can be read, but nothing can work with it.
    #[error("L2 adapter does not open: '{field}' {reason}")]
    Unusable {
        /// The field of the configuration.
        field: &'static str,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// The key has no name in the adapter's layout.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store refused, or could not be reached.
    #[error("L2 adapter could not {operation} '{path}' in {store}: {source}")]
    Store {
        /// `store`, `look up`, `load`, `delete` or `list`.
        operation: &'static str,
        /// The object's path, prefix included.
        path: String,
        /// The store, as it displays itself.
        store: String,
        /// What the store said.
        source: Arc<object_store::Error>,
    },
    /// The store's file system has no room for the object's name. Lookups, loads and deletes of such a
    /// key are no errors: there is no object.
    #[error(
        "L2 adapter could not store '{path}' in {store}, whose file system does not take a name of \
         {bytes} bytes (most take 253: 255, less two while a file is written): shorten the model's \
         name or the cache salt, or use another store: {source}"
    )]
    NameTooLong {
        /// The object's path, prefix included.
        path: String,
        /// The store, as it displays itself.
        store: String,
        /// The length of the path's last part.
        bytes: usize,
        /// What the store said.
        source: Arc<object_store::Error>,
    },
    /// The store sent fewer or more bytes than it announced.
    #[error("L2 adapter got {found} bytes of '{path}' from {store}, which announced {expected}")]
    Truncated {
        /// The object's path, prefix included.
        path: String,
        /// The store, as it displays itself.
        store: String,
        /// Bytes announced.
        expected: u64,
        /// Bytes that came, or that came before the excess was noticed.
        found: u64,
    },
    /// The object does not fit into the capacity, with hard admission; nothing was sent.
    #[error(
        "L2 adapter has no room for the {bytes} bytes of '{path}': {used} bytes are stored and \
         {reserved} on their way, of a capacity of {capacity}; try again after an eviction, raise \
         \"max_capacity_gb\", or set \"admission\": \"soft\""
    )]
    Full {
        /// The object's path, prefix included.
        path: String,
        /// Its size.
        bytes: u64,
        /// Bytes counted.
        used: u64,
        /// Bytes that other stores were about to add.
        reserved: u64,
        /// The capacity in bytes.
        capacity: u64,
    },
    /// A page of keys that cannot be.
    #[error("L2 adapter cannot list keys: {reason}")]
    Page {
        /// What is wrong with the page size or the cursor.
        reason: String,
    },
    /// A load with fewer buffers than keys.
    #[error("L2 adapter was given {buffers} buffers for {keys} keys")]
    Buffers {
        /// How many keys.
        keys: usize,
        /// How many buffers.
        buffers: usize,
    },
    /// The adapter was closed: before the call, or while it ran, by a close that had waited long
    /// enough. Then what was under way may or may not be in the store.
    #[error("L2 adapter is closed")]
    Closed,
    /// A task of the adapter ended without an answer: it panicked, or the runtime shut down.
    #[error("L2 adapter lost a task: {reason}")]
    Lost {
        /// What the runtime says.
        reason: String,
    },
}

/// Whether a store refused the name of an object, rather than failed: names on a file system may not
/// have any length, nor any character everywhere.
pub(super) fn refuses_name(error: &object_store::Error) -> bool {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |error| (*error).source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::InvalidFilename)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn generic(source: impl Into<Box<dyn Error + Send + Sync>>) -> object_store::Error {
        object_store::Error::Generic {
            store: "test",
            source: source.into(),
        }
    }

    #[test]
    fn a_refused_name_is_recognised_however_deep_it_lies() {
        let refused = || io::Error::from(io::ErrorKind::InvalidFilename);
        assert!(refuses_name(&generic(refused())));
        assert!(refuses_name(&generic(generic(refused()))));
        assert!(!refuses_name(&generic("invalid filename")));
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(!refuses_name(&generic(other)));
    }
}
