//! Builder of a column of bytes that need not be copied: Arrow's `BinaryView`, whose values are views of other buffers.

use std::sync::Arc;

use arrow_array::BinaryViewArray;
use arrow_array::builder::BinaryViewBuilder;
use arrow_buffer::Buffer;

use super::columns::Place;
use crate::io::Lent;

/// The owner of the bytes of an Arrow buffer.
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A builder for a column of views.
#[derive(Debug, Default)]
pub(crate) struct ViewColumn {
    builder: BinaryViewBuilder,
    /// The buffer of the last views, and its number in the builder.
    last: Option<(Arc<Vec<u8>>, u32)>,
}

impl ViewColumn {
    /// Adds the values at these places of `bytes`; a length below 0 is null. If the bytes are lent, the values are views of them,
    /// else of copies. Up to 12 bytes are in the view itself.
    #[inline]
    pub(crate) fn extend_places(&mut self, places: impl Iterator<Item = Place>, bytes: &[u8], lent: Option<&Lent>) {
        let block = lent.and_then(|lent| Some((self.block(lent), u32::try_from(lent.at).ok()?)));
        for (at, len) in places {
            let value = |len| bytes.get(at as usize..).and_then(|value| value.get(..len));
            match (u32::try_from(len), block) {
                (Err(_), _) => self.builder.append_null(),
                (Ok(len), Some((block, begin))) => {
                    self.builder
                        .try_append_view(block, begin + at, len)
                        .expect("the places of values are in the bytes");
                }
                (Ok(len), None) => self.builder.append_value(value(len as usize).unwrap_or_default()),
            }
        }
    }

    /// Returns the number of a buffer.
    fn block(&mut self, lent: &Lent) -> u32 {
        if let Some((buffer, block)) = &self.last
            && Arc::ptr_eq(buffer, &lent.buffer)
        {
            return *block;
        }
        let owner = bytes::Bytes::from_owner(Owner(Arc::clone(&lent.buffer)));
        let block = self.builder.append_block(Buffer::from(owner));
        self.last = Some((Arc::clone(&lent.buffer), block));
        block
    }

    /// Returns the rows, and begins again without any.
    pub(crate) fn finish(&mut self) -> BinaryViewArray {
        self.last = None;
        self.builder.finish()
    }
}
