//! The column of record headers, in Arrow's layout.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};

use crate::arrow::columns::{ByteColumn, Place};
use crate::kafka::format::record::Span;

fn fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

/// The item of the list.
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
    /// Places of the headers that are being added.
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

    /// Adds the headers of these rows. False if some cannot be parsed; what could be parsed is added.
    #[inline]
    pub(crate) fn append(&mut self, spans: &[Span], bytes: &[u8]) -> bool {
        let mut all = true;
        let before = self.keys.len();
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
        self.keys.extend_places(self.places.iter().map(|place| place.0), bytes);
        self.values.extend_places(self.places.iter().map(|place| place.1), bytes);
        all
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        let mut next = Vec::with_capacity(self.ends.len());
        next.push(0);
        let ends = std::mem::replace(&mut self.ends, next);
        let arrays: Vec<ArrayRef> = vec![Arc::new(self.keys.finish_text()), Arc::new(self.values.finish_binary())];
        let headers = StructArray::new(fields(), arrays, None);
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        Arc::new(ListArray::new(item(), ends, Arc::new(headers), self.nulls.finish()))
    }
}
