//! The size of record batches.

/// A batch ends when it has this many rows, or before it is larger than this, unless one row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// The most rows.
    pub rows: usize,
    /// The most bytes, by an estimate from above.
    pub bytes: usize,
}

impl BatchSize {
    /// Rows of which some formats take the fields of all.
    pub const SAMPLE: Self = Self::of_rows(8_192);

    /// The bytes of a batch whose rows are given.
    pub const MOST_BYTES: usize = 64 << 20;

    /// A number of rows, or fewer of 64 MiB.
    pub const fn of_rows(rows: usize) -> Self {
        Self { rows, bytes: Self::MOST_BYTES }
    }
}

impl Default for BatchSize {
    /// 8,192 rows, or fewer that the processor's cache holds next to the batch before, which somebody still uses. Values of 1 KB are
    /// read a third faster than with 8,192 rows.
    fn default() -> Self {
        Self { rows: 8_192, bytes: 3 << 20 }
    }
}
