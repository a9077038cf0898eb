//! Threads that flush, as the broker's do.
//!
//! With asynchronous flush (upstream `FlushRealTimeService`) the thread flushes every half second if there are four pages or more,
//! and every ten seconds everything. A thread that commits a pool's buffers (upstream `CommitRealTimeService`) is paced likewise.
//! With synchronous flush each put waits, and one flush serves all puts that wait. A put flushes itself, or leaves it to a thread
//! if it waits only for some time (upstream `GroupCommitService`).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::io::fork::Generation;

/// The intervals of a thread, and the bytes for which it works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// After this time every byte is flushed.
    thorough_interval: Duration,
    /// Fewer bytes wait.
    least: u64,
}

impl Pace {
    /// Upstream `flushIntervalCommitLog`, `flushCommitLogThoroughInterval`, `flushCommitLogLeastPages`.
    pub(crate) const FLUSH: Self =
        Self { interval: Duration::from_millis(500), thorough_interval: Duration::from_secs(10), least: 4 * 4096 };
    /// Upstream `commitIntervalCommitLog`, `commitCommitLogThoroughInterval`, `commitCommitLogLeastPages`.
    pub(crate) const COMMIT: Self =
        Self { interval: Duration::from_millis(200), thorough_interval: Duration::from_millis(200), least: 4 * 4096 };
}

/// A log whose thread flushes it.
pub(crate) trait Flushed: Send + Sync + 'static {
    /// Bytes that are not flushed.
    fn unflushed(&self) -> u64;
    /// Returns whether bytes before `end` are not flushed yet. After a failed flush none are waited for.
    fn waits_for(&self, end: u64) -> bool;
    /// Flushes them, and keeps an error for the next caller.
    fn flush_in_thread(&self);
}

/// When the thread flushes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schedule {
    /// At intervals.
    Interval(Pace),
    /// When a put waits.
    Demand,
}

/// The messages to and from the thread.
#[derive(Debug, Default)]
struct Signal {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    /// Puts wait for the bytes before this offset.
    end: u64,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread; dropping this stops it.
#[derive(Debug)]
pub(crate) struct FlushService {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
    /// A forked process has the handle, but not the thread.
    process: Generation,
}

impl FlushService {
    /// # Errors
    /// An I/O error if the thread cannot start.
    pub(crate) fn start(flushed: Arc<impl Flushed>, schedule: Schedule) -> Result<Self> {
        let signal = Arc::new(Signal::default());
        let work = {
            let signal = Arc::clone(&signal);
            move || match schedule {
                Schedule::Interval(pace) => flush_at_intervals(&signal, &*flushed, pace),
                Schedule::Demand => flush_on_demand(&signal, &*flushed),
            }
        };
        let thread = std::thread::Builder::new().name("logdex-flush".into()).spawn(work);
        let thread = thread.map_err(|e| Error::io(std::path::Path::new("logdex-flush"), e))?;
        Ok(Self { signal, thread: Some(thread), process: Generation::current() })
    }

    /// Waits until everything before `end` is flushed, a flush has failed, or the time is over.
    pub(crate) fn wait(&self, flushed: &impl Flushed, end: u64, timeout: Duration) {
        let mut requests = self.signal.lock();
        requests.end = requests.end.max(end);
        self.signal.changed.notify_all();
        let waits = |_: &mut Requests| flushed.waits_for(end);
        drop(self.signal.changed.wait_timeout_while(requests, timeout, waits));
    }
}

impl Drop for FlushService {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        self.signal.lock().stop = true;
        self.signal.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn flush_at_intervals(signal: &Signal, flushed: &dyn Flushed, pace: Pace) {
    let mut thorough = Instant::now();
    loop {
        let waited = signal.changed.wait_timeout_while(signal.lock(), pace.interval, |requests| !requests.stop);
        if waited.unwrap_or_else(PoisonError::into_inner).0.stop {
            return;
        }
        let all = thorough.elapsed() >= pace.thorough_interval;
        if all {
            thorough = Instant::now();
        }
        if flushed.unflushed() >= if all { 1 } else { pace.least } {
            flushed.flush_in_thread();
        }
    }
}

fn flush_on_demand(signal: &Signal, flushed: &dyn Flushed) {
    let mut requests = signal.lock();
    while !requests.stop {
        let is_asked = flushed.waits_for(requests.end);
        if is_asked {
            drop(requests);
            flushed.flush_in_thread();
            requests = signal.lock();
        }
        // Under the lock, so that no put misses it. Also if another thread has flushed since the request of a put.
        signal.changed.notify_all();
        if !is_asked {
            requests = signal.changed.wait(requests).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A log of ten bytes on a disk that waits until it is released.
    #[derive(Debug, Default)]
    struct Slow {
        gate: Mutex<bool>,
        opened: Condvar,
        flushed: AtomicU64,
    }

    impl Flushed for Slow {
        fn unflushed(&self) -> u64 {
            10 - self.flushed.load(Ordering::Acquire)
        }

        fn waits_for(&self, end: u64) -> bool {
            self.flushed.load(Ordering::Acquire) < end
        }

        fn flush_in_thread(&self) {
            drop(self.opened.wait_while(self.gate.lock().unwrap(), |open| !*open));
            self.flushed.store(10, Ordering::Release);
        }
    }

    #[test]
    fn a_wait_ends_with_its_time_or_with_the_flush() {
        let log = Arc::new(Slow::default());
        let service = FlushService::start(Arc::clone(&log), Schedule::Demand).unwrap();
        service.wait(&*log, 5, Duration::from_millis(1));
        assert!(log.waits_for(5));
        *log.gate.lock().unwrap() = true;
        log.opened.notify_all();
        service.wait(&*log, 10, Duration::from_secs(60));
        assert!(!log.waits_for(10));
        service.wait(&*log, 3, Duration::from_secs(60));
    }

    /// A log that another thread flushes before this thread checks.
    #[derive(Debug, Default)]
    struct Raced {
        looks: AtomicU64,
    }

    impl Flushed for Raced {
        fn unflushed(&self) -> u64 {
            0
        }

        fn waits_for(&self, end: u64) -> bool {
            // The first check is that of the put.
            end > 0 && self.looks.fetch_add(1, Ordering::AcqRel) == 0
        }

        fn flush_in_thread(&self) {}
    }

    #[test]
    fn a_wait_ends_with_the_flush_of_another_thread() {
        let log = Arc::new(Raced::default());
        let service = FlushService::start(Arc::clone(&log), Schedule::Demand).unwrap();
        let begin = Instant::now();
        service.wait(&*log, 5, Duration::from_secs(60));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
