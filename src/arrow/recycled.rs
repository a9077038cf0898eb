//! A growing buffer of values whose memory is used again: once nobody holds a batch any more, a later one is built in the
//! same place. Fresh memory would cost more than what is written into it.

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};

/// How many batches may be alive beside the one that is built, so that their memory comes back.
const HANDED: usize = 8;

/// A vector whose memory comes back.
#[derive(Debug)]
pub(crate) struct Recycled<T> {
    pub(super) values: Vec<T>,
    handed: Vec<Buffer>,
    /// How many values the last batch had.
    last: usize,
}

impl<T: ArrowNativeType> Recycled<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), handed: Vec::new(), last: 0 }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.values.capacity() > 0
    }

    /// Begins a batch in memory that nobody else has any more, with whatever values were there.
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
        // Zeros that come from the system cost nothing before they are touched.
        self.values = vec![T::default(); (self.last + self.last / 16).max(64)];
    }

    /// Hands out the first `len` values.
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

    /// What was added with [`Self::extend`].
    pub(crate) fn finish(&mut self) -> ScalarBuffer<T> {
        let len = self.values.len();
        ScalarBuffer::new(self.hand_out(len), 0, len)
    }
}
