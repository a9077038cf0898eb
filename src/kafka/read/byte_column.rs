//! A column of bytes that is written straight into Arrow's layout.

use arrow_array::{BinaryArray, StringArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};

use crate::java_text::decode_utf8;
use crate::kafka::format::record::{self, Place};

/// Values up to these lengths are copied in pieces of it.
const SHORT: usize = 32;
const MIDDLE: usize = 128;

/// Values one behind the other, and where each ends. The caller takes them before the bytes are more than an end can count.
#[derive(Debug)]
pub(crate) struct ByteColumn {
    ends: Vec<i32>,
    bytes: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl ByteColumn {
    pub(crate) fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { ends, bytes: Vec::with_capacity(bytes), nulls: NullBufferBuilder::new(rows) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// Adds the values that lie at these places of `bytes`; a length below 0 is null.
    #[inline]
    pub(crate) fn extend(&mut self, fields: impl ExactSizeIterator<Item = Place> + Clone, bytes: &[u8]) {
        let (rows, begin) = (fields.len(), self.bytes.len());
        let (mut end, mut nulls) = (begin, false);
        self.ends.extend(fields.clone().map(|(_, len)| {
            nulls |= len < 0;
            end += usize::try_from(len).unwrap_or(0);
            i32::try_from(end).unwrap_or(i32::MAX)
        }));
        if nulls {
            for (_, len) in fields.clone() {
                self.nulls.append(len >= 0);
            }
        } else {
            self.nulls.append_n_non_nulls(rows);
        }
        if end - begin <= rows * MIDDLE {
            self.copy_short(fields, bytes, end);
        } else {
            self.bytes.reserve(end - begin);
            fields
                .filter_map(|field| record::field(field, bytes))
                .for_each(|value| self.bytes.extend_from_slice(value));
        }
    }

    /// Copies values that are short on average, up to `end`: copies of a fixed length are a few instructions, and what is
    /// too much of one is written over by the next.
    #[inline]
    fn copy_short(&mut self, fields: impl Iterator<Item = Place>, bytes: &[u8], end: usize) {
        let begin = self.bytes.len();
        self.bytes.resize(end + MIDDLE, 0);
        let mut room = self.bytes.get_mut(begin..).unwrap_or_default();
        for (at, len) in fields {
            let len = usize::try_from(len).unwrap_or(0);
            let value = bytes.get(at as usize..).unwrap_or_default();
            if len <= SHORT
                && let (Some(to), Some(value)) = (room.first_chunk_mut::<SHORT>(), value.first_chunk())
            {
                *to = *value;
            } else if len <= MIDDLE
                && let (Some(to), Some(value)) = (room.first_chunk_mut::<MIDDLE>(), value.first_chunk())
            {
                *to = *value;
            } else if let (Some(to), Some(value)) = (room.get_mut(..len), value.get(..len)) {
                to.copy_from_slice(value);
            }
            room = room.get_mut(len..).unwrap_or_default();
        }
        self.bytes.truncate(end);
    }

    /// The parts of what was added. The next rows will be much like these, so room for as many is made at once.
    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<arrow_buffer::NullBuffer>) {
        let next = Self::with_capacity(self.rows(), self.bytes.len() + self.bytes.len() / 16);
        let Self { ends, bytes, mut nulls } = std::mem::replace(self, next);
        (OffsetBuffer::new(ScalarBuffer::from(ends)), Buffer::from_vec(bytes), nulls.finish())
    }

    pub(crate) fn finish(&mut self) -> BinaryArray {
        let (ends, bytes, nulls) = self.take();
        BinaryArray::new(ends, bytes, nulls)
    }

    /// The values as text, decoded as Java does where they are no UTF-8.
    pub(crate) fn finish_text(&mut self) -> StringArray {
        let (ends, bytes, nulls) = self.take();
        StringArray::try_new(ends.clone(), bytes.clone(), nulls.clone()).unwrap_or_else(|_| {
            let values = BinaryArray::new(ends, bytes, nulls);
            values.iter().map(|value| value.map(decode_utf8)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;

    use super::*;

    fn append(column: &mut ByteColumn, value: Option<&[u8]>) {
        let len = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
        column.extend(std::iter::once((0, len)), value.unwrap_or_default());
    }

    #[test]
    fn values_come_out_as_they_went_in() {
        let mut column = ByteColumn::new();
        for _ in 0..2 {
            for value in [Some(&b"one"[..]), None, Some(b""), Some(b"\xff")] {
                append(&mut column, value);
            }
            assert_eq!(column.rows(), 4);
            let array = column.finish();
            assert_eq!(array.iter().collect::<Vec<_>>(), [Some(&b"one"[..]), None, Some(b""), Some(b"\xff")]);
        }
        assert_eq!(column.finish().len(), 0);
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
        column.extend(places.into_iter(), &bytes);
        let array = column.finish();
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
