//! Rates a second.

use std::time::Instant;

/// The longest span of a rate, in seconds.
const LONGEST: usize = 600;

/// Counts of the last ten minutes, one for each second.
#[derive(Clone, Debug)]
pub struct Meter {
    begin: Instant,
    /// The second of a count, since the start, and the count. One place serves all seconds that are alike modulo its number.
    seconds: Vec<(u64, u64)>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { begin: Instant::now(), seconds: vec![(0, 0); LONGEST + 1] }
    }
}

impl Meter {
    /// Counts.
    pub fn add(&mut self, count: u64) {
        self.add_at(self.begin.elapsed().as_secs(), count);
    }

    /// Returns how many a second there were in the last 10, 60 and 600 whole seconds, or since the start if that is more recent
    /// (upstream `StoreStatsService#getPutTps`).
    #[expect(clippy::cast_precision_loss, reason = "counts of some minutes")]
    pub fn rates(&self) -> [f64; 3] {
        let now = self.begin.elapsed().as_secs();
        [10, 60, LONGEST as u64].map(|span| {
            let (count, seconds) = self.counted(now, span);
            count as f64 / seconds.max(1) as f64
        })
    }

    fn add_at(&mut self, second: u64, count: u64) {
        let place = usize::try_from(second).unwrap_or_default() % self.seconds.len();
        if let Some(at) = self.seconds.get_mut(place) {
            *at = (second, count + if at.0 == second { at.1 } else { 0 });
        }
    }

    /// Returns the counts of the last whole seconds, and the number of these.
    fn counted(&self, now: u64, span: u64) -> (u64, u64) {
        let span = span.min(now);
        let within = self.seconds.iter().filter(|(second, _)| (now - span..now).contains(second));
        (within.map(|(_, count)| count).sum(), span)
    }
}

#[cfg(test)]
mod tests {
    use super::Meter;

    #[test]
    fn a_rate_is_of_whole_seconds_that_have_passed() {
        let mut meter = Meter::default();
        meter.add_at(0, 4);
        meter.add_at(0, 6);
        assert_eq!(meter.counted(0, 10), (0, 0));
        assert_eq!(meter.counted(1, 10), (10, 1));
        meter.add_at(3, 30);
        assert_eq!(meter.counted(4, 10), (40, 4));
        assert_eq!([12, 13, 14].map(|now| meter.counted(now, 10)), [(30, 10), (30, 10), (0, 10)]);
    }

    #[test]
    fn a_place_of_ten_minutes_ago_counts_no_more() {
        let mut meter = Meter::default();
        meter.add_at(5, 600);
        assert_eq!([605, 606].map(|now| meter.counted(now, 600)), [(600, 600), (0, 600)]);
        meter.add_at(5 + 601, 1200);
        assert_eq!(meter.counted(607, 600), (1200, 600));
    }
}
