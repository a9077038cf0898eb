//! Sets of half-open ranges of log offsets.

use crate::error::Result;
use crate::rocketmq::commit_log::CommitLog;
use crate::time_range::TimeRange;

/// A half-open range of log offsets.
pub type Range = (i64, i64);

/// Returns an offset as ranges hold it.
pub(super) fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

/// Returns an offset of a range as the log takes it.
pub(super) fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

/// Returns the ranges of the log that may hold messages of a time range; see [`CommitLog::ranges_in_time`].
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn in_time(log: &CommitLog, times: TimeRange, slack_ms: i64) -> Result<Vec<Range>> {
    let ranges = log.ranges_in_time(times, slack_ms)?;
    Ok(ranges.into_iter().map(|(begin, end)| (signed(begin), signed(end))).collect())
}

/// Returns the union of ranges as ascending ranges that neither touch nor overlap.
pub fn union(ranges: impl IntoIterator<Item = Range>) -> Vec<Range> {
    let mut sorted: Vec<Range> = ranges.into_iter().filter(|(begin, end)| begin < end).collect();
    sorted.sort_unstable();
    let mut joined: Vec<Range> = Vec::with_capacity(sorted.len());
    for (begin, end) in sorted {
        match joined.last_mut() {
            Some((_, last)) if begin <= *last => *last = end.max(*last),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

/// Returns the parts of ranges that are in `whole`, in the same order.
pub fn within(whole: Range, ranges: &[Range]) -> Vec<Range> {
    let parts = ranges.iter().map(|(begin, end)| ((*begin).max(whole.0), (*end).min(whole.1)));
    parts.filter(|(begin, end)| begin < end).collect()
}

/// Returns the parts of `whole` that are in none of the ranges, ascending.
pub fn subtract(whole: Range, ranges: impl IntoIterator<Item = Range>) -> Vec<Range> {
    let mut rest = Vec::new();
    let (mut at, last) = whole;
    for (begin, end) in union(ranges) {
        if at < begin.min(last) {
            rest.push((at, begin.min(last)));
        }
        at = at.max(end);
    }
    if at < last {
        rest.push((at, last));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_cut_and_taken_away() {
        let ranges = [(30, 40), (0, 10), (10, 12), (5, 8), (50, 50)];
        assert_eq!(union(ranges), [(0, 12), (30, 40)]);
        assert_eq!(within((8, 35), &union(ranges)), [(8, 12), (30, 35)]);
        assert_eq!(subtract((4, 60), ranges), [(12, 30), (40, 60)]);
        assert_eq!(subtract((0, 12), ranges), []);
        assert_eq!(subtract((13, 20), []), [(13, 20)]);
    }
}
