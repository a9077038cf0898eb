//! Protocol Buffers: messages of a type that a descriptor set defines.
//!
//! ```text
//! FILE.desc:NAME    the body is a message with this full name; `protoc --include_imports --descriptor_set_out` writes the file
//! DIRECTORY:NAME    N.desc defines the schema number N; a body is 0 (one byte) | N (int32, big endian) | indexes | message
//!                   (Confluent's framing)
//! URL:NAME          a registry has the sources of the schemas, which are compiled
//! indexes           count, and as many places: of the type in the file, of a type in it, and so on; 0 is the first type of the file
//! ```
//!
//! The numbers are zig-zag varints. The file of a schema is the last one of its descriptor set.
//!
//! | type | column |
//! |---|---|
//! | message | struct; JSON as text within itself, and without fields |
//! | `google.protobuf.Struct`, `Value`, `ListValue` | JSON as text |
//! | `google.protobuf.Timestamp` | timestamp in microseconds |
//! | enum | name of the value, or its number as text |
//! | repeated | list |
//! | map | map if the keys are texts, else list of structs |
//!
//! A field with presence that is absent is null; another has the default of its type.

use std::borrow::Cow;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, MapArray,
    StringArray, StructArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, SerializeOptions, Value,
};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::{Decode, NUL, Numbered, Pin, Registry, Sources, Values, framed, numbered_files};
use crate::error::{Error, Result};

/// The most fields of a type, with those of the types in it.
const MOST_FIELDS: usize = 10_000;
/// The most structs around a column.
const MOST_DEPTH: usize = 64;
/// The most values of the rows that are decoded at once.
const MOST_VALUES: usize = 1 << 24;
/// The most brackets around a part of a source, which the compiler reads by recursion.
const MOST_BRACKETS: usize = 200;
const TIMESTAMP: &str = "google.protobuf.Timestamp";
const UTC: &str = "UTC";
/// Types that stand for JSON.
const JSON: [&str; 3] = ["google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"];

/// Messages of a type.
pub(super) struct Protobuf {
    name: String,
    /// The type of the column. None: no schema is known yet.
    column: Option<Column>,
    /// The files of framed messages.
    files: Option<Numbered<FileDescriptor>>,
    registry: Option<Registry>,
}

/// The type of a column: that of a message in the schema with a number.
struct Column {
    number: u32,
    message: MessageDescriptor,
    fields: Fields,
}

impl Column {
    fn of(number: u32, message: MessageDescriptor) -> std::result::Result<Self, String> {
        let mut types = Types { within: Vec::new(), left: MOST_FIELDS };
        Ok(Self { number, fields: types.fields(&message)?, message })
    }
}

impl Protobuf {
    /// Reads a descriptor set, or a directory of them.
    ///
    /// # Errors
    /// An I/O error; `InvalidArgument` for what is no descriptor set, or has no such type.
    pub(super) fn open(path: &Path, name: &str) -> Result<Self> {
        let refused = |path: &Path, text: String| Error::InvalidArgument(format!("{}: {text}", path.display()));
        let read = |path: &Path| -> Result<DescriptorPool> {
            let bytes = fs::read(path).map_err(|e| Error::io(path, e))?;
            DescriptorPool::decode(bytes.as_slice())
                .map_err(|e| refused(path, format!("expected a descriptor set of protoc --include_imports: {e}")))
        };
        let (mut pool, mut files) = (None, None);
        if path.is_dir() {
            let mut numbered = Numbered::new();
            for (number, file) in numbered_files(path, "desc")? {
                let read = read(&file)?;
                let last = read.files().last();
                let last = last.ok_or_else(|| refused(&file, "expected a file of a schema".to_owned()))?;
                numbered.insert(number, Ok(last));
                pool = Some(read);
            }
            files = Some(numbered);
        } else {
            pool = Some(read(path)?);
        }
        let pool = pool.ok_or_else(|| refused(path, "expected descriptor sets NUMBER.desc, found none".to_owned()))?;
        let message = pool.get_message_by_name(name).ok_or_else(|| {
            let known = pool.all_messages().filter(|message| !message.is_map_entry()).take(10);
            let known: Vec<_> = known.map(|message| message.full_name().to_owned()).collect();
            refused(path, format!("expected a message such as {}, found {name:?}", known.join(", ")))
        })?;
        let column = Some(Column::of(0, message).map_err(|text| refused(path, text))?);
        Ok(Self { name: name.to_owned(), column, files, registry: None })
    }

