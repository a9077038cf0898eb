//! Forks: the process that a handle belongs to.
//!
//! A forked child has the memory and the open files of its parent, but none of its other threads. A handle for writing raises an
//! error in a child, because two processes would write to the same place. A thread pool is started again. A lock that a thread of
//! the parent held is never released in the child.
//!
//! All of them compare one number, the [`Generation`]. A `fork` handler increments it in each child.

use std::path::Path;
#[cfg(unix)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks that led to a process. A handle stores the generation of the process that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(u32);

impl Generation {
    /// Returns the generation of this process.
    #[inline]
    pub(crate) fn current() -> Self {
        #[cfg(unix)]
        if !INSTALLED.load(Ordering::Acquire) {
            install();
        }
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this is the generation of this process, so that no fork happened since.
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

    /// Returns the number, for Python and for locks.
    #[cfg(feature = "python")]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns the generation of another process.
    #[cfg(test)]
    pub(crate) fn other(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

#[cold]
fn of_another_process(path: &Path) -> Error {
    Error::InvalidArgument(format!(
        "{}: a handle opened for writing belongs to the process that opened it: open it again in the forked one",
        path.display()
    ))
}

#[cfg(unix)]
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the `fork` handler.
#[cfg(unix)]
#[cold]
#[expect(unsafe_code, reason = "no crate has a safe call")]
fn install() {
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // Two threads may install it at the same time. Then each fork counts twice, which is harmless.
    // SAFETY: `in_child` only adds to a static number, which a `fork` handler may do.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // If there is no memory for the handler, the next call tries again.
    INSTALLED.store(failed == 0, Ordering::Release);
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
}
