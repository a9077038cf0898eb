//! A column of bytes that is written straight into Arrow's layout.

use arrow_array::{BinaryArray, StringArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};

use crate::java_text::decode_utf8;

/// Values up to this length are copied in one piece of it.
const SHORT: usize = 32;

/// Values one behind the other, and where each ends. The caller takes them before the bytes are more than an end can count.
#[derive(Debug)]
pub(super) struct ByteColumn {
    ends: Vec<i32>,
    bytes: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl ByteColumn {
    pub(super) fn new() -> Self {
        Self::with_capacity(0, 0)
    }

    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { ends, bytes: Vec::with_capacity(bytes), nulls: NullBufferBuilder::new(rows) }
    }

    pub(super) fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    #[inline]
    pub(super) fn append_null(&mut self) {
        self.nulls.append_null();
        self.push_end();
    }

    #[inline]
    fn push_end(&mut self) {
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    /// Adds the first `len` bytes of `rest`, which are there.
    #[inline]
    pub(super) fn append_first(&mut self, rest: &[u8], len: usize) {
        match rest.first_chunk::<SHORT>() {
            // A copy of a fixed length is a few instructions; what is too much of it is cut off again.
            Some(chunk) if len <= SHORT => {
                let end = self.bytes.len() + len;
                self.bytes.extend_from_slice(chunk);
                self.bytes.truncate(end);
            }
            _ => self.bytes.extend_from_slice(rest.get(..len).unwrap_or_default()),
        }
        self.nulls.append_non_null();
        self.push_end();
    }

    /// Adds the values that lie at these places of `bytes`.
    pub(super) fn extend(&mut self, fields: impl Iterator<Item = (u32, i32)>, bytes: &[u8]) {
        for (at, len) in fields {
            match usize::try_from(len) {
                Ok(len) => self.append_first(bytes.get(at as usize..).unwrap_or_default(), len),
                Err(_) => self.append_null(),
            }
        }
    }

    /// The parts of what was added. The next rows will be much like these, so room for as many is made at once.
    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<arrow_buffer::NullBuffer>) {
        let next = Self::with_capacity(self.rows(), self.bytes.len() + self.bytes.len() / 16);
        let Self { ends, bytes, mut nulls } = std::mem::replace(self, next);
        (OffsetBuffer::new(ScalarBuffer::from(ends)), Buffer::from_vec(bytes), nulls.finish())
    }

    pub(super) fn finish(&mut self) -> BinaryArray {
        let (ends, bytes, nulls) = self.take();
        BinaryArray::new(ends, bytes, nulls)
    }

    /// The values as text, decoded as Java does where they are no UTF-8.
    pub(super) fn finish_text(&mut self) -> StringArray {
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
        match value {
            Some(value) => column.append_first(value, value.len()),
            None => column.append_null(),
        }
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
        let bytes: Vec<u8> = (0..100).collect();
        let mut column = ByteColumn::new();
        let places = [(0, 10), (50, 32), (90, 10), (0, -1), (0, 100), (100, 0), (7, 33)];
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
