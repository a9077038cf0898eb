//! A queue from one thread to another that is bounded by the bytes in it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::io::signals;

/// Bytes that the sender may be ahead. A larger item is sent alone.
const AHEAD: usize = 32 * 1024 * 1024;

#[derive(Debug)]
struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    has_sender: bool,
    has_receiver: bool,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Pipe<T>(Arc<Shared<T>>);

/// The sending end.
#[derive(Debug)]
pub(crate) struct PipeSender<T>(Arc<Shared<T>>);

impl<T> Pipe<T> {
    pub(crate) fn new() -> (PipeSender<T>, Self) {
        let state = State { items: VecDeque::new(), bytes: 0, has_sender: true, has_receiver: true };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        (PipeSender(Arc::clone(&shared)), Self(shared))
    }

    /// Waits for the next item; `None` if there is none and the sender is gone.
    ///
    /// # Errors
    /// A signal ends the wait.
    pub(crate) fn recv(&self) -> io::Result<Option<T>> {
        let mut state = self.0.lock();
        while state.items.is_empty() && state.has_sender {
            let waited = self.0.changed.wait_timeout(state, signals::LOOK).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                drop(state);
                signals::look()?;
                state = self.0.lock();
            }
        }
        let Some((item, bytes)) = state.items.pop_front() else { return Ok(None) };
        state.bytes -= bytes;
        self.0.changed.notify_all();
        Ok(Some(item))
    }
}

impl<T> PipeSender<T> {
    /// Waits for space and sends an item of this size. Returns false if the receiver is gone.
    pub(crate) fn send(&self, item: T, bytes: usize) -> bool {
        let state = self.0.lock();
        let is_full = |state: &mut State<T>| state.has_receiver && state.bytes > 0 && state.bytes + bytes > AHEAD;
        let mut state = self.0.changed.wait_while(state, is_full).unwrap_or_else(PoisonError::into_inner);
        if state.has_receiver {
            state.items.push_back((item, bytes));
            state.bytes += bytes;
            self.0.changed.notify_all();
        }
        state.has_receiver
    }
}

impl<T> Drop for Pipe<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_receiver = false;
        state.items.clear();
        self.0.changed.notify_all();
    }
}

impl<T> Drop for PipeSender<T> {
    fn drop(&mut self) {
        self.0.lock().has_sender = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;

    use super::{AHEAD, Pipe};
    use crate::io::signals::{self, Signals};

    thread_local! {
        static IS_SIGNALLED: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_signal_ends_the_wait_for_a_sender_that_goes_on() {
        let look = || if IS_SIGNALLED.get() { Err(io::Error::other("a signal")) } else { Ok(()) };
        signals::set(Signals { look, ended: || Ok(()) });
        let (tap, pipe) = Pipe::<u8>::new();
        IS_SIGNALLED.set(true);
        assert_eq!(pipe.recv().unwrap_err().to_string(), "a signal");
        IS_SIGNALLED.set(false);
        assert!(tap.send(1, 1));
        assert_eq!(pipe.recv().unwrap(), Some(1));
    }

    #[test]
    fn items_come_in_order_and_the_sender_stays_within_its_bytes() {
        let (tap, pipe) = Pipe::new();
        let sent = AtomicUsize::new(0);
        thread::scope(|scope| {
            let sent = &sent;
            scope.spawn(move || {
                for number in 0..50 {
                    // The sizes are up to twice the limit.
                    assert!(tap.send(number, number % 8 * AHEAD / 4));
                    sent.fetch_add(1, SeqCst);
                }
            });
            for number in 0..50 {
                assert!(sent.load(SeqCst) <= number + 6, "at most the limit of the smallest items is ahead");
                assert_eq!(pipe.recv().unwrap(), Some(number));
            }
            assert_eq!(pipe.recv().unwrap(), None);
        });
    }

    #[test]
    fn a_sender_does_not_wait_for_a_receiver_that_is_gone() {
        let (tap, pipe) = Pipe::new();
        assert!(tap.send(1, 2 * AHEAD));
        thread::scope(|scope| {
            let waiting = scope.spawn(move || tap.send(2, AHEAD));
            drop(pipe);
            assert!(!waiting.join().unwrap());
        });
    }
}
