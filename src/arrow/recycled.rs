//! A growing buffer of values whose memory is reused: when a batch is no longer in use, a later one is built in the same
//! memory. Page faults of fresh memory would cost more than writing the values.

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};

/// The number of finished batches that are kept, so that their memory can be reused.
const HANDED: usize = 8;

/// A vector whose memory is reused.
#[derive(Debug)]
pub(crate) struct Recycled<T> {
    pub(super) values: Vec<T>,
    handed: Vec<Buffer>,
    /// Number of values of the last batch.
    last: usize,
}

impl<T: ArrowNativeType> Recycled<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), handed: Vec::new(), last: 0 }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.values.capacity() > 0
    }

    /// Begins a batch in memory that no other batch uses, with arbitrary values.
    #[cold]
    pub(super) fn begin(&mut self) {
        for place in (0..self.handed.len()).rev() {
            match self.handed.remove(place).into_vec() {
                Ok(values) => {
                    self.values = values;
                    return;
                }
                Err(taken) => self.handed.insert(place, taken),
            }
        }
        // Zeros from the system cost nothing before the first access.
        self.values = vec![T::default(); (self.last + self.last / 16).max(64)];
    }

    /// Returns the first `len` values as a buffer.
    pub(super) fn hand_out(&mut self, len: usize) -> Buffer {
        let whole = Buffer::from_vec(std::mem::take(&mut self.values));
        let handed = whole.slice_with_length(0, len * size_of::<T>());
        if self.handed.len() >= HANDED {
            self.handed.remove(0);
        }
        self.handed.push(whole);
        self.last = len;
        handed
    }

    /// Adds values one after the other.
    #[inline]
    pub(crate) fn extend(&mut self, values: impl ExactSizeIterator<Item = T>) {
        if !self.is_begun() {
            self.begin();
            self.values.clear();
        }
        self.values.extend(values);
    }

    /// Returns the values that were added with [`Self::extend`].
    pub(crate) fn finish(&mut self) -> ScalarBuffer<T> {
        let len = self.values.len();
        ScalarBuffer::new(self.hand_out(len), 0, len)
    }
}
