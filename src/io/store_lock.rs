//! The lock that a broker, or another writer of the store, holds while it runs.
//!
//! It is Java's `FileLock` of the first byte of `<store>/lock`, an `fcntl` record lock (upstream `DefaultMessageStore#start`).
//! A plain record lock belongs to the process, which loses it as soon as it closes *any* descriptor of the file. Linux also has
//! record locks that belong to the open file and conflict with plain ones in both directions. Such a lock does not name its
//! process, so a plain lock of the second byte, which no broker uses, names it. `fcntl` does not report a process's own locks,
//! so a list holds them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::disk::write_all_at;
use crate::io::fork::Generation;
use crate::io::process_mutex::ProcessMutex;
use crate::io::regular_file::{open_file, open_with};

/// The content that a broker writes into the file.
const CONTENT: &[u8] = b"lock";

type Held = BTreeMap<Identity, Generation>;

/// The locks that this process holds. A forked child inherits the list of its parent.
static HELD: ProcessMutex<Held> = ProcessMutex::new();

fn is_ours(held: &Held, identity: &Identity) -> bool {
    held.get(identity).is_some_and(|process| process.is_current())
}

/// The lock of a store, held until it is dropped.
///
/// A forked child can neither use nor release it. If the system has locks of open files, only the process that took the lock
/// releases it. If that process is killed, the lock is released when its last child ends.
#[derive(Debug)]
pub struct StoreLock {
    path: PathBuf,
    file: File,
    identity: Identity,
    process: Generation,
}

impl StoreLock {
    /// Takes the lock of a file, `lock` in the root of a store. Creates the file if it is missing.
    ///
    /// # Errors
    /// `Locked` when a broker or another writer has it, in this process or another; else an I/O error, with the path.
    pub fn take(path: &Path) -> Result<Self> {
        HELD.with(|held| Self::take_first(path, held))
    }

    fn take_first(path: &Path, held: &mut Held) -> Result<Self> {
        let fail = |e| Error::io(path, e);
        let process = Generation::current();
        // Check before opening the file: closing it again would release a plain lock.
        if identity(path).map_err(fail)?.is_some_and(|identity| is_ours(held, &identity)) {
            return Err(Error::Locked { path: path.to_owned(), pid: std::process::id() });
        }
        let file = open_with(path, OpenOptions::new().read(true).write(true).create(true).truncate(false), true)?;
        if !system::lock(&file).map_err(fail)? {
            let pid = system::holder(&file).map_err(fail)?.unwrap_or(0);
            return Err(Error::Locked { path: path.to_owned(), pid });
        }
        if file.metadata().map_err(fail)?.len() < CONTENT.len() as u64 {
            write_all_at(&file, CONTENT, 0).and_then(|()| file.sync_all()).map_err(fail)?;
        }
        let identity = identity(path).map_err(fail)?.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        held.insert(identity.clone(), process);
        Ok(Self { path: path.to_owned(), file, identity, process })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // In a forked child the lock belongs to the parent.
        if self.process.is_current() {
            HELD.with(|held| {
                held.remove(&self.identity);
                // Child processes may have the file open as well. An error can be ignored because the file is closed next.
                let _ = system::unlock(&self.file);
            });
        }
    }
}

/// Finds the holder of a lock of the kind that Java's `FileLock` takes (`fcntl`; `flock` does not see it).
///
/// Returns the process id: this process if it holds a [`StoreLock`] of the file, 0 if the system does not report the holder.
/// `None`: the file is not locked or does not exist. Locks of other processes are only visible on a system with `fcntl`.
///
/// # Errors
/// An I/O error, with the path.
pub fn fcntl_lock_holder(path: &Path) -> Result<Option<u32>> {
    let fail = |e| Error::io(path, e);
    HELD.with(|held| match identity(path).map_err(fail)? {
        None => Ok(None),
        Some(identity) if is_ours(held, &identity) => Ok(Some(std::process::id())),
        Some(_) => match open_file(path, false) {
            Ok(file) => system::holder(&file).map_err(fail),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        },
    })
}

/// Checks that no other process holds the lock of a store.
///
/// # Errors
/// `Locked` when one does; else an I/O error, with the path.
pub fn refuse_other_holder(path: &Path) -> Result<()> {
    match fcntl_lock_holder(path)? {
        Some(pid) if pid != std::process::id() => Err(Error::Locked { path: path.to_owned(), pid }),
        _ => Ok(()),
    }
}

