//! Signal handlers while Rust waits. An exception of a handler ends the wait and is raised when the call returns to Python.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use super::handle::lock;
use crate::io::signals::{self, Signals};

/// The exception of a handler, until it is passed to Python.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);
/// True if `RAISED` has an exception.
static IS_RAISED: AtomicBool = AtomicBool::new(false);

pub(super) fn register() {
    signals::set(Signals { look, ended });
}

fn ended() -> io::Result<()> {
    // Other Python threads continue; a thread of this crate works for the call that ends.
    if IS_RAISED.load(Ordering::Relaxed) && (may_be_main() || !is_of_python()) {
        return Err(io::Error::other("interrupted by a signal"));
    }
    Ok(())
}

fn look() -> io::Result<()> {
    ended()?;
    if !may_be_main() || !is_of_python() {
        return Ok(());
    }
    match Python::try_attach(|py| py.check_signals().map_err(raise_later)) {
        Some(Err(())) => ended(),
        _ => Ok(()),
    }
}

/// Raises the exception of a handler as soon as the waiting call has returned, unless the error of the call raises it. An exception
/// of another thread stays in that thread.
pub(super) fn raise_later(error: PyErr) {
    if !may_be_main() {
        return;
    }
    *lock(&RAISED) = Some(error);
    IS_RAISED.store(true, Ordering::Relaxed);
    #[expect(unsafe_code, reason = "no safe call adds one")]
    // SAFETY: the function may be called at any time and needs no argument. If the list of pending calls is full, the error of
    // the wait raises the exception.
    unsafe {
        ffi::Py_AddPendingCall(Some(raise_now), std::ptr::null_mut());
    }
}

/// Takes the exception of a handler, in the thread in which Python calls handlers.
pub(super) fn raised() -> Option<PyErr> {
    if !IS_RAISED.load(Ordering::Relaxed) || !may_be_main() {
        return None;
    }
    IS_RAISED.store(false, Ordering::Relaxed);
    lock(&RAISED).take()
}

/// Raises the exception of a handler if no error of the call did. Python calls this as soon as the call has returned.
extern "C" fn raise_now(_: *mut c_void) -> c_int {
    let raise = |error: PyErr| Python::attach(|py| error.restore(py));
    raised().map(raise).map_or(0, |()| -1)
}

/// Returns whether Python may call handlers in this thread.
fn may_be_main() -> bool {
    #[cfg(target_os = "linux")]
    {
        rustix::thread::gettid() == rustix::process::getpid()
    }
    #[cfg(not(target_os = "linux"))]
    {
        is_of_python()
    }
}

/// Returns whether this is a Python thread, and not one that this crate started.
fn is_of_python() -> bool {
    #[expect(unsafe_code, reason = "no safe call returns it")]
    // SAFETY: it reads a variable of this thread.
    let state = unsafe { ffi::PyGILState_GetThisThreadState() };
    !state.is_null()
}
