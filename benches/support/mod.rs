//! Code of several benches: one kind of keys, files of one geometry, calls of the library, the traffic limit, and segments.
//!
//! The keys are those of the Java driver and of `benches/report/keys.py`: key `i` is `TopicTest#` and 32 hexadecimal
//! digits of splitmix64, its phy offset 1024 * i, ten keys to a millisecond.
#![allow(dead_code, reason = "each bench uses a part")]

pub(crate) mod calls;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod limit;
pub(crate) mod log;
pub(crate) mod log_put;
pub(crate) mod question;
pub(crate) mod segment_files;
pub(crate) mod segments;

use std::time::{Duration, Instant};

/// True under `cargo bench -- --test`, which runs each bench once, with small sizes, to check that it works.
pub(crate) fn is_trial() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// Runs once and returns the time.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let answer = run();
    (start.elapsed(), answer)
}
