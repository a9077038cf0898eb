//! The state of a Python object: a value until it is closed, locks, and calls back into Python.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::fork::Generation;

/// A value that `close` drops. A call in another thread keeps it until that call ends.
pub(super) struct Closable<T> {
    /// Has no lock, because a fork could leave it locked in the child.
    value: ArcSwapOption<T>,
    path: Location,
}

impl<T> Closable<T> {
    /// Holds an open value, with the path that it was opened by.
    pub(super) fn new(value: T, path: Location) -> Self {
        Self { value: ArcSwapOption::from_pointee(value), path }
    }

    /// Holds an open value that others hold, too.
    pub(super) fn of(value: Arc<T>, path: Location) -> Self {
        Self { value: ArcSwapOption::new(Some(value)), path }
    }

    /// The path, after `close` as well.
    pub(super) fn path(&self) -> &Location {
        &self.path
    }

    /// The value. Raises `ValueError` once closed.
    pub(super) fn get(&self) -> PyResult<Arc<T>> {
        self.value.load_full().ok_or_else(|| PyValueError::new_err(format!("{} is closed", self.path.display())))
    }

    /// Calls with the value while other threads run Python. Raises `ValueError` once closed.
    pub(super) fn call<R: Send>(&self, py: Python<'_>, call: impl FnOnce(&T) -> Result<R> + Send) -> PyResult<R>
    where
        T: Send + Sync,
    {
        let value = self.get()?;
        Ok(py.detach(|| call(&value))?)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.value.load().is_none()
    }

    /// Closes, and returns the value: dropping it closes files, unless a call still uses it.
    pub(super) fn close(&self) -> Option<Arc<T>> {
        self.value.swap(None)
    }

    /// Returns the text of `__repr__`: the class and the path.
    pub(super) fn text(&self, class: &str) -> String {
        format!("{class}({:?})", self.path.display().to_string())
    }
}

/// Locks a mutex; a panic of another thread that held it is no reason to refuse.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that is finished once, by a call that takes it.
pub(super) struct Finishable<T> {
    value: HandleMutex<Option<T>>,
    /// The message of a later call.
    finished: &'static str,
}

impl<T: Send> Finishable<T> {
    pub(super) fn new(value: T, finished: &'static str) -> Self {
        Self { value: HandleMutex::new(Some(value)), finished }
    }

    fn error(&self) -> Error {
        Error::InvalidArgument(self.finished.to_owned())
    }

    /// Calls with the value while other threads run Python. An error becomes an exception after the lock is released.
    pub(super) fn call<R: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut T) -> Result<R> + Send) -> PyResult<R> {
        Ok(py.detach(|| call(self.value.lock()?.as_mut().ok_or_else(|| self.error())?))?)
    }

    /// Takes the value, and calls with it.
    pub(super) fn finish<R: Send>(&self, py: Python<'_>, call: impl FnOnce(T) -> Result<R> + Send) -> PyResult<R> {
        Ok(py.detach(|| {
            let value = self.value.lock()?.take();
            call(value.ok_or_else(|| self.error())?)
        })?)
    }
}

/// The exception of a function of the caller that Rust called.
#[derive(Default)]
pub(super) struct Raised(Mutex<Option<PyErr>>);

impl Raised {
    /// Returns an error in place of an exception, which is kept. `text` is the error.
    pub(super) fn keep<T>(&self, called: PyResult<T>, text: &str) -> Result<T> {
        called.map_err(|error| {
            *lock(&self.0) = Some(error);
            Error::InvalidArgument(text.to_owned())
        })
    }

    /// Raises the exception if there is one, else returns the answer of the call.
    pub(super) fn check<T>(self, answer: Result<T>) -> PyResult<T> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(answer?),
        }
    }
}

/// The mutex of a handle. A forked child may use it unless a thread of the parent was using it at the fork.
#[derive(Debug)]
pub(super) struct HandleMutex<T> {
    /// Fork generation of the threads that may hold the lock.
    owner: AtomicU32,
    state: Mutex<T>,
}

impl<T> HandleMutex<T> {
    pub(super) fn new(state: T) -> Self {
        Self { owner: AtomicU32::new(Generation::current().number()), state: Mutex::new(state) }
    }

    /// Locks the state, after the other threads of this process released it.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child if a thread of the parent was using the state at the fork.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        /// Another thread of the child takes the lock first and sets the generation at once.
        const LOOKS: u32 = 20;
        for _ in 0..LOOKS {
            if self.owner.load(Ordering::Acquire) == Generation::current().number() {
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
            self.owner.store(Generation::current().number(), Ordering::Release);
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
    fn a_child_takes_a_free_lock_and_is_refused_one_that_is_held() {
        let parent = Generation::current().number().wrapping_sub(1);
        let of_parent = || HandleMutex { owner: AtomicU32::new(parent), state: Mutex::new(7) };
        let free = of_parent();
        *free.lock().unwrap() += 1;
        assert_eq!(*free.lock().unwrap(), 8);

        let held = of_parent();
        let _thread_of_the_parent = held.state.lock().unwrap();
        assert!(held.lock().unwrap_err().to_string().contains("when the process was forked"));
    }
}
