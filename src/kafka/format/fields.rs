//! The fields of Kafka's messages, one after another.

use super::varint::Cursor;

/// The remaining fields of a message. Every call returns `None` if the bytes end before the field does.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A number of at most five bytes.
    pub(crate) fn varint(&mut self) -> Option<usize> {
        let mut cursor = Cursor::new(self.0);
        let number = cursor.unsigned(5)?;
        self.0 = cursor.rest;
        usize::try_from(number).ok()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes after their number plus one, as flexible versions have them.
    pub(crate) fn compact(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?.checked_sub(1)?;
        self.bytes(len)
    }
}

/// The fields of records, which only the binding reads.
#[cfg(any(feature = "python", test))]
impl<'a> Fields<'a> {
    pub(crate) fn int16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    pub(crate) fn int32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(crate) fn int64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    /// Bytes after their number in 16 bits.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.int16()?).ok()?;
        self.bytes(len)
    }
}