    /// Uses the schemas of a registry. The column has the fields of the message in the schema `pinned`, or in that with the largest
    /// number in a sample.
    ///
    /// # Errors
    /// There is no answer; `InvalidArgument` for a message that cannot be a column.
    pub(super) fn of_registry(
        registry: Registry,
        name: &str,
        pinned: Option<u32>,
        sample: Option<&BinaryArray>,
    ) -> Result<Self> {
        let mut files = Numbered::new();
        let rows: Vec<_> = sample.into_iter().flatten().flatten().collect();
        registry.add_of(&rows, &mut files, compiled)?;
        if let Some(number) = pinned {
            registry.add(number, &mut files, compiled)?;
        }
        let messages = files.iter().rev().filter_map(|(number, file)| {
            let message = file.as_ref().ok()?.parent_pool().get_message_by_name(name)?;
            Some((*number, message))
        });
        let newest = { messages }.find(|(number, _)| pinned.is_none_or(|pinned| pinned == *number));
        if let (Some(number), None) = (pinned, &newest) {
            let why = files.get(&number).and_then(|file| file.as_ref().err()).map_or("no such message", String::as_str);
            return Err(registry.refused(number, &format!("{name}: {why}")));
        }
        let column =
            newest.map(|(number, message)| Column::of(number, message).map_err(|text| registry.refused(number, &text)));
        Ok(Self { name: name.to_owned(), column: column.transpose()?, files: Some(files), registry: Some(registry) })
    }

    /// Returns the bytes of a framed message, and its type.
    fn unframed<'a>(
        &self,
        files: &Numbered<FileDescriptor>,
        row: &'a [u8],
    ) -> std::result::Result<(&'a [u8], MessageDescriptor), String> {
        let (number, mut rest) = framed(row)?;
        let file = files.get(&number).ok_or_else(|| format!("no schema with the number {number}"))?;
        let file = file.as_ref().map_err(String::clone)?;
        let mut index = || zigzag(&mut rest).ok_or("expected the indexes of a type after the number of the schema");
        let count = index()?;
        let mut found = file.messages().nth(if count == 0 { 0 } else { index()? });
        for _ in 1..count {
            let place = index()?;
            // Types that only describe a map have no place.
            found = found.and_then(|outer| outer.child_messages().filter(|inner| !inner.is_map_entry()).nth(place));
        }
        match found {
            Some(found) if found.full_name() == self.name => Ok((rest, found)),
            Some(found) => Err(format!("expected a message {}, found {}", self.name, found.full_name())),
            None => Err(format!("no such type in the schema with the number {number}")),
        }
    }

    /// Returns the type of the first of some rows, if no schema was known before.
    fn own_column(&self, rows: &[&[u8]]) -> std::result::Result<Column, String> {
        let (files, row) = self.files.as_ref().zip(rows.first()).ok_or("no schema is known")?;
        Column::of(framed(row)?.0, self.unframed(files, row)?.1)
    }
}

impl Decode for Protobuf {
    fn data_type(&self) -> DataType {
        DataType::Struct(self.column.as_ref().map_or_else(Fields::empty, |column| column.fields.clone()))
    }

    fn pin(&self) -> Option<Pin> {
        self.registry.as_ref().and(self.column.as_ref()).map(|column| Pin::Schema(column.number))
    }

    fn prepare(&mut self, rows: &[&[u8]]) -> Result<()> {
        match (&self.registry, &mut self.files) {
            (Some(registry), Some(files)) => registry.add_of(rows, files, compiled),
            _ => Ok(()),
        }
    }

