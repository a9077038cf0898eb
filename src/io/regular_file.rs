//! Opening the files of a store: never waiting for a pipe, and never taking anything but a regular file.
//!
//! A store may come from elsewhere, so a pipe, a socket, a device or a directory may have the name of any file. Files are
//! written without following links: a link in a store that came from elsewhere may lead to any file of this machine.

use std::fmt;
use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::path::Path;

use crate::error::{Error, Result};

/// The kind of a path that is not a regular file; the cause of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAFile {
    /// A directory.
    Directory,
    /// A link, where a file is written.
    Link,
    /// A pipe, also called FIFO.
    Pipe,
    /// A socket.
    Socket,
    /// A device, or something unknown.
    Device,
}

impl NotAFile {
    /// Names the kind; `None` for a regular file.
    pub fn of(kind: FileType) -> Option<Self> {
        #[cfg(unix)]
        let (is_pipe, is_socket) = {
            use std::os::unix::fs::FileTypeExt as _;
            (kind.is_fifo(), kind.is_socket())
        };
        #[cfg(not(unix))]
        let (is_pipe, is_socket) = (false, false);
        match kind {
            kind if kind.is_file() => None,
            kind if kind.is_dir() => Some(Self::Directory),
            kind if kind.is_symlink() => Some(Self::Link),
            _ if is_pipe => Some(Self::Pipe),
            _ if is_socket => Some(Self::Socket),
            _ => Some(Self::Device),
        }
    }

    /// The kind with its article.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Pipe => "a pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        }
    }

    /// The error of a path.
    pub fn error(self, path: &Path) -> Error {
        let kind = match self {
            Self::Directory => io::ErrorKind::IsADirectory,
            Self::Link | Self::Pipe | Self::Socket | Self::Device => io::ErrorKind::NotSeekable,
        };
        Error::io(path, io::Error::new(kind, self))
    }
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => write!(
                f,
                "expected a file or directory of its own, as something is written here, found {}",
                self.name()
            ),
            Self::Directory | Self::Pipe | Self::Socket | Self::Device => {
                write!(f, "expected a regular file, found {}", self.name())
            }
        }
    }
}

impl std::error::Error for NotAFile {}

/// Opens a file for reading, or for reading and writing, without creating it. Links are followed for reading only.
///
/// # Errors
/// An I/O error, with the path. [`NotAFile`] for everything but a regular file.
pub fn open_file(path: &Path, write: bool) -> Result<File> {
    open_with(path, OpenOptions::new().read(true).write(write), write)
}

/// Opens a file with these options, which must not truncate it: its kind is known only afterwards.
///
/// # Errors
/// As [`open_file`].
pub(super) fn open_with(path: &Path, options: &mut OpenOptions, write: bool) -> Result<File> {
    // Without O_NONBLOCK, opening a pipe would wait for its other end. It does not affect files.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        options,
        libc::O_NONBLOCK | libc::O_NOCTTY | if write { libc::O_NOFOLLOW } else { 0 },
    );
    #[cfg(not(unix))]
    refuse_link(path, write)?;
    let file = options.open(path).map_err(|e| refused(path, write, e))?;
    let kind = file.metadata().map_err(|e| Error::io(path, e))?.file_type();
    NotAFile::of(kind).map_or(Ok(file), |other| Err(other.error(path)))
}

/// The error of a call that would write to a remote path.
pub(super) fn not_written(path: &Path) -> Error {
    let text = "expected a local path, as something is written here; URLs are only read";
    Error::io(path, io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text))
}

/// The error of an open call: the text of the operating system for a socket or a link does not name the found kind.
fn refused(path: &Path, write: bool, error: io::Error) -> Error {
    let kind = if write { fs::symlink_metadata(path) } else { fs::metadata(path) };
    match kind.ok().and_then(|kind| NotAFile::of(kind.file_type())) {
        Some(other) => other.error(path),
        None => Error::io(path, error),
    }
}

#[cfg(not(unix))]
fn refuse_link(path: &Path, write: bool) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(kind) if write && kind.is_symlink() => Err(NotAFile::Link.error(path)),
        _ => Ok(()),
    }
}

/// Calls fsync on a file, after extending it to a length. A longer file keeps its length.
///
/// # Errors
/// As [`open_file`] for writing.
pub fn sync_file(path: &Path, least_bytes: u64) -> Result<()> {
    let file = open_file(path, true)?;
    let extend = || {
        if file.metadata()?.len() < least_bytes {
            file.set_len(least_bytes)?;
        }
        file.sync_all()
    };
    extend().map_err(|e| Error::io(path, e))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::io::storage::read_file;

    fn found(result: Result<impl fmt::Debug>) -> NotAFile {
        match result {
            Err(Error::Io { source, .. }) => *source.get_ref().and_then(|e| e.downcast_ref()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_a_regular_file_is_opened_and_no_pipe_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let others = [
            ("directory", NotAFile::Directory),
            ("pipe", NotAFile::Pipe),
            ("socket", NotAFile::Socket),
            ("/dev/null", NotAFile::Device),
        ];
        for (name, kind) in others {
            for write in [false, true] {
                assert_eq!(found(open_file(&at(name), write)), kind, "{name} {write}");
            }
            assert_eq!(found(read_file(&at(name).into(), None)), kind, "{name}");
        }
    }

    #[test]
    fn links_are_followed_for_reading_only() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, dangling) = (folder.path().join("f"), folder.path().join("l"), folder.path().join("d"));
        fs::write(&file, b"content").unwrap();
        symlink(&file, &link).unwrap();
        symlink(folder.path().join("none"), &dangling).unwrap();
        assert_eq!(read_file(&link.as_path().into(), None).unwrap(), b"content");
        assert_eq!(read_file(&link.as_path().into(), Some(3)).unwrap(), b"con");
        assert_eq!(found(open_file(&link, true)), NotAFile::Link);
        assert_eq!(found(open_file(&dangling, true)), NotAFile::Link);
        let Err(Error::Io { path, source }) = open_file(&dangling, false) else { panic!() };
        assert_eq!((path, source.kind()), (dangling, io::ErrorKind::NotFound));
    }
}
