//! Avro: values of one schema, or with the number of their schema before them.
//!
//! ```text
//! FILE.avsc    the body is a value of the schema
//! DIRECTORY    N.avsc is the schema number N; a body is 0 (one byte) | N (int32, big endian) | value     (Confluent's framing)
//! URL          a registry has the schemas
//! ```
//!
//! Values of other numbers become values of the schema with the largest one, by the rules of Avro for a reader's schema. Of a
//! registry it is the largest number in the sample.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray, StructArray, UInt32Array};
use arrow_avro::reader::{Decoder, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef, Fields};
use arrow_select::{concat::concat, take::take};
use serde_json::{Map, Value};

use super::{Decode, Numbered, Pin, Registry, Sources, Values, framed, numbered_files};
use crate::error::{Error, Result};

/// Types with a name.
const NAMED_TYPES: [&str; 4] = ["record", "enum", "fixed", "error"];
/// The most bytes of definitions in unions of a schema that are repeated.
const MOST_REPEATED: usize = 1 << 20;
/// The number of the only schema of a file.
const ONLY: u32 = 0;

/// Values of Avro.
pub(super) struct Avro {
    schemas: Numbered<AvroSchema>,
    /// The number of the schema whose fields the column has. None: no schema is known yet.
    reader: Option<u32>,
    is_framed: bool,
    /// The registry of further schemas.
    registry: Option<Registry>,
    data_type: DataType,
}

impl Avro {
    /// Reads a schema, or a directory of schemas.
    ///
    /// # Errors
    /// An I/O error; `InvalidArgument` for what is no schema.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let read = |file: &Path| fs::read_to_string(file).map_err(|e| Error::io(file, e)).map(|text| schema_of(&text));
        let mut schemas = Numbered::new();
        let is_framed = path.is_dir();
        if is_framed {
            for (number, file) in numbered_files(path, "avsc")? {
                schemas.insert(number, Ok(read(&file)?));
            }
        } else {
            schemas.insert(ONLY, Ok(read(path)?));
        }
        let Some((number, _)) = schemas.last_key_value() else {
            let text = format!("{}: expected schemas NUMBER.avsc, found none", path.display());
            return Err(Error::InvalidArgument(text));
        };
        let reader = Some(*number);
        let mut avro = Self { reader, schemas, is_framed, registry: None, data_type: DataType::Null };
        for number in avro.schemas.keys() {
            avro.data_type = avro.type_of(*number).map_err(|text| {
                let which = if is_framed { format!("/{number}.avsc") } else { String::new() };
                Error::InvalidArgument(format!("{}{which}: {text}", path.display()))
            })?;
        }
        Ok(avro)
    }

    /// Uses the schemas of a registry. The column has the fields of the schema `pinned`, or of the largest number in a sample.
    ///
    /// # Errors
    /// There is no answer; `InvalidArgument` for what is no schema.
    pub(super) fn of_registry(registry: Registry, pinned: Option<u32>, sample: Option<&BinaryArray>) -> Result<Self> {
        let mut schemas = BTreeMap::new();
        let rows: Vec<_> = sample.into_iter().flatten().flatten().collect();
        registry.add_of(&rows, &mut schemas, parse)?;
        if let Some(number) = pinned {
            registry.add(number, &mut schemas, parse)?;
        }
        let newest = schemas.iter().rev().find(|(_, schema)| schema.is_ok()).map(|(number, _)| *number);
        let data_type = DataType::Struct(Fields::empty());
        let reader = pinned.or(newest);
        let mut avro = Self { schemas, reader, is_framed: true, registry: None, data_type };
        if let Some(number) = reader {
            avro.data_type = avro.type_of(number).map_err(|text| registry.refused(number, &text))?;
        }
        avro.registry = Some(registry);
        Ok(avro)
    }

    /// Returns the schema with a number.
    fn schema(&self, number: u32) -> std::result::Result<&AvroSchema, String> {
        let schema = self.schemas.get(&number).ok_or_else(|| format!("no schema with the number {number}"))?;
        schema.as_ref().map_err(String::clone)
    }

    /// Returns the type of the column of values of a schema.
    fn type_of(&self, number: u32) -> std::result::Result<DataType, String> {
        let fields = self.decoder(number, 1)?.schema().fields().iter().map(nullable).collect();
        Ok(DataType::Struct(fields))
    }

    fn decoder(&self, number: u32, rows: usize) -> std::result::Result<Decoder, String> {
        let schema = self.schema(number)?;
        let (mut store, id) = (SchemaStore::new_with_type(FingerprintAlgorithm::Id), Fingerprint::Id(number));
        store.set(id, schema.clone()).map_err(|e| e.to_string())?;
        ReaderBuilder::new()
            .with_batch_size(rows + 1)
            .with_reader_schema(self.schema(self.reader.unwrap_or(number))?.clone())
            .with_writer_schema_store(store)
            .with_active_fingerprint(id)
            .build_decoder()
            .map_err(|e| e.to_string())
    }

    /// Decodes values of one schema.
    fn values<'a>(&self, number: u32, count: usize, values: impl Iterator<Item = &'a [u8]>) -> Values {
        let mut decoder = self.decoder(number, count)?;
        let mut frame = Vec::new();
        for value in values {
            frame.clear();
            frame.push(0);
            frame.extend_from_slice(&number.to_be_bytes());
            frame.extend_from_slice(value);
            let before = decoder.capacity();
            let read = decoder.decode(&frame).map_err(|e| e.to_string())?;
            if read != frame.len() || decoder.capacity() + 1 != before {
                return Err(format!("expected one value of {} bytes, found another length", value.len()));
            }
        }
        let batch = decoder.flush().map_err(|e| e.to_string())?.ok_or("no value")?;
        let values = StructArray::from(batch);
        // Fields that the schema of the writer does not have are marked.
        let data_type = if self.reader.is_some() { self.data_type.clone() } else { self.type_of(number)? };
        cast(&values, &data_type).map_err(|e| e.to_string())
    }
}