    fn decode(&self, rows: &[&[u8]]) -> Values {
        let own = if self.column.is_none() { Some(self.own_column(rows)?) } else { None };
        let column = self.column.as_ref().or(own.as_ref()).ok_or("no schema is known")?;
        let messages = rows.iter().map(|row| {
            let bytes = match &self.files {
                Some(files) => self.unframed(files, row)?.0,
                None => row,
            };
            DynamicMessage::decode(column.message.clone(), bytes).map_err(|e| e.to_string())
        });
        let messages = messages.collect::<std::result::Result<Vec<_>, _>>()?;
        let messages: Vec<_> = messages.iter().map(Some).collect();
        Columns { left: MOST_VALUES }.structs(&column.message, &column.fields, &messages)
    }
}

/// The sources of a schema, as files that others import by name.
struct SourceFiles(Sources);

impl FileResolver for SourceFiles {
    fn open_file(&self, name: &str) -> std::result::Result<File, protox::Error> {
        let source = self.0.iter().find(|(known, _)| known == name);
        source.map_or_else(|| Err(protox::Error::file_not_found(name)), |(name, text)| File::from_source(name, text))
    }
}

/// Compiles the sources of a schema, of which the last is the schema itself.
fn compiled(sources: &Sources) -> std::result::Result<FileDescriptor, String> {
    let (name, _) = sources.last().ok_or("no schema")?;
    if sources.iter().any(|(_, text)| depth(text) > MOST_BRACKETS) {
        return Err(format!("expected at most {MOST_BRACKETS} brackets around a part of a schema"));
    }
    let mut files = ChainFileResolver::new();
    files.add(SourceFiles(sources.clone()));
    files.add(GoogleFileResolver::new());
    // The compiler may panic on a text that is no source.
    let compiled = catch_unwind(AssertUnwindSafe(|| {
        let mut compiler = Compiler::with_file_resolver(files);
        compiler.open_file(name).map(|compiler| compiler.descriptor_pool())
    }));
    let pool = compiled.map_err(|_| "the compiler failed".to_owned())?.map_err(|e| e.to_string())?;
    pool.get_file_by_name(name).ok_or_else(|| "no file of the schema".to_owned())
}

/// Returns the most brackets around a place of a text.
fn depth(text: &str) -> usize {
    let mut depth = 0usize;
    let depths = text.bytes().map(|byte| {
        depth = match byte {
            b'{' | b'[' | b'<' => depth + 1,
            b'}' | b']' | b'>' => depth.saturating_sub(1),
            _ => depth,
        };
        depth
    });
    depths.max().unwrap_or(0)
}

/// Reads a zig-zag varint that is not negative.
fn zigzag(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return if value & 1 == 0 { usize::try_from(value >> 1).ok() } else { None };
        }
    }
    None
}

/// The types of columns.
struct Types {
    /// The types around the current one.
    within: Vec<MessageDescriptor>,
    left: usize,
}

impl Types {
    fn fields(&mut self, message: &MessageDescriptor) -> std::result::Result<Fields, String> {
        self.within.push(message.clone());
        let fields = message.fields().map(|field| {
            let too_many = || format!("expected at most {MOST_FIELDS} fields in {}", message.full_name());
            self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
            if field.name().contains(NUL) {
                return Err(format!("expected a name of a field, found {:?}", field.name()));
            }
            Ok(Field::new(field.name(), self.of(&field)?, true))
        });
        let fields = fields.collect::<std::result::Result<Fields, String>>();
        self.within.pop();
        fields
    }

    fn of(&mut self, field: &FieldDescriptor) -> std::result::Result<DataType, String> {
        let kind = field.kind();
        let Some(entry) = kind.as_message().filter(|_| field.is_map()) else {
            let data_type = self.single(&kind)?;
            return Ok(if field.is_list() { DataType::new_list(data_type, true) } else { data_type });
        };
        let key = self.single(&entry.map_entry_key_field().kind())?;
        let is_text = key == DataType::Utf8;
        let value = self.single(&entry.map_entry_value_field().kind())?;
        let pair = DataType::Struct(vec![Field::new("key", key, false), Field::new("value", value, true)].into());
        let pair = Field::new(if is_text { "entries" } else { "item" }, pair, !is_text);
        Ok(if is_text { DataType::Map(Arc::new(pair), false) } else { DataType::List(Arc::new(pair)) })
    }

