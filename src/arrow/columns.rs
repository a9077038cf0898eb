//! Builders for columns of texts, bytes and numbers, written straight into Arrow's layout.
//!
//! Their memory is reused: when a batch is no longer in use, a later one is built in the same memory. Page faults of fresh memory
//! would cost more than writing the values.

use std::iter;
use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};

use crate::java_text::decode_utf8;

/// Values up to these lengths are copied in one go, with what follows them.
const SHORT: usize = 32;
const MIDDLE: usize = 128;

/// The start of a value in a buffer, and its length; a length below 0 is null.
pub(crate) type Place = (u32, i32);

/// The first `len` bytes of `from`. If `from` is longer, a copy may take more bytes than `len`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) len: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn whole(from: &'a [u8]) -> Self {
        Self { from, len: from.len() }
    }

    /// True if the first `len` bytes are ASCII.
    #[inline]
    pub(crate) fn is_ascii(&self) -> bool {
        let (words, rest) = self.bytes().as_chunks::<8>();
        let seen = words.iter().fold(0, |seen, word| seen | u64::from_le_bytes(*word));
        let seen = rest.iter().fold(seen, |seen, byte| seen | u64::from(*byte));
        seen & 0x8080_8080_8080_8080 == 0
    }

    /// The first `len` bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.from.get(..self.len).unwrap_or_default()
    }
}

/// A builder for a column of texts or bytes.
#[derive(Debug)]
pub(crate) struct ByteColumn {
    /// The bytes of all values, up to the last offset, and spare capacity.
    content: Recycled<u8>,
    offsets: Recycled<i32>,
    used: usize,
    nulls: NullBufferBuilder,
    /// Validity of the rows of a block.
    valid: Vec<bool>,
}

impl ByteColumn {
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

    /// Number of rows so far.
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

    /// Adds the rows that make up each piece, given the end of each within the piece.
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

    /// Adds a row for each pair of pieces, which are concatenated.
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

    /// Adds a row for each piece; `None` is null.
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

    /// Adds the values at these places of `bytes`; a length below 0 is null.
    #[inline]
    pub(crate) fn extend_places(&mut self, places: impl ExactSizeIterator<Item = Place> + Clone, bytes: &[u8]) {
        self.begin();
        let (rows, begin) = (places.len(), self.used);
        let (mut end, mut has_nulls) = (begin, false);
        self.offsets.extend(places.clone().map(|(_, len)| {
            has_nulls |= len < 0;
            end += usize::try_from(len).unwrap_or(0);
            offset(end)
        }));
        if has_nulls {
            for (_, len) in places.clone() {
                self.nulls.append(len >= 0);
            }
        } else {
            self.nulls.append_n_non_nulls(rows);
        }
        reserve(&mut self.content.values, end + MIDDLE);
        let target = self.content.values.get_mut(begin..).unwrap_or_default();
        if end - begin <= rows * MIDDLE {
            copy_short(places, bytes, target);
        } else {
            copy_long(places, bytes, target);
        }
        self.used = end;
    }

    /// Adds null rows.
    pub(crate) fn extend_nulls(&mut self, rows: usize) {
        self.begin();
        self.nulls.append_n_nulls(rows);
        self.offsets.extend(iter::repeat_n(offset(self.used), rows));
    }

    /// The bytes of the rows from this one on.
    pub(crate) fn content_from(&self, row: usize) -> &[u8] {
        let begin = self.offsets.values.get(row).copied().unwrap_or_default();
        let content = self.content.values.get(..self.used).unwrap_or_default();
        content.get(usize::try_from(begin).unwrap_or_default()..).unwrap_or_default()
    }

    /// Removes the rows from this one on.
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

    /// The column as text, decoded as Java does where values are malformed.
    pub(crate) fn finish_text(&mut self) -> StringArray {
        let (offsets, bytes, nulls) = self.parts();
        StringArray::try_new(offsets.clone(), bytes.clone(), nulls.clone()).unwrap_or_else(|_| {
            let values = BinaryArray::new(offsets, bytes, nulls);
            values.iter().map(|value| value.map(decode_utf8)).collect()
        })
    }

    /// The column as bytes.
    pub(crate) fn finish_binary(&mut self) -> BinaryArray {
        let (offsets, bytes, nulls) = self.parts();
        BinaryArray::new(offsets, bytes, nulls)
    }
}

