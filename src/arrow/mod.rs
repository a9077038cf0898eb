//! Building the columns of Arrow batches, and reading those of batches that come in;
//! rows as text; the start of bodies; the number of rows with each value.

pub(crate) mod columns;
pub(crate) mod input_columns;
#[cfg(feature = "python")]
pub(crate) mod json_text;
#[cfg(any(feature = "python", test))]
pub(crate) mod match_rows;
#[cfg(any(feature = "python", test))]
pub(crate) mod preview;
#[cfg(any(feature = "python", test))]
pub(crate) mod text_rows;
#[cfg(any(feature = "python", test))]
pub(crate) mod value_counts;
pub(crate) mod view_column;
