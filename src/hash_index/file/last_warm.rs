//! When a file was last seen to be in memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The time for which a file that was in memory is assumed to be there, in milliseconds.
const TRUST_MS: u64 = 10;

/// When the file was last seen to be in memory; 0 = never.
#[derive(Debug, Default)]
pub(super) struct LastWarm(AtomicU64);

impl LastWarm {
    pub(super) fn is_recent(&self, now: u64) -> bool {
        now < self.0.load(Ordering::Relaxed).saturating_add(TRUST_MS)
    }

    pub(super) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// Milliseconds since the first call, plus enough that 0 is never recent.
pub(super) fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed().as_millis();
    u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(TRUST_MS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_seen_in_memory_is_not_asked_about_again_at_once() {
        let now = now_ms();
        assert!(!LastWarm::default().is_recent(now));
        let seen = LastWarm(AtomicU64::new(now));
        assert!(seen.is_recent(now));
        assert!(!seen.is_recent(now + TRUST_MS));
    }
}
