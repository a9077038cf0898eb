//! A builder for a column of numbers.

use std::iter;
use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::NullBufferBuilder;

use super::recycled::Recycled;

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
