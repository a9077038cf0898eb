//! Files on disk: creating, locking, reserving space. The code that differs between systems is here.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Returns the absolute path, which keeps its meaning when the process changes its current directory.
///
/// # Errors
/// An I/O error for an empty path, or if there is no current directory. With the path.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(path, e))
}

/// Takes the lock of a file's one writer. It is held until the returned handle and all other handles of `file` are dropped.
///
/// # Errors
/// `Locked` when another writer has it, in this process or another; else an I/O error. With the path.
pub fn lock_writer(path: &Path, file: &File) -> Result<File> {
    let lock = file.try_clone().map_err(|e| Error::io(path, e))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.to_owned(), pid: 0 }),
        Err(TryLockError::Error(e)) => Err(Error::io(path, e)),
    }
}

/// Takes the lock of a directory's one writer, on the directory itself. It is held until the handle is dropped. `None`: the system
/// has no such locks. Some network file systems lock only files that are open for writing, and a directory cannot be.
///
/// # Errors
/// `Locked` when another writer has it; else an I/O error. With the path.
#[cfg(unix)]
pub fn lock_directory(directory: &Path) -> Result<Option<File>> {
    let fail = |e| Error::io(directory, e);
    let lock = File::open(directory).map_err(fail)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: directory.to_owned(), pid: 0 }),
        Err(TryLockError::Error(e)) => match e.raw_os_error() {
            Some(libc::EBADF | libc::EINVAL | libc::ENOLCK | libc::ENOTSUP | libc::ENOSYS) => Ok(None),
            _ => Err(fail(e)),
        },
    }
}

/// Returns `None`: this system cannot lock a directory.
///
/// # Errors
/// None here.
#[cfg(not(unix))]
pub fn lock_directory(_directory: &Path) -> Result<Option<File>> {
    Ok(None)
}

/// Brings a file to the disk and drops it from the page cache. Later reads get what the disk holds.
///
/// After a crash the last writes may exist only in the page cache. After a failed fsync they stay there although they never
/// reached the disk, and a later fsync succeeds without them.
///
/// # Errors
/// `WriteFailed`, with the path.
pub fn settle(path: &Path, file: &File) -> Result<()> {
    file.sync_all().map_err(|e| Error::write_failed(path, e))?;
    drop_cache(file, 0..file.metadata().map_err(|e| Error::io(path, e))?.len());
    Ok(())
}

/// Writes all bytes from `offset` on. The position of `file` does not change.
///
/// # Errors
/// An I/O error; some bytes may be written then.
#[cfg(unix)]
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Writes all bytes from `offset` on. This system changes the position of `file`.
///
/// # Errors
/// An I/O error; some bytes may be written then.
#[cfg(windows)]
pub fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = bytes.split_at(written).1;
                offset += written as u64;
            }
        }
    }
    Ok(())
}

/// Reserves disk space for the first `len` bytes, so that a store into a map cannot fail on a full disk.
///
/// Makes the file at least `len` bytes long. Returns false if the system cannot reserve: the file then has the length but
/// not the space.
///
/// # Errors
/// An I/O error, mainly `StorageFull`.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn reserve(file: &File, len: u64) -> io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if len == 0 {
        return Ok(true);
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
            Err(e) => return Err(e.into()),
        }
    }
    extend(file, len)
}

/// Sets the length of the file. This system cannot reserve the space.
///
/// # Errors
/// An I/O error.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn reserve(file: &File, len: u64) -> io::Result<bool> {
    extend(file, len)
}

fn extend(file: &File, len: u64) -> io::Result<bool> {
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    Ok(false)
}

/// Returns an offset at or before the first byte from `offset` on that was ever written; all bytes before it are zero. `None`:
/// no byte was written.
///
/// Changes the position of `file`.
///
/// # Errors
/// An I/O error.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        // The file system does not support the question.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
        Err(e) => Err(e.into()),
    }
}

/// Returns the offset of the first byte from `offset` on that was never written, by the file system's own record; the length of the
/// file if all bytes were written.
///
/// Pages in the cache count as written, also those that only a reader put there.
///
/// Changes the position of `file`.
///
/// # Errors
/// An I/O error.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn next_hole(file: &File, offset: u64) -> io::Result<u64> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    match seek(file, SeekFrom::Hole(offset)) {
        Ok(hole) => Ok(hole),
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(file.metadata()?.len()),
        Err(e) => Err(e.into()),
    }
}

/// Returns the length of the file: this system does not record which bytes were written.
///
/// # Errors
/// An I/O error.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn next_hole(file: &File, _offset: u64) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// Removes a part of a file from the page cache, unless it was written or is mapped. Only a hint: failure is ignored.
#[cfg(target_os = "linux")]
pub fn drop_cache(file: &File, part: std::ops::Range<u64>) {
    let len = std::num::NonZeroU64::new(part.end.saturating_sub(part.start));
    if len.is_some() {
        let _ = rustix::fs::fadvise(file, part.start, len, rustix::fs::Advice::DontNeed);
    }
}

/// Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn drop_cache(_file: &File, _part: std::ops::Range<u64>) {}

/// Returns `offset`: this system does not record which bytes were written.
///
/// # Errors
/// None here.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn next_data(_file: &File, offset: u64) -> io::Result<Option<u64>> {
    Ok(Some(offset))
}

/// Writes the directory entry of a new file to disk.
///
/// # Errors
/// `WriteFailed` if that fails; an I/O error if the directory cannot be opened. With the directory.
pub fn sync_parent(path: &Path) -> Result<()> {
    Parent::open(path)?.sync()
}

/// Writes the names in a directory to disk.
///
/// # Errors
/// As [`sync_parent`].
pub fn sync_directory(directory: &Path) -> Result<()> {
    Parent::of(directory)?.sync()
}

/// Creates a directory and the missing ones above it, and writes their names to disk.
///
/// # Errors
/// As [`sync_parent`]; an I/O error, with the path.
pub fn create_directory(path: &Path) -> Result<()> {
    let path = absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|directory| !directory.exists()).collect();
    fs::create_dir_all(&path).map_err(|e| Error::io(&path, e))?;
    missing.into_iter().try_for_each(sync_parent)
}

/// The directory of a file. It is opened before the file is created, so that a lack of descriptors leaves no file whose
/// name was never synced.
#[derive(Debug)]
pub struct Parent {
    path: PathBuf,
    #[cfg(unix)]
    directory: File,
}

impl Parent {
    /// Opens the directory of a file.
    ///
    /// # Errors
    /// An I/O error, with the directory.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))
    }

    /// Opens the directory itself.
    fn of(directory: &Path) -> Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            directory: File::open(directory).map_err(|e| Error::io(directory, e))?,
            path: directory.to_owned(),
        })
    }

    /// Writes the entries of the directory to disk, where the system can.
    ///
    /// # Errors
    /// `WriteFailed`, with the directory.
    pub fn sync(&self) -> Result<()> {
        #[cfg(unix)]
        self.directory.sync_all().map_err(|e| Error::write_failed(&self.path, e))?;
        Ok(())
    }
}

/// A file that is being created. Other processes cannot see it before it is complete.
///
/// If the system supports it, the file has no name until [`NewFile::publish`], so a process that dies leaves nothing.
/// Elsewhere it has its name from the start, and is removed if it is dropped unpublished.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    named: bool,
    published: bool,
}

impl NewFile {
    /// Creates a file for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the path exists; else an I/O error. With the path.
    pub fn create(path: &Path) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(Error::io(path, io::ErrorKind::AlreadyExists.into()));
        }
        let (file, named) = match unnamed_file(path) {
            Some(file) => (file, false),
            None => (
                OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .open(path)
                    .map_err(|e| Error::io(path, e))?,
                true,
            ),
        };
        Ok(Self { file, path: path.to_owned(), named, published: false })
    }

    /// Creates a file in a directory whose name is set later. `None`: this system has no files without a name.
    pub fn unnamed(directory: &Path) -> Option<Self> {
        let path = directory.join("unnamed");
        unnamed_file(&path).map(|file| Self { file, path, named: false, published: false })
    }

    /// Creates a file for reading and writing that is deleted when it is dropped, in the directory of a path. If it needs a name, that
    /// is a temporary name for the path.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn temporary(path: &Path) -> Result<Self> {
        if let Some(file) = unnamed_file(path) {
            return Ok(Self { file, path: path.to_owned(), named: false, published: false });
        }
        let create = |name: &Path| OpenOptions::new().read(true).write(true).create_new(true).open(name);
        let (path, file) = create_temporary(path, create).map_err(|e| Error::io(path, e))?;
        Ok(Self { file, path, named: true, published: false })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Names a file that was created without a name. If the name exists, the caller can try another.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub fn publish_as(&self, path: &Path) -> Result<()> {
        name_file(&self.file, path).map_err(|e| Error::io(path, e))
    }

    /// Names the file.
    ///
    /// # Errors
    /// `AlreadyExists` if the path was created meanwhile; else an I/O error. With the path.
    pub fn publish(mut self) -> Result<()> {
        if !self.named {
            name_file(&self.file, &self.path).map_err(|e| Error::io(&self.path, e))?;
        }
        self.published = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.named && !self.published {
            // The caller reports the error that led here.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a file under a temporary name and renames it, so that a crash leaves the old or the new content. The caller syncs the
/// directory with [`sync_parent`].
///
/// No two calls use the same temporary name. A name that a killed process left is skipped: its process id may have been the same,
/// as for the first process of a container.
///
/// # Errors
/// An I/O error, with the path. The file then has its old content.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
    let write = |mut file: &File| file.write_all(content).and_then(|()| file.sync_all());
    let written = match unnamed_file(path) {
        Some(file) => write(&file).and_then(|()| create_temporary(path, |name| name_file(&file, name))),
        None => create_temporary(path, |name| OpenOptions::new().write(true).create_new(true).open(name)).and_then(
            |(name, file)| match write(&file) {
                Ok(()) => Ok((name, ())),
                Err(error) => {
                    _ = fs::remove_file(name);
                    Err(error)
                }
            },
        ),
    };
    let renamed = written.and_then(|(name, ())| fs::rename(&name, path).inspect_err(|_| _ = fs::remove_file(&name)));
    renamed.map_err(|e| Error::io(path, e))
}

/// Returns the name of the file that [`replace_file`] was going to replace, if a file has one of its temporary names. A process that
/// is killed leaves such files.
pub fn replaced_name(name: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (rest, number) = name.strip_prefix('.')?.rsplit_once('.')?;
    let (replaced, process) = rest.rsplit_once('.')?;
    (is_number(number) && is_number(process)).then_some(replaced)
}

/// Creates an entry under the first free temporary name for a path.
fn create_temporary<T>(path: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let name = path.with_file_name(name);
        match create(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|created| (name, created)),
        }
    }
}

