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

use arrow_array::{Array, ArrayRef, BinaryArray, StructArray, UInt32Array};
use arrow_avro::reader::{Decoder, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};
use arrow_cast::cast;
use arrow_schema::{DataType, Fields};
use arrow_select::{concat::concat, take::take};

use super::{Decode, Fetch, framed, numbered_files};
use crate::error::{Error, Result, without_users};

/// The number of the only schema of a file.
const ONLY: u32 = 0;
/// The most schemas that are requested: damaged values have any number.
const MOST_SCHEMAS: usize = 1_000;

/// Values of Avro.
pub(super) struct Avro {
    /// The schemas, or why there is none with the number.
    schemas: BTreeMap<u32, std::result::Result<AvroSchema, String>>,
    reader: AvroSchema,
    is_framed: bool,
    /// The URL of the registry of further schemas.
    registry: Option<(String, Fetch)>,
    data_type: DataType,
}

impl Avro {
    /// Reads a schema, or a directory of schemas.
    ///
    /// # Errors
    /// An I/O error; `InvalidArgument` for what is no schema.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let read = |file: &Path| fs::read_to_string(file).map_err(|e| Error::io(file, e)).map(AvroSchema::new);
        let mut schemas = BTreeMap::new();
        let is_framed = path.is_dir();
        if is_framed {
            for (number, file) in numbered_files(path, "avsc")? {
                schemas.insert(number, Ok(read(&file)?));
            }
        } else {
            schemas.insert(ONLY, Ok(read(path)?));
        }
        let Some((_, Ok(reader))) = schemas.last_key_value() else {
            let text = format!("{}: expected schemas NUMBER.avsc, found none", path.display());
            return Err(Error::InvalidArgument(text));
        };
        let reader = reader.clone();
        let mut avro = Self { reader, schemas, is_framed, registry: None, data_type: DataType::Null };
        for number in avro.schemas.keys() {
            let decoder = avro.decoder(*number, 1).map_err(|text| {
                let which = if is_framed { format!("/{number}.avsc") } else { String::new() };
                Error::InvalidArgument(format!("{}{which}: {text}", path.display()))
            })?;
            avro.data_type = DataType::Struct(decoder.schema().fields().clone());
        }
        Ok(avro)
    }

    /// Uses the schemas of a registry, which `fetch` reads. The values of a sample show the type.
    ///
    /// # Errors
    /// Those of `fetch`; `InvalidArgument` for what is no schema.
    pub(super) fn of_registry(url: &str, fetch: Fetch, sample: Option<&BinaryArray>) -> Result<Self> {
        let mut avro = Self {
            schemas: BTreeMap::new(),
            reader: AvroSchema::new(String::new()),
            is_framed: true,
            registry: Some((url.to_owned(), fetch)),
            data_type: DataType::Struct(Fields::empty()),
        };
        let rows: Vec<_> = sample.into_iter().flatten().flatten().collect();
        avro.prepare(&rows)?;
        let newest =
            avro.schemas.iter().rev().find_map(|(number, schema)| Some((*number, schema.as_ref().ok()?.clone())));
        if let Some((number, reader)) = newest {
            avro.reader = reader;
            let refused = |text| Error::InvalidArgument(format!("{}: schema {number}: {text}", without_users(url)));
            avro.data_type = DataType::Struct(avro.decoder(number, 1).map_err(refused)?.schema().fields().clone());
        }
        Ok(avro)
    }

    fn decoder(&self, number: u32, rows: usize) -> std::result::Result<Decoder, String> {
        let schema = self.schemas.get(&number).ok_or_else(|| format!("no schema with the number {number}"))?;
        let schema = schema.as_ref().map_err(String::clone)?;
        let (mut store, id) = (SchemaStore::new_with_type(FingerprintAlgorithm::Id), Fingerprint::Id(number));
        store.set(id, schema.clone()).map_err(|e| e.to_string())?;
        ReaderBuilder::new()
            .with_batch_size(rows + 1)
            .with_reader_schema(self.reader.clone())
            .with_writer_schema_store(store)
            .with_active_fingerprint(id)
            .build_decoder()
            .map_err(|e| e.to_string())
    }

    /// Decodes values of one schema.
    fn values<'a>(
        &self,
        number: u32,
        count: usize,
        values: impl Iterator<Item = &'a [u8]>,
    ) -> std::result::Result<ArrayRef, String> {
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
        // Fields that the schema of the writer does not have are marked.
        cast(&StructArray::from(batch), &self.data_type).map_err(|e| e.to_string())
    }
}

impl Decode for Avro {
    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }

    fn prepare(&mut self, rows: &[&[u8]]) -> Result<()> {
        let Some((url, fetch)) = &self.registry else { return Ok(()) };
        for (number, _) in rows.iter().filter_map(|row| framed(row).ok()) {
            if self.schemas.len() < MOST_SCHEMAS && !self.schemas.contains_key(&number) {
                self.schemas.insert(number, fetch(url, number)?.map(AvroSchema::new));
            }
        }
        Ok(())
    }

    fn decode(&self, rows: &[&[u8]]) -> std::result::Result<ArrayRef, String> {
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
