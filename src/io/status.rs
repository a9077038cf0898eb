//! The status of a file or directory, and the identity of a file, which another file under its name does not have.

use std::fs;
use std::fs::Metadata;
use std::time::SystemTime;

use super::remote::RemoteEntry;

/// The kind of a file or directory at a path, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A pipe, a socket or a device.
    Other,
}

/// The status of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The kind.
    pub kind: Kind,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Time of the last change, where the storage has it.
    pub modified: Option<SystemTime>,
    /// Shows if another file took the name.
    pub identity: Identity,
}

/// Distinguishes a file from another one with the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Of a file of this machine.
    Local(FileIdentity),
    /// The `ETag`, or nothing.
    Remote(Option<String>),
}

impl From<fs::Metadata> for Status {
    fn from(found: fs::Metadata) -> Self {
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            _ => Kind::Other,
        };
        let identity = Identity::Local(FileIdentity::of(&found));
        Self { kind, len: found.len(), modified: found.modified().ok(), identity }
    }
}

impl From<RemoteEntry> for Status {
    fn from(found: RemoteEntry) -> Self {
        Self {
            kind: if found.len.is_some() { Kind::File } else { Kind::Directory },
            len: found.len.unwrap_or_default(),
            modified: found.modified,
            identity: Identity::Remote(found.etag),
        }
    }
}

impl Status {
    /// Time of the last change in ns since the epoch.
    pub fn modified_ns(&self) -> Option<i64> {
        let since = self.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_nanos()).ok()
    }

    /// The `ETag` of an object.
    pub fn etag(&self) -> Option<&str> {
        match &self.identity {
            Identity::Remote(etag) => etag.as_deref(),
            Identity::Local(_) => None,
        }
    }
}

/// Distinguishes a file from another one of the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    #[cfg(unix)]
    inode: (u64, u64),
    #[cfg(not(unix))]
    created: Option<std::time::SystemTime>,
}

impl FileIdentity {
    /// Returns the identity of the file that is described.
    pub fn of(file: &Metadata) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            Self { inode: (file.dev(), file.ino()) }
        }
        #[cfg(not(unix))]
        Self { created: file.created().ok() }
    }
}
