//! Growing columns whose memory is used again: once whoever got a batch lets go of it, the next one is built in the same
//! place. Fresh memory would cost more than what is written into it.

use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};

/// How many batches may be alive beside the one that is built, so that their memory comes back.
const HANDED: usize = 3;
/// Short values are copied in one go of so many bytes, with what comes behind them.
const SHORT: usize = 16;
const MIDDLE: usize = 48;

/// A vector that comes back.
#[derive(Debug, Default)]
struct Recycled<T> {
    values: Vec<T>,
    handed: Vec<Buffer>,
}

impl<T: ArrowNativeType> Recycled<T> {
    /// Hands out what was built, and goes on with memory that nobody else has any more.
    fn hand_out(&mut self) -> Buffer {
        let len = self.values.len();
        let buffer = Buffer::from_vec(std::mem::take(&mut self.values));
        for handed in std::mem::take(&mut self.handed) {
            match handed.into_vec::<T>() {
                Ok(values) if self.values.capacity() < values.capacity() => self.values = values,
                Ok(_) => {}
                Err(handed) => self.handed.push(handed),
            }
        }
        if self.handed.len() >= HANDED {
            self.handed.remove(0);
        }
        if self.values.capacity() == 0 {
            self.values.reserve(len + len / 16);
        }
        self.handed.push(buffer.clone());
        buffer
    }
}

/// A column of numbers.
#[derive(Debug)]
pub(super) struct Numbers<P: ArrowPrimitiveType> {
    numbers: Recycled<P::Native>,
    nulls: NullBufferBuilder,
}

impl<P: ArrowPrimitiveType> Numbers<P> {
    pub(super) fn new() -> Self {
        Self { numbers: Recycled { values: Vec::new(), handed: Vec::new() }, nulls: NullBufferBuilder::new(0) }
    }

    #[inline]
    pub(super) fn extend(&mut self, numbers: impl ExactSizeIterator<Item = P::Native>) {
        self.nulls.append_n_non_nulls(numbers.len());
        self.numbers.values.extend(numbers);
    }

    pub(super) fn append_option(&mut self, number: Option<P::Native>) {
        self.nulls.append(number.is_some());
        self.numbers.values.push(number.unwrap_or_default());
    }

    pub(super) fn finish(&mut self, kind: &arrow_schema::DataType) -> ArrayRef {
        let len = self.numbers.values.len();
        let numbers = ScalarBuffer::new(self.numbers.hand_out(), 0, len);
        self.numbers.values.clear();
        Arc::new(PrimitiveArray::<P>::new(numbers, self.nulls.finish()).with_data_type(kind.clone()))
    }
}

/// A column of texts or bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    /// As long as there is room; what counts ends with the last offset.
    content: Recycled<u8>,
    offsets: Recycled<i32>,
    used: usize,
    nulls: NullBufferBuilder,
}

impl Bytes {
    pub(super) fn new() -> Self {
        let offsets = Recycled { values: vec![0], handed: Vec::new() };
        Self { content: Recycled::default(), offsets, used: 0, nulls: NullBufferBuilder::new(0) }
    }

    /// Rows so far.
    pub(super) fn len(&self) -> usize {
        self.offsets.values.len().saturating_sub(1)
    }

    /// Adds `len` bytes of `from`, which may go on behind them.
    #[inline]
    pub(super) fn append(&mut self, from: &[u8], begin: usize, len: usize) {
        self.write(from, begin, len);
        self.end_row();
    }

    pub(super) fn append_null(&mut self) {
        self.nulls.append_null();
        self.push_offset();
    }

    /// Adds bytes to a row that [`Self::end_row`] then ends.
    #[inline]
    pub(super) fn write(&mut self, from: &[u8], begin: usize, len: usize) {
        let from = from.get(begin..).unwrap_or_default();
        if self.content.values.len().saturating_sub(self.used) < len.max(MIDDLE) {
            self.grow(len);
        }
        let to = self.content.values.get_mut(self.used..).unwrap_or_default();
        // Fixed lengths are a few instructions; a length known only now is a call.
        if let (true, Some(to), Some(from)) = (len <= SHORT, to.first_chunk_mut::<SHORT>(), from.first_chunk::<SHORT>())
        {
            *to = *from;
        } else if let (true, Some(to), Some(from)) =
            (len <= MIDDLE, to.first_chunk_mut::<MIDDLE>(), from.first_chunk::<MIDDLE>())
        {
            *to = *from;
        } else if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
            to.copy_from_slice(from);
        }
        self.used += len;
    }

    #[inline]
    pub(super) fn end_row(&mut self) {
        self.nulls.append_non_null();
        self.push_offset();
    }

    fn push_offset(&mut self) {
        // A batch is at most two thousand million bytes long.
        self.offsets.values.push(i32::try_from(self.used).unwrap_or(i32::MAX));
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let bytes = &mut self.content.values;
        let wanted = (bytes.len() + bytes.len() / 2).max(self.used + len + 4096).max(bytes.capacity());
        bytes.resize(wanted, 0);
    }

    fn parts(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        self.content.values.truncate(self.used);
        self.used = 0;
        let bytes = self.content.hand_out();
        let rows = self.offsets.values.len();
        let offsets = ScalarBuffer::new(self.offsets.hand_out(), 0, rows);
        self.offsets.values.clear();
        self.offsets.values.push(0);
        (OffsetBuffer::new(offsets), bytes, self.nulls.finish())
    }

    pub(super) fn finish_text(&mut self) -> StringArray {
        let (offsets, bytes, nulls) = self.parts();
        StringArray::try_new(offsets, bytes, nulls).expect("malformed text is replaced before it is added")
    }

    pub(super) fn finish_binary(&mut self) -> BinaryArray {
        let (offsets, bytes, nulls) = self.parts();
        BinaryArray::new(offsets, bytes, nulls)
    }
}