    /// Returns whether a message is a text: a struct needs fields, and an end.
    fn is_json(&self, message: &MessageDescriptor) -> bool {
        let is_endless = self.within.contains(message) || self.within.len() >= MOST_DEPTH;
        is_endless || message.fields().len() == 0 || JSON.contains(&message.full_name())
    }

    fn single(&mut self, kind: &Kind) -> std::result::Result<DataType, String> {
        Ok(match kind {
            Kind::Double => DataType::Float64,
            Kind::Float => DataType::Float32,
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => DataType::Int32,
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => DataType::Int64,
            Kind::Uint32 | Kind::Fixed32 => DataType::UInt32,
            Kind::Uint64 | Kind::Fixed64 => DataType::UInt64,
            Kind::Bool => DataType::Boolean,
            Kind::String | Kind::Enum(_) => DataType::Utf8,
            Kind::Bytes => DataType::Binary,
            Kind::Message(message) if message.full_name() == TIMESTAMP => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
            }
            Kind::Message(message) if self.is_json(message) => DataType::Utf8,
            Kind::Message(message) => DataType::Struct(self.fields(message)?),
        })
    }
}

/// The columns of decoded messages.
struct Columns {
    /// Bodies of strangers may hold many messages without fields, each of which has a value in every column.
    left: usize,
}

