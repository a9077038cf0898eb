//! What a store says about files and directories.

use std::path::PathBuf;
use std::time::SystemTime;

/// A remote file or directory.
#[derive(Clone, Debug)]
pub struct RemoteEntry {
    /// Its path.
    pub path: PathBuf,
    /// Length in bytes; `None` for a directory.
    pub len: Option<u64>,
    /// Time of the last change, if the store says it.
    pub modified: Option<SystemTime>,
    /// Changes with the content, if the store says it.
    pub etag: Option<String>,
}

/// What is read of a remote file: the object as it was when it was opened.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) etag: Option<String>,
    pub(super) modified_ms: Option<u128>,
}