/// Distinguishes a file from another one with the same path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg(unix)]
struct Identity {
    device: u64,
    inode: u64,
}
#[cfg(not(unix))]
type Identity = PathBuf;

fn identity(path: &Path) -> io::Result<Option<Identity>> {
    #[cfg(unix)]
    let found = fs::metadata(path).map(|file| {
        use std::os::unix::fs::MetadataExt as _;
        Identity { device: file.dev(), inode: file.ino() }
    });
    #[cfg(not(unix))]
    let found = fs::canonicalize(path);
    match found {
        Ok(identity) => Ok(Some(identity)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;

    /// The byte that a broker locks.
    const LOCKED: libc::off_t = 0;
    /// The byte whose plain lock names the process that holds the other one.
    const SIGNED: libc::off_t = 1;

    #[expect(clippy::cast_possible_truncation, reason = "the system's own constants, of a wider type than its field")]
    fn record(kind: i32, begin: libc::off_t, len: libc::off_t) -> libc::flock {
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: begin,
            l_len: len,
            l_pid: 0,
        }
    }

    /// True when the lock was free.
    pub(super) fn lock(file: &File) -> io::Result<bool> {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&record(libc::F_WRLCK, LOCKED, 1))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        // The lock is valid without it.
        let _ = fcntl(file, FcntlArg::F_SETLK(&record(libc::F_WRLCK, SIGNED, 1)));
        Ok(true)
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        let _ = fcntl(file, FcntlArg::F_SETLK(&record(libc::F_UNLCK, SIGNED, 1)));
        fcntl(file, FcntlArg::F_OFD_SETLK(&record(libc::F_UNLCK, LOCKED, 1)))?;
        Ok(())
    }

    pub(super) fn holder(file: &File) -> io::Result<Option<u32>> {
        let ask = |begin| -> io::Result<Option<u32>> {
            let mut found = record(libc::F_WRLCK, begin, 0);
            fcntl(file, FcntlArg::F_GETLK(&mut found))?;
            let is_free = i32::from(found.l_type) == libc::F_UNLCK;
            Ok((!is_free).then(|| u32::try_from(found.l_pid).unwrap_or(0)))
        };
        match ask(LOCKED)? {
            Some(0) => Ok(Some(ask(SIGNED)?.unwrap_or(0))),
            holder => Ok(holder),
        }
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod system {
    use std::fs::File;
    use std::io;

    use rustix::fs::{FlockOperation, fcntl_lock};
    use rustix::io::Errno;
    use rustix::process::{Flock, FlockType, fcntl_getlk};

    /// True when the lock was free.
    pub(super) fn lock(file: &File) -> io::Result<bool> {
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        Ok(fcntl_lock(file, FlockOperation::NonBlockingUnlock)?)
    }

    pub(super) fn holder(file: &File) -> io::Result<Option<u32>> {
        let held = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?;
        Ok(held.map(|lock| lock.pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())))
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{File, TryLockError};
    use std::io;

    /// True when the lock was free.
    pub(super) fn lock(file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        file.unlock()
    }

    /// This system does not report holders.
    #[expect(clippy::unnecessary_wraps, reason = "other systems can fail")]
    pub(super) fn holder(_file: &File) -> io::Result<Option<u32>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_one_lock_in_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert_eq!(fcntl_lock_holder(&path).unwrap(), None);
        let lock = StoreLock::take(&path).unwrap();
        assert_eq!(lock.path(), path);
        assert_eq!(fs::read(&path).unwrap(), b"lock");
        // Opening and closing the file elsewhere does not release the lock.
        drop(File::open(&path).unwrap());
        assert_eq!(fcntl_lock_holder(&path).unwrap(), Some(std::process::id()));
        refuse_other_holder(&path).unwrap();
        match StoreLock::take(&path) {
            Err(Error::Locked { path: named, pid }) => assert_eq!((named, pid), (path.clone(), std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert_eq!(fcntl_lock_holder(&path).unwrap(), None);
        drop(StoreLock::take(&path).unwrap());
    }

    #[test]
    fn what_the_file_holds_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        fs::write(&path, b"something").unwrap();
        drop(StoreLock::take(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"something");
        for wrong in [folder.path().to_owned(), folder.path().join("none/lock")] {
            assert!(matches!(StoreLock::take(&wrong), Err(Error::Io { .. })));
        }
        fs::write(&path, b"").unwrap();
        drop(StoreLock::take(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"lock");
    }
}
