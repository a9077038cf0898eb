//! Counts of puts, and their times.
//!
//! Source: upstream `StoreStatsService`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Meter;

/// Upper bounds of the classes of durations. A longer one is of one class more.
const BOUNDS: [Duration; 12] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(4),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Counts of the messages or records that were put since the log was opened.
#[derive(Clone, Debug, Default)]
pub struct PutStatistics {
    /// Their number.
    pub messages: u64,
    /// Bytes of the log: of frames and the ends of files, or of batches.
    pub bytes: u64,
    /// The longest put, with its flush if it waits for one.
    pub longest: Duration,
    /// Messages by the duration of their put: below 1, 10, 50, 100, 200 and 500 ms, 1, 2, 3, 4, 5 and 10 s, and all others.
    pub durations: [u64; BOUNDS.len() + 1],
    /// Messages in each second.
    pub meter: Meter,
}

impl PutStatistics {
    fn add(&mut self, messages: u64, bytes: u64, begin: Instant) {
        let took = begin.elapsed();
        self.messages += messages;
        self.bytes += bytes;
        self.longest = self.longest.max(took);
        let class = BOUNDS.partition_point(|bound| *bound <= took);
        if let Some(count) = self.durations.get_mut(class) {
            *count += messages;
        }
        self.meter.add(messages);
    }
}

/// The statistics of one writer or several; any thread may count.
#[derive(Debug, Default)]
pub struct PutCounter(Mutex<PutStatistics>);

impl PutCounter {
    /// Counts a put that ends now.
    pub(crate) fn add(&self, messages: u64, bytes: u64, begin: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(messages, bytes, begin);
    }

    /// The puts so far. A put counts when it ends.
    pub fn statistics(&self) -> PutStatistics {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
