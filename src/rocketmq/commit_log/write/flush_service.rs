//! A thread that flushes, as the broker's `FlushRealTimeService` does.
//!
//! Every half second it flushes if there are four pages or more; every ten seconds it flushes everything. With synchronous
//! flush there is no thread: each put waits, and one flush serves all puts that wait (upstream `GroupCommitService`).

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Upstream `flushIntervalCommitLog`.
const INTERVAL: Duration = Duration::from_millis(500);
/// Upstream `flushCommitLogThoroughInterval`.
const THOROUGH_INTERVAL: Duration = Duration::from_secs(10);
/// Upstream `flushCommitLogLeastPages`, in bytes.
const LEAST: u64 = 4 * 4096;

/// A log with bytes to flush.
pub(super) trait Flushed: Send + Sync + 'static {
    /// Bytes that are not flushed.
    fn unflushed(&self) -> u64;
    /// Flushes them, and keeps an error for the next caller.
    fn flush_in_thread(&self);
}

/// The thread; dropping this stops it.
#[derive(Debug)]
pub(super) struct FlushService {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    /// A forked process has the handle, but not the thread.
    process: u32,
}

impl FlushService {
    /// # Errors
    /// The system's error if the thread cannot start.
    pub(super) fn start(flushed: Arc<impl Flushed>) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let work = {
            let stop = Arc::clone(&stop);
            move || run(&stop, &*flushed)
        };
        let thread = std::thread::Builder::new().name("logdex-flush".into()).spawn(work);
        let thread = thread.map_err(|e| Error::io(std::path::Path::new("logdex-flush"), e))?;
        Ok(Self { stop, thread: Some(thread), process: std::process::id() })
    }
}

impl Drop for FlushService {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let (stopped, signal) = &*self.stop;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        signal.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(stop: &(Mutex<bool>, Condvar), flushed: &dyn Flushed) {
    let (stopped, signal) = stop;
    let mut thorough = Instant::now();
    loop {
        let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = signal.wait_timeout_while(stopped, INTERVAL, |stopped| !*stopped);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
        let all = thorough.elapsed() >= THOROUGH_INTERVAL;
        if all {
            thorough = Instant::now();
        }
        if flushed.unflushed() >= if all { 1 } else { LEAST } {
            flushed.flush_in_thread();
        }
    }
}
