//! What can be found in a pool.

use hfbucket::l2::ObjectKey;
use object_store::path::Path;
use serde::Serialize;

/// What is told of an object.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    #[serde(rename = "finding")]
    pub(super) kind: Kind,
    /// Whether it is a failure.
    failed: bool,
    pub(super) path: String,
    pub(super) detail: String,
    /// Absent for objects that are no keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<ObjectKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// It has another size than listed.
    Size,
    /// It is there, and a lookup does not find it.
    Lookup,
    /// It could not be read to its end.
    Unreadable,
    /// Two reads of one version gave different bytes.
    Version,
    /// It went since it was listed.
    Gone,
    /// It was replaced while it was read.
    Changed,
    /// It is empty.
    ZeroLength,
    /// Its name is longer than the limit.
    LongName,
    /// Its name is no key's.
    Foreign,
}

impl Kind {
    pub(super) fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Size | Self::Lookup | Self::Unreadable | Self::Version
        )
    }

    /// For people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Size => "wrong size",
            Self::Lookup => "not found by a lookup",
            Self::Unreadable => "unreadable",
            Self::Version => "two contents of one version",
            Self::Gone => "gone meanwhile",
            Self::Changed => "replaced meanwhile",
            Self::ZeroLength => "zero length",
            Self::LongName => "long name",
            Self::Foreign => "foreign",
        }
    }
}

impl Finding {
    pub(super) fn new(kind: Kind, path: &Path, detail: String) -> Self {
        Self {
            kind,
            failed: kind.is_failure(),
            path: path.to_string(),
            detail,
            key: None,
        }
    }

    pub(super) fn of(mut self, key: &ObjectKey) -> Self {
        self.key = Some(key.clone());
        self
    }
}
