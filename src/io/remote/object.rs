//! The descriptions of files and directories in a store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::url::Options;

/// A remote file or directory.
#[derive(Clone, Debug)]
pub struct RemoteEntry {
    /// Its path.
    pub path: PathBuf,
    /// Length in bytes; `None` for a directory.
    pub len: Option<u64>,
    /// Time of the last change, if the store has it.
    pub modified: Option<SystemTime>,
    /// Changes with the content, if the store has it.
    pub etag: Option<String>,
}

/// The options of an object's store: caches have one object for all that are alike.
#[derive(PartialEq, Eq)]
pub(super) struct Origin(pub(super) Arc<Options>);

impl Hash for Origin {
    fn hash<H: Hasher>(&self, _: &mut H) {
        // The path has more facts, in less time.
    }
}

impl fmt::Debug for Origin {
    // The options have credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origin")
    }
}

/// The source of a remote file: the object as it was when it was opened.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) origin: Origin,
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) etag: Option<String>,
    pub(super) modified_ms: Option<u128>,
}
