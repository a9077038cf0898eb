//! A closed range of store times in milliseconds since the epoch.

/// Both ends are inclusive. `TimeRange::ALL` is no bound at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// First millisecond inside.
    pub begin_ms: i64,
    /// Last millisecond inside.
    pub end_ms: i64,
}

impl TimeRange {
    /// Every time there is.
    pub const ALL: Self = Self { begin_ms: i64::MIN, end_ms: i64::MAX };

    /// The range of two optional bounds; `None` is no bound.
    pub fn new(begin_ms: Option<i64>, end_ms: Option<i64>) -> Self {
        Self { begin_ms: begin_ms.unwrap_or(i64::MIN), end_ms: end_ms.unwrap_or(i64::MAX) }
    }

    /// True when the closed interval from `first` to `last` shares a millisecond with this range.
    pub fn meets(self, first: i64, last: i64) -> bool {
        self.begin_ms <= last && first <= self.end_ms
    }

    /// True when the range has no bound.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }
}
