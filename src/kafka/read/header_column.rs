//! The column of a record's headers, written straight into Arrow's layout.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};

use super::byte_column::ByteColumn;
use crate::kafka::format::record::{Place, Span};

fn fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

/// What the list holds.
pub(crate) fn item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(fields()), true))
}

/// The headers of all rows.
#[derive(Debug)]
pub(crate) struct HeaderColumn {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
    keys: ByteColumn,
    values: ByteColumn,
    /// Where those of some records lie: used again and again.
    places: Vec<(Place, Place)>,
}

impl HeaderColumn {
    pub(crate) fn new() -> Self {
        Self {
            ends: vec![0],
            nulls: NullBufferBuilder::new(0),
            keys: ByteColumn::new(),
            values: ByteColumn::new(),
            places: Vec::new(),
        }
    }

    /// Adds the headers of these rows. False, and what could be read of them, when some are none.
    #[inline]
    pub(crate) fn append(&mut self, spans: &[Span], bytes: &[u8]) -> bool {
        let mut all = true;
        let before = self.keys.rows();
        self.places.clear();
        for span in spans {
            all &= span.each_header(bytes, |key, value| self.places.push((key, value))).is_some();
            self.ends.push(i32::try_from(before + self.places.len()).unwrap_or(i32::MAX));
        }
        if spans.iter().all(|span| span.header_count > 0) {
            self.nulls.append_n_non_nulls(spans.len());
        } else {
            for span in spans {
                self.nulls.append(span.header_count > 0);
            }
        }
        self.keys.extend(self.places.iter().map(|place| place.0), bytes);
        self.values.extend(self.places.iter().map(|place| place.1), bytes);
        all
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        let mut next = Vec::with_capacity(self.ends.len());
        next.push(0);
        let ends = std::mem::replace(&mut self.ends, next);
        let arrays: Vec<ArrayRef> = vec![Arc::new(self.keys.finish_text()), Arc::new(self.values.finish())];
        let headers = StructArray::new(fields(), arrays, None);
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        Arc::new(ListArray::new(item(), ends, Arc::new(headers), self.nulls.finish()))
    }
}
