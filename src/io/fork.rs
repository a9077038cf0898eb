//! Forks: which process a handle belongs to, and a lock for which a forked child does not wait for ever.
//!
//! A forked child has the memory and the open files of its parent, and none of its other threads. So a handle that writes
//! refuses in a child: two processes would write to the same place. A pool of threads is started again. A lock that a thread of
//! the parent held is never released in the child.
//!
//! All of them compare one number, the [`Generation`], which a handler of `fork` counts up in each child.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::error::{Error, Result, shown};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks that led to a process. A handle keeps that of the process that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Returns that of this process.
    #[inline]
    pub(crate) fn current() -> Self {
        handler::install();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether it is that of this process: there was no fork since.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Checks before a write that the handle belongs to this process.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    #[inline]
    pub(crate) fn check_writer(self, path: &Path) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(of_another_process(path)) }
    }

    /// The number, for a lock that combines it with that of a thread.
    #[cfg(feature = "python")]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// That of another process.
    #[cfg(test)]
    pub(crate) fn other(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

#[cold]
fn of_another_process(path: &Path) -> Error {
    Error::InvalidArgument(format!(
        "{}: a handle opened for writing belongs to the process that opened it: open it again in the forked one",
        shown(path)
    ))
}

#[cfg(unix)]
mod handler {
    #![allow(unsafe_code)]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::FORKS;

    static INSTALLED: AtomicBool = AtomicBool::new(false);

    #[inline]
    pub(super) fn install() {
        if !INSTALLED.load(Ordering::Acquire) {
            install_once();
        }
    }

    #[cold]
    fn install_once() {
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        // Two threads at the same time may install it twice: then each fork counts twice, which is as good.
        // SAFETY: `in_child` only adds to a static number, which a handler of `fork` may do.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // Without memory for the handler the next call tries again.
        INSTALLED.store(failed == 0, Ordering::Release);
    }
}

#[cfg(not(unix))]
mod handler {
    /// Does nothing: this system has no forks.
    pub(super) fn install() {}
}

/// A mutex of a handle that a forked child may use, unless a thread of the parent was using it at the fork.
#[derive(Debug)]
pub(crate) struct HandleMutex<T> {
    /// The number of the generation whose threads may hold the lock.
    owner: AtomicU32,
    state: Mutex<T>,
}

impl<T> HandleMutex<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { owner: AtomicU32::new(Generation::current().0), state: Mutex::new(state) }
    }

    /// Waits for the other threads of this process.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child if a thread of the parent was using the state at the fork.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        /// Another thread of the child takes the lock first, and says so at once.
        const LOOKS: u32 = 100;
        for _ in 0..LOOKS {
            if Generation(self.owner.load(Ordering::Acquire)).is_current() {
                return Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let guard = match self.state.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            self.owner.store(Generation::current().0, Ordering::Release);
            return Ok(guard);
        }
        Err(Error::InvalidArgument(
            "another thread was using this handle when the process was forked: open it again in the forked one".into(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_of_another_process_is_refused() {
        let generation = Generation::current();
        generation.check_writer(Path::new("file")).unwrap();
        let refused = generation.other().check_writer(Path::new("file")).unwrap_err().to_string();
        assert!(
            refused.contains("file: a handle opened for writing belongs to the process that opened it"),
            "{refused}"
        );
    }

    #[test]
    fn a_child_takes_a_free_lock_and_is_refused_one_that_is_held() {
        let parents = || HandleMutex { owner: AtomicU32::new(Generation::current().other().0), state: Mutex::new(7) };
        let free = parents();
        *free.lock().unwrap() += 1;
        assert_eq!(*free.lock().unwrap(), 8);

        let held = parents();
        let _thread_of_the_parent = held.state.lock().unwrap();
        assert!(held.lock().unwrap_err().to_string().contains("when the process was forked"));
    }
}
