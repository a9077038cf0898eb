//! A mutex of one process.
//!
//! A child that is forked has the memory of its parent and none of the parent's other threads. If one of them held a mutex at that
//! moment, the child would wait for it for ever. So the child checks each mutex once of its parent: it takes the state of a free
//! one, and starts with an empty state where a thread was at work. The state must therefore be one that can be made again.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::fork::Generation;
use super::signals;
use crate::error::{Error, Result};

/// A mutex of one process.
#[derive(Debug)]
pub(crate) struct ProcessMutex<T>(ArcSwapOption<Owned<T>>);

#[derive(Debug)]
struct Owned<T> {
    process: Generation,
    state: Mutex<T>,
}

impl<T: Default> ProcessMutex<T> {
    /// An empty state.
    pub(crate) const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// A state that is not empty; a child may not get it.
    pub(crate) fn of(state: T) -> Self {
        let process = Generation::current();
        Self(ArcSwapOption::from_pointee(Owned { process, state: Mutex::new(state) }))
    }

    /// Calls with the state, while no other thread of this process has it.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> R {
        let owned = self.owned();
        call(&mut owned.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Self::with`], for a call that may take long: a wait for another thread's call checks for signals.
    ///
    /// # Errors
    /// A signal handler ends the wait.
    pub(crate) fn wait_with<R>(&self, call: impl FnOnce(&mut T) -> R) -> Result<R> {
        const WAIT: Duration = Duration::from_millis(1);
        let owned = self.owned();
        loop {
            match owned.state.try_lock() {
                Ok(mut state) => return Ok(call(&mut state)),
                Err(TryLockError::Poisoned(state)) => return Ok(call(&mut state.into_inner())),
                Err(TryLockError::WouldBlock) => {
                    signals::look().map_err(|e| Error::InvalidArgument(e.to_string()))?;
                    std::thread::sleep(WAIT);
                }
            }
        }
    }

    fn owned(&self) -> Arc<Owned<T>> {
        let process = Generation::current();
        let held = self.0.load_full();
        if let Some(owned) = held.as_ref().filter(|owned| owned.process == process) {
            return Arc::clone(owned);
        }
        let state = held.as_ref().map_or_else(T::default, |parents| match parents.state.try_lock() {
            Ok(mut state) => std::mem::take(&mut *state),
            Err(TryLockError::Poisoned(state)) => std::mem::take(&mut *state.into_inner()),
            Err(TryLockError::WouldBlock) => T::default(),
        });
        let new = Arc::new(Owned { process, state: Mutex::new(state) });
        let before = self.0.compare_and_swap(&held, Some(Arc::clone(&new)));
        // A thread that is not here may be in the middle of a change: such a state cannot be dropped.
        std::mem::forget(held);
        match before.as_ref() {
            // Another thread of this process was faster.
            Some(other) if other.process == process => Arc::clone(other),
            _ => new,
        }
    }
}

impl<T: Default> Default for ProcessMutex<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its state in a child of the process that used it.
    fn in_child(mutex: &ProcessMutex<u32>) -> ProcessMutex<u32> {
        let state = Mutex::new(mutex.with(|state| *state));
        ProcessMutex(ArcSwapOption::from_pointee(Owned { process: Generation::current().other(), state }))
    }

    #[test]
    fn a_child_takes_a_free_state() {
        let child = in_child(&ProcessMutex::of(7));
        assert_eq!(child.with(|state| *state), 7);
        child.with(|state| *state += 1);
        assert_eq!(child.with(|state| *state), 8);
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_of_its_parent() {
        let child = in_child(&ProcessMutex::of(7));
        let parents = child.0.load_full().unwrap();
        let _held = parents.state.lock().unwrap();
        assert_eq!(child.with(|state| *state), 0);
    }
}
