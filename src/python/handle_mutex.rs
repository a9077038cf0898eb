//! A lock for which a forked child never waits forever.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::fork::Generation;

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