impl Columns {
    fn structs(&mut self, message: &MessageDescriptor, fields: &Fields, rows: &[Option<&DynamicMessage>]) -> Values {
        let values = rows.len().saturating_mul(fields.len());
        self.left = self.left.checked_sub(values).ok_or_else(|| format!("more than {MOST_VALUES} values"))?;
        let columns = message.fields().zip(fields).map(|(field, column)| {
            let cells = rows.iter().map(|row| {
                let row = row.filter(|row| !field.supports_presence() || row.has_field(&field));
                row.map(|row| row.get_field(&field))
            });
            let cells: Vec<Option<Cow<'_, Value>>> = cells.collect();
            let cells: Vec<Option<&Value>> = cells.iter().map(Option::as_deref).collect();
            self.column(&field, column.data_type(), &cells)
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let nulls = rows.iter().map(Option::is_some).collect::<NullBuffer>();
        let values = StructArray::try_new_with_length(fields.clone(), columns, Some(nulls), rows.len());
        Ok(Arc::new(values.map_err(|e| e.to_string())?))
    }

    fn column(&mut self, field: &FieldDescriptor, data_type: &DataType, cells: &[Option<&Value>]) -> Values {
        let kind = field.kind();
        let nulls = || Some(cells.iter().map(Option::is_some).collect::<NullBuffer>());
        if let Some(entry) = kind.as_message().filter(|_| field.is_map()) {
            let maps = cells.iter().map(|cell| cell.and_then(Value::as_map));
            let maps: Vec<_> = maps
                .map(|map| {
                    let mut pairs: Vec<_> = map.into_iter().flatten().collect();
                    pairs.sort_by_key(|(key, _)| *key);
                    pairs
                })
                .collect();
            let (DataType::Map(pair, _) | DataType::List(pair)) = data_type else { return Err("no map".to_owned()) };
            let DataType::Struct(parts) = pair.data_type() else { return Err("no map".to_owned()) };
            let [key_part, value_part] = parts.as_ref() else { return Err("no map".to_owned()) };
            let keys: Vec<Value> = maps.iter().flatten().map(|(key, _)| Value::from((*key).clone())).collect();
            let keys: Vec<_> = keys.iter().map(Some).collect();
            let values: Vec<_> = maps.iter().flatten().map(|(_, value)| Some(*value)).collect();
            let keys = self.single(&entry.map_entry_key_field().kind(), key_part.data_type(), &keys)?;
            let values = self.single(&entry.map_entry_value_field().kind(), value_part.data_type(), &values)?;
            let offsets = OffsetBuffer::from_lengths(maps.iter().map(Vec::len));
            let pairs = StructArray::try_new(parts.clone(), vec![keys, values], None).map_err(|e| e.to_string())?;
            let (pair, nulls) = (Arc::clone(pair), nulls());
            let array: std::result::Result<ArrayRef, _> = match data_type {
                DataType::Map(..) => {
                    MapArray::try_new(pair, offsets, pairs, nulls, false).map(|map| Arc::new(map) as _)
                }
                _ => ListArray::try_new(pair, offsets, Arc::new(pairs), nulls).map(|list| Arc::new(list) as _),
            };
            return array.map_err(|e| e.to_string());
        }
        let DataType::List(item) = data_type else { return self.single(&kind, data_type, cells) };
        let lists: Vec<&[Value]> = cells.iter().map(|cell| cell.and_then(Value::as_list).unwrap_or_default()).collect();
        let items: Vec<_> = lists.iter().copied().flatten().map(Some).collect();
        let items = self.single(&kind, item.data_type(), &items)?;
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(|list| list.len()));
        let list = ListArray::try_new(Arc::clone(item), offsets, items, nulls());
        Ok(Arc::new(list.map_err(|e| e.to_string())?))
    }

    /// Returns the column of values that are not lists or maps.
    fn single(&mut self, kind: &Kind, data_type: &DataType, cells: &[Option<&Value>]) -> Values {
        /// The column of values of a primitive type.
        macro_rules! column {
            ($array:ty, $get:ident) => {
                Arc::new(cells.iter().map(|cell| cell.and_then(Value::$get)).collect::<$array>())
            };
        }
        Ok(match kind {
            Kind::Double => column!(Float64Array, as_f64),
            Kind::Float => column!(Float32Array, as_f32),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => column!(Int32Array, as_i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => column!(Int64Array, as_i64),
            Kind::Uint32 | Kind::Fixed32 => column!(UInt32Array, as_u32),
            Kind::Uint64 | Kind::Fixed64 => column!(UInt64Array, as_u64),
            Kind::Bool => column!(BooleanArray, as_bool),
            Kind::String => column!(StringArray, as_str),
            Kind::Bytes => column!(BinaryArray, as_bytes),
            Kind::Enum(names) => {
                let name = |number| {
                    let known = names.get_value(number).map(|value| value.name().to_owned());
                    known.unwrap_or_else(|| number.to_string())
                };
                Arc::new(
                    cells.iter().map(|cell| cell.and_then(Value::as_enum_number).map(name)).collect::<StringArray>(),
                )
            }
            Kind::Message(message) => {
                let messages = cells.iter().map(|cell| cell.and_then(Value::as_message));
                match data_type {
                    DataType::Struct(fields) => self.structs(message, fields, &messages.collect::<Vec<_>>())?,
                    DataType::Timestamp(..) => {
                        let times = messages.map(|message| message.map(micros).transpose());
                        let times = times.collect::<std::result::Result<TimestampMicrosecondArray, _>>()?;
                        Arc::new(times.with_timezone(UTC))
                    }
                    _ => {
                        let texts = messages.map(|message| message.map(json).transpose());
                        Arc::new(texts.collect::<std::result::Result<StringArray, String>>()?)
                    }
                }
            }
        })
    }
}

/// Returns the time of a `google.protobuf.Timestamp`.
fn micros(time: &DynamicMessage) -> std::result::Result<i64, String> {
    let seconds = time.get_field_by_name("seconds").and_then(|value| value.as_i64());
    let nanos = time.get_field_by_name("nanos").and_then(|value| value.as_i32());
    let nanos = nanos.filter(|nanos| (0..1_000_000_000).contains(nanos));
    let micros = seconds
        .zip(nanos)
        .and_then(|(seconds, nanos)| seconds.checked_mul(1_000_000)?.checked_add(i64::from(nanos / 1_000)));
    micros.ok_or_else(|| "a Timestamp that is out of range".to_owned())
}

/// Returns a message as the canonical JSON, with the names of the fields as they are.
fn json(message: &DynamicMessage) -> std::result::Result<String, String> {
    let mut writer = serde_json::Serializer::new(Vec::new());
    let options = SerializeOptions::new().use_proto_field_name(true);
    message.serialize_with_options(&mut writer, &options).map_err(|e| e.to_string())?;
    String::from_utf8(writer.into_inner()).map_err(|e| e.to_string())
}
