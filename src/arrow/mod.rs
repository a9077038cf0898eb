//! Building the columns of Arrow batches, and reading those of batches that come in;
//! rows as text.

pub(crate) mod byte_column;
pub(crate) mod input_columns;
pub(crate) mod number_column;
pub(crate) mod recycled;
#[cfg(any(feature = "python", test))]
pub(crate) mod text_lines;
#[cfg(any(feature = "python", test))]
pub(crate) mod text_rows;
