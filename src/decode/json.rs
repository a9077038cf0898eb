//! JSON objects, and others that become such, whose fields are those of a schema.

use std::sync::Arc;

use arrow_array::{Array as _, BinaryArray, StructArray};
use arrow_json::ReaderBuilder;
use arrow_json::reader::infer_json_schema_from_iterator;
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};
use serde_core::de::IgnoredAny;
use serde_json::{Map, Value};

use super::messagepack::{self, NotFinite};
use super::{Decode, NUL, Pin, Values};

/// The bytes of objects.
#[derive(Clone, Copy)]
pub(crate) enum Encoding {
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
    /// Returns the encoding of a name of a format.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Text),
            "msgpack" => Some(Self::MessagePack),
            _ => None,
        }
    }

    /// The name of an object.
    fn object(self) -> &'static str {
        match self {
            Self::Text => "expected one JSON object",
            Self::MessagePack => "expected one MessagePack map",
        }
    }
}

impl Json {
    /// Objects of which the fields of a schema are wanted, and which have no others if the schema is that of a sample.
    pub(super) fn of(encoding: Encoding, schema: SchemaRef, is_inferred: bool) -> Self {
        Self { encoding, schema, is_inferred }
    }

    /// Objects that have the fields of some of them.
    pub(super) fn inferred(encoding: Encoding, sample: Option<&BinaryArray>) -> Result<Self, String> {
        let rows = sample.into_iter().flatten().flatten();
        let objects = rows.filter_map(|row| match encoding {
            Encoding::Text => serde_json::from_slice(row).ok(),
            Encoding::MessagePack => messagepack::read(row, NotFinite::Zero).ok(),
        });
        let objects = objects.filter(|value: &Value| value.is_object() && is_named(value)).map(with_large_texts);
        let schema =
            infer_json_schema_from_iterator(objects.map(Ok::<Value, ArrowError>)).map_err(|e| match encoding {
                Encoding::Text => format!("the objects have no common schema, pass one: {}", text(&e)),
                Encoding::MessagePack => format!("the maps have no common schema, pass one: {}", text(&e)),
            })?;
        let schema = Schema::new(schema.fields().iter().map(with_text_for_null).collect::<Vec<_>>());
        Ok(Self { encoding, schema: Arc::new(schema), is_inferred: true })
    }
}

impl Decode for Json {
    fn data_type(&self) -> DataType {
        DataType::Struct(self.schema.fields().clone())
    }

    fn pin(&self) -> Option<Pin> {
        self.is_inferred.then_some(Pin::Inferred)
    }

    fn decode(&self, rows: &[&[u8]]) -> Values {
        let builder = ReaderBuilder::new(Arc::clone(&self.schema)).with_batch_size(rows.len() + 1);
        // Fields that hold texts and numbers have texts.
        let builder = builder.with_strict_mode(self.is_inferred).with_coerce_primitive(self.is_inferred);
        let mut decoder = builder.build_decoder().map_err(|e| text(&e))?;
        for (number, row) in rows.iter().enumerate() {
            match self.encoding {
                Encoding::Text => {
                    decoder.decode(row).map_err(|e| text(&e))?;
                    // The decoder takes some numbers and texts that are no JSON.
                    serde_json::from_slice::<IgnoredAny>(row).map_err(|e| e.to_string())?;
                }
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

    /// Returns the JSON of an object with all its fields.
    fn text(&self, row: &[u8]) -> Result<Vec<u8>, String> {
        let value = match self.encoding {
            Encoding::Text => serde_json::from_slice(row).map_err(|e| e.to_string())?,
            Encoding::MessagePack => messagepack::read(row, NotFinite::Text)?,
        };
        match (self.encoding, value) {
            // As it was written: the order of fields, the digits of numbers.
            (Encoding::Text, Value::Object(_)) => Ok(row.to_vec()),
            (Encoding::MessagePack, value @ Value::Object(_)) => Ok(value.to_string().into_bytes()),
            _ => Err(self.encoding.object().to_owned()),
        }
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

/// Returns a value of a sample with texts for integers from 2^63 on, which a double would round.
fn with_large_texts(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, with_large_texts(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(with_large_texts).collect(),
        Value::Number(number) if number.is_u64() && !number.is_i64() => number.to_string().into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Returns a field with a text for null: no value fits the type of what is always null; a text does, and numbers as texts.
fn with_text_for_null(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Null => DataType::Utf8,
        DataType::List(item) => DataType::List(with_text_for_null(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(with_text_for_null).collect()),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// The text of an error without the name of its kind.
fn text(error: &ArrowError) -> String {
    match error {
        ArrowError::JsonError(text) | ArrowError::SchemaError(text) => text.clone(),
        other => other.to_string(),
    }
}
