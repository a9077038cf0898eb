//! A mutex whose holder may wait for a disk, so that threads that wait for it check for signals.
//!
//! The standard mutex has no wait with a limit. So a thread first waits for its turn, and then takes the mutex, which is then free
//! unless another thread took it without a turn.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::signals;

/// Turns of threads.
#[derive(Debug, Default)]
struct Turns {
    is_taken: Mutex<bool>,
    freed: Condvar,
}

/// The turn of a thread; dropping it ends it.
#[derive(Debug)]
struct Turn<'a>(&'a Turns);

impl Turns {
    fn wait(&self) -> io::Result<Turn<'_>> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            let waited = self.freed.wait_timeout(is_taken, signals::LOOK).unwrap_or_else(PoisonError::into_inner);
            is_taken = waited.0;
            if *is_taken && waited.1.timed_out() {
                // A handler may need the interpreter lock, whose holder may wait for this one.
                drop(is_taken);
                signals::look()?;
                is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        *is_taken = true;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.freed.notify_one();
    }
}

/// A mutex whose waiters check for signals.
#[derive(Debug, Default)]
pub(crate) struct InterruptibleMutex<T> {
    turns: Turns,
    value: Mutex<T>,
}

/// The locked value. Dropping it unlocks it.
#[derive(Debug)]
pub(crate) struct InterruptibleGuard<'a, T> {
    value: MutexGuard<'a, T>,
    /// After the value, so that the next thread finds the mutex free.
    _turn: Turn<'a>,
}

impl<T> InterruptibleMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { turns: Turns::default(), value: Mutex::new(value) }
    }

    /// Locks the value.
    ///
    /// # Errors
    /// A signal handler ends the wait.
    pub(crate) fn wait(&self) -> io::Result<InterruptibleGuard<'_, T>> {
        let turn = self.turns.wait()?;
        Ok(InterruptibleGuard { value: self.lock(), _turn: turn })
    }

    /// Locks the value without checking for signals, for a call that must not fail.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for InterruptibleGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for InterruptibleGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn threads_take_turns() {
        let counted = Arc::new(InterruptibleMutex::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counted = Arc::clone(&counted);
                thread::spawn(move || (0..1000).for_each(|_| *counted.wait().unwrap() += 1))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*counted.lock(), 4000);
    }
}
