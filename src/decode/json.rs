//! JSON objects, and others that become such, whose fields are those of a schema.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BinaryArray, StructArray};
use arrow_json::ReaderBuilder;
use arrow_json::reader::infer_json_schema_from_iterator;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serde_json::Value;

use super::messagepack::{self, NotFinite};
use super::{Decode, NUL};

/// The bytes of objects.
#[derive(Clone, Copy)]
pub(super) enum Encoding {
    Text,
    MessagePack,
}

/// Objects.
pub(super) struct Json {
    encoding: Encoding,
    schema: SchemaRef,
    /// The schema is that of a sample: an object with another field does not decode, so that no field is left out without a word.
    is_inferred: bool,
}

impl Encoding {
    /// The name of an object.
    fn object(self) -> &'static str {
        match self {
            Self::Text => "expected one JSON object",
            Self::MessagePack => "expected one MessagePack map",
        }
    }
}

impl Json {
    /// Objects of which the fields of a schema are wanted.
    pub(super) fn of(schema: SchemaRef) -> Self {
        Self { encoding: Encoding::Text, schema, is_inferred: false }
    }

    /// Objects that have the fields of a sample.
    pub(super) fn sampled(encoding: Encoding, schema: SchemaRef) -> Self {
        Self { encoding, schema, is_inferred: true }
    }

    /// Objects that have the fields of some of them.
    pub(super) fn inferred(encoding: Encoding, sample: Option<&BinaryArray>) -> Result<Self, String> {
        let rows = sample.into_iter().flatten().flatten();
        let objects = rows.filter_map(|row| match encoding {
            Encoding::Text => serde_json::from_slice(row).ok(),
            Encoding::MessagePack => messagepack::read(row, NotFinite::Zero).ok(),
        });
        let objects = objects.filter(|value| value.is_object() && is_named(value));
        let schema =
            infer_json_schema_from_iterator(objects.map(Ok::<Value, ArrowError>)).map_err(|e| match encoding {
                Encoding::Text => format!("the objects have no common schema, pass one: {}", text(&e)),
                Encoding::MessagePack => format!("the maps have no common schema: {}", text(&e)),
            })?;
        // No value fits the type of a field that is always null; a text does, and numbers as texts.
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
            _ => Arc::clone(field),
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(Self::sampled(encoding, Arc::new(schema)))
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
            match self.encoding {
                Encoding::Text => _ = decoder.decode(row).map_err(|e| text(&e))?,
                Encoding::MessagePack => {
                    let value = Some(messagepack::read(row, NotFinite::Text)?).filter(Value::is_object);
                    decoder.serialize(&[value.ok_or(self.encoding.object())?]).map_err(|e| text(&e))?;
                }
            }
            if decoder.has_partial_record() || decoder.len() != number + 1 {
                return Err(self.encoding.object().to_owned());
            }
        }
        let batch = decoder.flush().map_err(|e| text(&e))?;
        let values = batch.map_or_else(|| StructArray::new_empty_fields(rows.len(), None), StructArray::from);
        if values.len() == rows.len() { Ok(Arc::new(values)) } else { Err(self.encoding.object().to_owned()) }
    }
}

/// Returns whether all fields of a value can be those of a struct.
fn is_named(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.contains(NUL) && is_named(value)),
        Value::Array(items) => items.iter().all(is_named),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The text of an error without the name of its kind.
fn text(error: &ArrowError) -> String {
    match error {
        ArrowError::JsonError(text) | ArrowError::SchemaError(text) => text.clone(),
        other => other.to_string(),
    }
}