/// Copies a piece to `used`, and returns the offset of its end.
#[inline]
fn copy(content: &mut Vec<u8>, used: &mut usize, piece: Piece<'_>) -> i32 {
    // A copy of a constant length is a few instructions; of a variable length it is a call.
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

/// A batch has less than 2^31 bytes.
#[inline]
fn offset(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

#[inline(never)]
fn copy_any(content: &mut Vec<u8>, used: usize, bytes: &[u8]) {
    reserve(content, used + bytes.len() + SHORT);
    if let Some(to) = content.get_mut(used..).and_then(|to| to.get_mut(..bytes.len())) {
        to.copy_from_slice(bytes);
    }
}

/// Makes the content at least `wanted` bytes long.
fn reserve(content: &mut Vec<u8>, wanted: usize) {
    if content.len() < wanted {
        let len = wanted.max(content.len() + content.len() / 2).max(4096);
        content.resize(len, 0);
    }
}

/// Copies values that are short on average. A copy of a fixed length is a few instructions; the next value overwrites the
/// excess.
#[inline]
fn copy_short(places: impl Iterator<Item = Place>, bytes: &[u8], mut to: &mut [u8]) {
    for (at, len) in places {
        let len = usize::try_from(len).unwrap_or(0);
        let value = bytes.get(at as usize..).unwrap_or_default();
        if len <= SHORT
            && let (Some(to), Some(value)) = (to.first_chunk_mut::<SHORT>(), value.first_chunk())
        {
            *to = *value;
        } else if len <= MIDDLE
            && let (Some(to), Some(value)) = (to.first_chunk_mut::<MIDDLE>(), value.first_chunk())
        {
            *to = *value;
        } else if let (Some(to), Some(value)) = (to.get_mut(..len), value.get(..len)) {
            to.copy_from_slice(value);
        }
        to = to.get_mut(len..).unwrap_or_default();
    }
}

fn copy_long(places: impl Iterator<Item = Place>, bytes: &[u8], mut to: &mut [u8]) {
    for (at, len) in places {
        let len = usize::try_from(len).unwrap_or(0);
        if let (Some(to), Some(value)) =
            (to.get_mut(..len), bytes.get(at as usize..).and_then(|value| value.get(..len)))
        {
            to.copy_from_slice(value);
        }
        to = to.get_mut(len..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;

    use super::*;

    fn append(column: &mut ByteColumn, value: Option<&[u8]>) {
        let len = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
        column.extend_places(std::iter::once((0, len)), value.unwrap_or_default());
    }

    #[test]
    fn values_come_out_as_they_went_in() {
        let mut column = ByteColumn::new();
        for _ in 0..2 {
            for value in [Some(&b"one"[..]), None, Some(b""), Some(b"\xff")] {
                append(&mut column, value);
            }
            assert_eq!(column.len(), 4);
            let array = column.finish_binary();
            assert_eq!(array.iter().collect::<Vec<_>>(), [Some(&b"one"[..]), None, Some(b""), Some(b"\xff")]);
        }
        assert_eq!(column.finish_binary().len(), 0);
    }

    #[test]
    fn values_are_copied_from_their_places() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut column = ByteColumn::new();
        let places = [
            (0, 10),
            (50, 32),
            (190, 10),
            (0, -1),
            (0, 100),
            (200, 0),
            (7, 33),
            (80, 120),
            (72, 128),
            (0, 129),
            (3, 197),
        ];
        column.extend_places(places.into_iter(), &bytes);
        let array = column.finish_binary();
        for (row, (at, len)) in places.into_iter().enumerate() {
            let expected = usize::try_from(len).ok().map(|len| &bytes[at as usize..][..len]);
            assert_eq!((!array.is_null(row)).then(|| array.value(row)), expected, "{at} {len}");
        }
    }

    #[test]
    fn text_is_decoded_as_java_does() {
        let mut column = ByteColumn::new();
        // Split within a character: valid as a whole, but not the values.
        for value in [Some(&b"\xc3"[..]), Some(b"\xa4"), None, Some(b"k\xed\xa0\x80")] {
            append(&mut column, value);
        }
        let text = column.finish_text();
        assert_eq!(text.iter().collect::<Vec<_>>(), [Some("\u{fffd}"), Some("\u{fffd}"), None, Some("k\u{fffd}")]);
        append(&mut column, Some("\u{e4}".as_bytes()));
        assert_eq!(column.finish_text().value(0), "\u{e4}");
    }
}

/// A column of numbers.
#[derive(Debug)]
pub(crate) struct NumberColumn<P: ArrowPrimitiveType> {
    numbers: Recycled<P::Native>,
    nulls: NullBufferBuilder,
}

impl<P: ArrowPrimitiveType> NumberColumn<P> {
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
