//! Growing columns whose memory is used again: once whoever got a batch lets go of it, a later one is built in the same
//! place. Fresh memory would cost more than what is written into it.

use std::iter;
use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};

use crate::rocketmq::commit_log::frame::piece::Piece;

/// How many batches may be alive beside the one that is built, so that their memory comes back.
const HANDED: usize = 8;
/// Values up to this length are copied in one go, with what stands behind them.
const SHORT: usize = 32;

/// A vector that comes back.
#[derive(Debug)]
pub(crate) struct Recycled<T> {
    values: Vec<T>,
    handed: Vec<Buffer>,
    /// How many values the last batch had.
    last: usize,
}

impl<T: ArrowNativeType> Recycled<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), handed: Vec::new(), last: 0 }
    }

    fn is_begun(&self) -> bool {
        self.values.capacity() > 0
    }

    /// Begins a batch in memory that nobody else has any more, with whatever values were there.
    #[cold]
    fn begin(&mut self) {
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
    fn hand_out(&mut self, len: usize) -> Buffer {
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

/// A column of numbers.
#[derive(Debug)]
pub(crate) struct Numbers<P: ArrowPrimitiveType> {
    numbers: Recycled<P::Native>,
    nulls: NullBufferBuilder,
}

impl<P: ArrowPrimitiveType> Numbers<P> {
    pub(crate) fn new() -> Self {
        Self { numbers: Recycled::new(), nulls: NullBufferBuilder::new(0) }
    }

    #[inline]
    pub(crate) fn extend(&mut self, numbers: impl ExactSizeIterator<Item = P::Native>) {
        self.nulls.append_n_non_nulls(numbers.len());
        self.numbers.extend(numbers);
    }

    pub(crate) fn append_option(&mut self, number: Option<P::Native>) {
        self.nulls.append(number.is_some());
        self.numbers.extend(iter::once(number.unwrap_or_default()));
    }

    pub(crate) fn finish(&mut self, kind: &arrow_schema::DataType) -> ArrayRef {
        let numbers = self.numbers.finish();
        Arc::new(PrimitiveArray::<P>::new(numbers, self.nulls.finish()).with_data_type(kind.clone()))
    }
}

/// A column of texts or bytes.
#[derive(Debug)]
pub(crate) struct Bytes {
    /// As long as there is room; what counts ends with the last offset.
    content: Recycled<u8>,
    offsets: Recycled<i32>,
    used: usize,
    nulls: NullBufferBuilder,
    /// Which rows of a block are there.
    valid: Vec<bool>,
}

impl Bytes {
    pub(crate) fn new() -> Self {
        let (content, offsets) = (Recycled::new(), Recycled::new());
        Self { content, offsets, used: 0, nulls: NullBufferBuilder::new(0), valid: Vec::new() }
    }

    fn begin(&mut self) {
        if !self.offsets.is_begun() {
            self.content.begin();
            self.offsets.extend(iter::once(0));
        }
    }

    /// Rows so far.
    pub(crate) fn len(&self) -> usize {
        self.offsets.values.len().saturating_sub(1)
    }

    /// Adds a row for each piece.
    #[inline]
    pub(crate) fn extend<'a>(&mut self, pieces: impl ExactSizeIterator<Item = Piece<'a>>) {
        self.begin();
        self.nulls.append_n_non_nulls(pieces.len());
        let Self { content, offsets, used, .. } = self;
        offsets.extend(pieces.map(|piece| copy(&mut content.values, used, piece)));
    }

    /// Adds the rows of which each piece is made, and where in the piece each ends.
    #[inline]
    pub(crate) fn extend_rows<'a>(&mut self, pieces: impl Iterator<Item = (Piece<'a>, &'a [usize])>) {
        self.begin();
        let Self { content, offsets, used, nulls, .. } = self;
        for (piece, ends) in pieces {
            let before = *used;
            copy(&mut content.values, used, piece);
            offsets.extend(ends.iter().map(|end| offset(before + end)));
            nulls.append_n_non_nulls(ends.len());
        }
    }

    /// Adds a row for each pair of pieces, which are put together.
    #[inline]
    pub(crate) fn extend_joined<'a>(&mut self, pairs: impl ExactSizeIterator<Item = (Piece<'a>, [u8; SHORT], usize)>) {
        self.begin();
        self.nulls.append_n_non_nulls(pairs.len());
        let Self { content, offsets, used, .. } = self;
        offsets.extend(pairs.map(|(first, second, len)| {
            copy(&mut content.values, used, first);
            copy(&mut content.values, used, Piece { from: &second, len })
        }));
    }

    /// Adds a row for each piece, null where there is none.
    #[inline]
    pub(crate) fn extend_optional<'a>(&mut self, pieces: impl ExactSizeIterator<Item = Option<Piece<'a>>>) {
        self.begin();
        let Self { content, offsets, used, valid, nulls } = self;
        valid.clear();
        let mut count = 0;
        offsets.extend(pieces.map(|piece| {
            valid.push(piece.is_some());
            count += usize::from(piece.is_some());
            copy(&mut content.values, used, piece.unwrap_or_default())
        }));
        match valid.len() {
            all if all == count => nulls.append_n_non_nulls(all),
            all if count == 0 => nulls.append_n_nulls(all),
            _ => nulls.append_slice(valid),
        }
    }

    /// Adds so many rows that are null.
    pub(crate) fn extend_nulls(&mut self, rows: usize) {
        self.begin();
        self.nulls.append_n_nulls(rows);
        self.offsets.extend(iter::repeat_n(offset(self.used), rows));
    }

    /// What the rows from this one on hold.
    pub(crate) fn content_from(&self, row: usize) -> &[u8] {
        let begin = self.offsets.values.get(row).copied().unwrap_or_default();
        let content = self.content.values.get(..self.used).unwrap_or_default();
        content.get(usize::try_from(begin).unwrap_or_default()..).unwrap_or_default()
    }

    /// Forgets the rows from this one on.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.offsets.values.truncate(rows + 1);
        let used = self.offsets.values.last().copied().unwrap_or_default();
        self.used = usize::try_from(used).unwrap_or_default();
        self.nulls.truncate(rows);
    }

    fn parts(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        self.begin();
        let bytes = self.content.hand_out(self.used);
        self.used = 0;
        (OffsetBuffer::new(self.offsets.finish()), bytes, self.nulls.finish())
    }

    pub(crate) fn finish_text(&mut self) -> StringArray {
        let (offsets, bytes, nulls) = self.parts();
        StringArray::try_new(offsets, bytes, nulls).expect("malformed text is replaced before it is added")
    }

    pub(crate) fn finish_binary(&mut self) -> BinaryArray {
        let (offsets, bytes, nulls) = self.parts();
        BinaryArray::new(offsets, bytes, nulls)
    }
}

/// Copies a piece to where `used` ends, and gives the offset of its end.
#[inline]
fn copy(content: &mut Vec<u8>, used: &mut usize, piece: Piece<'_>) -> i32 {
    // A fixed length is a few instructions; a length known only now is a call.
    if piece.len <= SHORT
        && let Some(from) = piece.from.first_chunk::<SHORT>()
        && let Some(to) = content.get_mut(*used..).and_then(|to| to.first_chunk_mut())
    {
        *to = *from;
    } else {
        copy_any(content, *used, piece.bytes());
    }
    *used += piece.len;
    offset(*used)
}

/// A batch is at most two thousand million bytes long.
#[inline]
fn offset(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

#[inline(never)]
fn copy_any(content: &mut Vec<u8>, used: usize, bytes: &[u8]) {
    let wanted = used + bytes.len() + SHORT;
    if content.len() < wanted {
        let len = wanted.max(content.len() + content.len() / 2).max(4096);
        content.resize(len, 0);
    }
    if let Some(to) = content.get_mut(used..).and_then(|to| to.get_mut(..bytes.len())) {
        to.copy_from_slice(bytes);
    }
}
