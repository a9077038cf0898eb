//! Opening the files of a store: never waiting for a pipe, and never taking anything but a regular file; and the check that a directory
//! that is written has no part elsewhere.
//!
//! A store may come from elsewhere, so a pipe, a socket, a device or a directory may have the name of any file. Files are
//! written without following links: a link in a store that came from elsewhere may lead to any file of this machine. So a writer
//! checks all names before it changes anything. The directory that the caller names may be a link: the caller chose it.

use std::fs::{self, File, FileType, OpenOptions};
use std::path::Path;
use std::{fmt, io};

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

/// Checks a file or directory and everything down to `levels` below it: there are only directories and regular files, and no
/// directory has the name of a file. A missing path passes.
///
/// Files are `levels` below the path, and their names are numbers. With 0 the path is a file itself.
///
/// # Errors
/// [`NotAFile`] for the first such path; an I/O error.
pub fn check_part(path: &Path, levels: usize) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        Err(e) => Err(Error::io(path, e)),
        Ok(kind) => check(path, kind.file_type(), levels, true),
    }
}

/// Checks what is in a directory, as [`check_part`]; the directory itself may be a link, or be missing.
///
/// # Errors
/// As [`check_part`].
pub fn check_directory(directory: &Path, levels: usize) -> Result<()> {
    let fail = |e| Error::io(directory, e);
    let entries = match fs::read_dir(directory) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let is_number = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let kind = match entry.file_type() {
            // A file may be deleted meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            kind => kind.map_err(|e| Error::io(&entry.path(), e))?,
        };
        if !kind.is_file() {
            check(&entry.path(), kind, levels.saturating_sub(1), is_number)?;
        }
    }
    Ok(())
}

fn check(path: &Path, kind: FileType, levels: usize, is_file_name: bool) -> Result<()> {
    match NotAFile::of(kind) {
        Some(NotAFile::Directory) if levels > 0 => check_directory(path, levels),
        Some(NotAFile::Directory) if !is_file_name => Ok(()),
        Some(other) => Err(other.error(path)),
        None => Ok(()),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod own_parts_tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(result: Result<()>) -> Option<String> {
        result.err().map(|error| match error {
            Error::Io { path, .. } => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn links_are_refused_at_every_level() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir_all(root.join("T/0")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(root.join("T/0/00000000000000000000"), b"x").unwrap();
        fs::write(root.join("stray"), b"x").unwrap();
        assert_eq!(refused(check_part(&root, 3)), None);
        for link in ["U", "T/1", "T/0/00000000000000000020", "T/0/stray"] {
            symlink(&outside, root.join(link)).unwrap();
            let name = link.rsplit('/').next().map(str::to_owned);
            assert_eq!(refused(check_part(&root, 3)), name);
            fs::remove_file(root.join(link)).unwrap();
        }
        let link = folder.path().join("link");
        symlink(&root, &link).unwrap();
        assert_eq!(refused(check_part(&link, 3)).as_deref(), Some("link"));
        assert_eq!(refused(check_directory(&link, 3)), None);
        assert_eq!(refused(check_part(&folder.path().join("none"), 3)), None);
    }

    #[test]
    fn a_file_s_name_belongs_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("_temporary")).unwrap();
        assert_eq!(refused(check_part(folder.path(), 1)), None);
        assert!(refused(check_part(folder.path(), 0)).is_some());
        fs::create_dir(folder.path().join("00000000000000000000")).unwrap();
        assert_eq!(refused(check_part(folder.path(), 1)).as_deref(), Some("00000000000000000000"));
    }
}
