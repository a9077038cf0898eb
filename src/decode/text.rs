//! Texts in UTF-8.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use arrow_schema::DataType;

use super::Decode;

/// Texts, which are as the bytes are.
pub(super) struct Text;

impl Decode for Text {
    fn data_type(&self) -> DataType {
        DataType::Utf8
    }

    fn decode(&self, rows: &[&[u8]]) -> Result<ArrayRef, String> {
        let texts = rows.iter().map(|row| std::str::from_utf8(row));
        let texts: Vec<&str> =
            texts.collect::<Result<_, _>>().map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to()))?;
        Ok(Arc::new(StringArray::from(texts)))
    }
}