/// Creates a file without a name in the directory of `path`, if such a file can be named later.
#[cfg(target_os = "linux")]
fn unnamed_file(path: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !Path::new(OWN_FILES).is_dir() {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(parent, flags, Mode::from_raw_mode(0o666)).ok().map(File::from)
}

#[cfg(target_os = "linux")]
fn name_file(file: &File, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD, linkat};
    let from = Path::new(OWN_FILES).join(file.as_raw_fd().to_string());
    Ok(linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// The directory of the process's own open files.
#[cfg(target_os = "linux")]
const OWN_FILES: &str = "/proc/self/fd";

#[cfg(not(target_os = "linux"))]
fn unnamed_file(_path: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn name_file(_file: &File, _path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::regular_file::open_file;

    #[test]
    fn a_new_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let begun = NewFile::create(&path).unwrap();
        reserve(begun.file(), 8192).unwrap();
        drop(begun);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

        let begun = NewFile::create(&path).unwrap();
        reserve(begun.file(), 8192).unwrap();
        #[cfg(target_os = "linux")]
        assert!(!path.exists(), "no name before it is published");
        begun.publish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);

        for taken in [NewFile::create(&path).map(|_| ()), NewFile::create(&dir.path().join("none/f")).map(|_| ())] {
            assert!(matches!(taken, Err(Error::Io { .. })));
        }
    }

    #[test]
    fn a_replaced_file_passes_over_what_killed_processes_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let left = |number: u64| dir.path().join(format!(".f.{}.{number}", std::process::id()));
        // More names than the other tests of this process use meanwhile.
        (0..10_000).for_each(|number| fs::write(left(number), b"half").unwrap());
        for content in [&b"first"[..], b"second", b""] {
            replace_file(&path, content).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 10_001);
        assert_eq!(fs::read(left(0)).unwrap(), b"half");

        let directory = dir.path().join("d");
        fs::create_dir_all(directory.join("full")).unwrap();
        assert!(replace_file(&directory, b"x").unwrap_err().to_string().contains("d: "), "the path is named");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 10_002, "no temporary file stays");
    }

    #[test]
    fn threads_replace_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::thread::scope(|scope| {
            for number in 0..4_u8 {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| replace_file(path, &[number; 4096]).unwrap()));
            }
        });
        let found = fs::read(&path).unwrap();
        assert!(
            found.len() == 4096 && found.iter().all(|byte| Some(byte) == found.first()),
            "the content of one thread"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"").unwrap();
        let first = lock_writer(&path, &open_file(&path, true).unwrap()).unwrap();
        match lock_writer(&path, &open_file(&path, true).unwrap()) {
            Err(Error::Locked { path: named, .. }) => assert_eq!(named, path),
            other => panic!("{other:?}"),
        }
        drop(first);
        lock_writer(&path, &open_file(&path, true).unwrap()).unwrap();
    }

    #[test]
    fn writes_by_offset_go_where_they_should() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"0123456789").unwrap();
        let file = open_file(&path, true).unwrap();
        write_all_at(&file, b"cde", 2).unwrap();
        write_all_at(&file, b"xyz", 9).unwrap();
        write_all_at(&file, b"", 40).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"01cde5678xyz");
    }

    #[test]
    fn of_two_files_of_one_name_the_first_published_wins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (Ok(first), Ok(second)) = (NewFile::create(&path), NewFile::create(&path)) else {
            return; // where a file has its name from the start, the second is refused at once
        };
        first.publish().unwrap();
        match second.publish() {
            Err(Error::Io { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::AlreadyExists),
            other => panic!("{other:?}"),
        }
        assert!(path.exists());
    }
}