/// Reads the text of a schema, which names no other schema.
fn parse(sources: &Sources) -> std::result::Result<AvroSchema, String> {
    sources.last().map(|(_, text)| schema_of(text)).ok_or_else(|| "no schema".to_owned())
}

/// Returns the schema with a text. The library checks it when it is used.
fn schema_of(text: &str) -> AvroSchema {
    let mut names = Names { known: BTreeMap::new(), left: MOST_REPEATED };
    let plain = serde_json::from_str(text).map(|schema: Value| names.schema(schema, "").to_string());
    AvroSchema::new(plain.unwrap_or_else(|_| text.to_owned()))
}

/// The named types of a schema, which it gets in a form that the library reads: the namespace of a type is apart from its name, and a
/// union of several types has definitions, not names.
struct Names {
    /// The definitions by full name.
    known: BTreeMap<String, Value>,
    /// Bytes of definitions that may be repeated.
    left: usize,
}

impl Names {
    fn schema(&mut self, schema: Value, namespace: &str) -> Value {
        match schema {
            Value::Array(items) => {
                let is_choice = items.iter().filter(|item| *item != "null").count() > 1;
                let items = items.into_iter().map(|item| match item {
                    Value::String(name) if is_choice => self.definition(name, namespace),
                    other => self.schema(other, namespace),
                });
                items.collect()
            }
            Value::Object(fields) => self.object(fields, namespace),
            other => other,
        }
    }

    /// Returns the definition of a name, or the name if it is that of no type before it.
    fn definition(&mut self, name: String, namespace: &str) -> Value {
        let Some(known) = self.known.get(&full_name(&name, namespace)) else { return name.into() };
        match self.left.checked_sub(known.to_string().len()) {
            Some(left) => {
                self.left = left;
                known.clone()
            }
            None => name.into(),
        }
    }

    fn object(&mut self, mut fields: Map<String, Value>, around: &str) -> Value {
        let is_type = fields.get("type").and_then(Value::as_str).is_some_and(|kind| NAMED_TYPES.contains(&kind));
        let name = fields.get("name").and_then(Value::as_str).filter(|_| is_type).map(str::to_owned);
        let mut namespace = around.to_owned();
        if let Some(name) = &name {
            let own = fields.get("namespace").and_then(Value::as_str).unwrap_or(around);
            let (own, short) = name.rsplit_once('.').unwrap_or((own, name));
            (namespace, _) = (own.to_owned(), fields.insert("name".to_owned(), short.into()));
            if !namespace.is_empty() {
                fields.insert("namespace".to_owned(), namespace.clone().into());
            }
        }
        // Defaults are values, not schemas.
        let fields = fields.into_iter().map(|(key, value)| match key.as_str() {
            "type" | "fields" | "items" | "values" => (key, self.schema(value, &namespace)),
            _ => (key, value),
        });
        let value = Value::Object(fields.collect());
        if let Some(name) = &name {
            self.known.insert(full_name(name, &namespace), value.clone());
        }
        value
    }
}

/// Returns the full name of a name in a namespace.
fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// Returns a field that may be null if its type has no other value.
fn nullable(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(nullable).collect()),
        DataType::List(item) => DataType::List(nullable(item)),
        DataType::Map(entries, is_sorted) => DataType::Map(nullable(entries), *is_sorted),
        other => other.clone(),
    };
    let is_nullable = field.is_nullable() || data_type == DataType::Null;
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_nullable(is_nullable))
}

impl Decode for Avro {
    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn pin(&self) -> Option<Pin> {
        self.registry.as_ref().and(self.reader).map(Pin::Schema)
    }

    fn prepare(&mut self, rows: &[&[u8]]) -> Result<()> {
        self.registry.as_ref().map_or(Ok(()), |registry| registry.add_of(rows, &mut self.schemas, parse))
    }

    fn decode(&self, rows: &[&[u8]]) -> Values {
        if !self.is_framed {
            return self.values(ONLY, rows.len(), rows.iter().copied());
        }
        let mut of_numbers = BTreeMap::<u32, Vec<(u32, &[u8])>>::new();
        for (at, row) in (0..).zip(rows) {
            let (number, value) = framed(row)?;
            of_numbers.entry(number).or_default().push((at, value));
        }
        let (mut parts, mut places) = (Vec::new(), vec![0; rows.len()]);
        let mut next = 0;
        for (number, values) in of_numbers {
            parts.push(self.values(number, values.len(), values.iter().map(|(_, value)| *value))?);
            for (place, (at, _)) in (next..).zip(&values) {
                if let Some(slot) = places.get_mut(*at as usize) {
                    *slot = place;
                    next = place + 1;
                }
            }
        }
        match parts.as_slice() {
            [only] => Ok(Arc::clone(only)),
            parts => {
                let all = concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>());
                all.and_then(|all| take(&all, &UInt32Array::from(places), None)).map_err(|e| e.to_string())
            }
        }
    }
}
