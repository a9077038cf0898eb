//! JSON objects, whose fields are those of a schema.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BinaryArray, StructArray};
use arrow_json::ReaderBuilder;
use arrow_json::reader::infer_json_schema_from_iterator;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serde_json::Value;

use super::Decode;

/// JSON objects.
pub(super) struct Json {
    schema: SchemaRef,
    /// The schema is that of a sample: an object with another field does not decode, so that no field is left out without a word.
    is_inferred: bool,
}

impl Json {
    /// Objects of which the fields of a schema are wanted.
    pub(super) fn of(schema: SchemaRef) -> Self {
        Self { schema, is_inferred: false }
    }

    /// Objects that have the fields of some of them.
    pub(super) fn inferred(sample: Option<&BinaryArray>) -> Result<Self, String> {
        let rows = sample.into_iter().flatten().flatten();
        let objects = rows.filter_map(|row| serde_json::from_slice(row).ok()).filter(Value::is_object);
        let schema = infer_json_schema_from_iterator(objects.map(Ok::<Value, ArrowError>))
            .map_err(|e| format!("the objects have no common schema, pass one: {}", text(&e)))?;
        // No value fits the type of a field that is always null; a text does, and numbers as texts.
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
            _ => Arc::clone(field),
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(Self { schema: Arc::new(schema), is_inferred: true })
    }
}

impl Decode for Json {
    fn data_type(&self) -> DataType {
        DataType::Struct(self.schema.fields().clone())
    }

    fn decode(&self, rows: &[&[u8]]) -> Result<ArrayRef, String> {
        let builder = ReaderBuilder::new(Arc::clone(&self.schema)).with_batch_size(rows.len() + 1);
        // Fields that hold texts and numbers have texts.
        let builder = builder.with_strict_mode(self.is_inferred).with_coerce_primitive(self.is_inferred);
        let mut decoder = builder.build_decoder().map_err(|e| text(&e))?;
        for (number, row) in rows.iter().enumerate() {
            decoder.decode(row).map_err(|e| text(&e))?;
            if decoder.has_partial_record() || decoder.len() != number + 1 {
                return Err("expected one JSON object".to_owned());
            }
        }
        let batch = decoder.flush().map_err(|e| text(&e))?;
        let values = batch.map_or_else(|| StructArray::new_empty_fields(rows.len(), None), StructArray::from);
        if values.len() == rows.len() { Ok(Arc::new(values)) } else { Err("expected one JSON object".to_owned()) }
    }
}

/// The text of an error without the name of its kind.
fn text(error: &ArrowError) -> String {
    match error {
        ArrowError::JsonError(text) | ArrowError::SchemaError(text) => text.clone(),
        other => other.to_string(),
    }
}
