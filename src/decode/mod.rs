//! Bodies, values and keys as typed columns.
//!
//! ```text
//! column of bytes --rows that decode--> column of the format's type
//!                 --the others--------> null, and the reason in another column
//! ```
//!
//! A batch is decoded at once. If that fails it is halved, until the rows are found that do not decode.

mod avro;
mod json;
mod messagepack;
mod protobuf;

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt32Array, new_null_array};
use arrow_schema::{DataType, Field, SchemaRef};
use arrow_select::{concat::concat, take::take};

use crate::error::{Error, Result, without_users};

/// The column with the reasons why bodies and values have no decoded value.
const ERRORS: &str = "body_error";
const JSON: &str = "json";
const MESSAGE_PACK: &str = "msgpack";
/// The letter that names of columns cannot have, because they are passed to C.
const NUL: char = '\0';
/// The framing of a value: a zero, and the number of its schema.
const FRAME: usize = 5;

/// The values of rows, or what is wrong with one of them.
type Values = std::result::Result<ArrayRef, String>;

/// Reads the schema with a number at the URL of a registry: its text, or why the registry has none.
///
/// # Errors
/// There is no answer.
pub(crate) type Fetch = Arc<dyn Fn(&str, u32) -> Result<std::result::Result<String, String>> + Send + Sync>;

/// The decoder of a format.
trait Decode: Send + Sync {
    fn data_type(&self) -> DataType;

    /// Gets what rows need.
    ///
    /// # Errors
    /// An I/O error.
    fn prepare(&mut self, _: &[&[u8]]) -> Result<()> {
        Ok(())
    }

    fn decode(&self, rows: &[&[u8]]) -> Values;
}

/// Texts in UTF-8.
struct Text;

impl Decode for Text {
    fn data_type(&self) -> DataType {
        DataType::Utf8
    }

    fn decode(&self, rows: &[&[u8]]) -> Values {
        let texts: std::result::Result<Vec<&str>, _> = rows.iter().map(|row| std::str::from_utf8(row)).collect();
        let texts = texts.map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to()))?;
        Ok(Arc::new(StringArray::from(texts)))
    }
}

/// A column to decode, by its format.
struct ColumnDecoder {
    column: String,
    decoder: Box<dyn Decode>,
}

/// The columns of batches to decode.
pub(crate) struct Decoders {
    columns: Vec<ColumnDecoder>,
}

/// The format of a column.
pub(crate) enum Format {
    /// `text`, `json`, `msgpack`, `avro:` with a file, directory or URL, or `protobuf:` with a file or directory, and a message.
    Named(String),
    /// JSON objects with these fields.
    Json(SchemaRef),
    /// `json` or `msgpack`, with the fields that another read found in its first values.
    Sampled(String, SchemaRef),
}

impl Format {
    /// Returns whether the type of the column depends on its first values.
    pub(crate) fn needs_sample(&self) -> bool {
        matches!(self, Self::Named(name) if name == JSON || name == MESSAGE_PACK || name.strip_prefix("avro:").is_some_and(is_url))
    }
}

impl Decoders {
    /// Prepares the decoders. The fields of JSON without a schema, and the schema of a registry, are those of `sample`.
    ///
    /// # Errors
    /// `InvalidArgument` for another format, an invalid schema, or a sample without a common schema; an I/O error.
    pub(crate) fn new(formats: Vec<(String, Format)>, sample: Option<&RecordBatch>, fetch: &Fetch) -> Result<Self> {
        let columns = formats.into_iter().map(|(column, format)| {
            let wrong = |text: String| Error::InvalidArgument(format!("decode: {column}: {text}"));
            let rows = sample.and_then(|batch| batch.column_by_name(&column)).map(|array| bytes(&column, array));
            let rows = rows.transpose()?;
            let inferred = |encoding| json::Json::inferred(encoding, rows).map(Box::new).map_err(wrong);
            let decoder: Box<dyn Decode> = match format {
                Format::Json(schema) => Box::new(json::Json::of(schema)),
                Format::Sampled(name, schema) => {
                    let encoding = match name.as_str() {
                        JSON => json::Encoding::Text,
                        MESSAGE_PACK => json::Encoding::MessagePack,
                        _ => return Err(wrong(format!("{name:?}: expected json or msgpack with fields"))),
                    };
                    Box::new(json::Json::sampled(encoding, schema))
                }
                Format::Named(name) => match name.split_once(':').unwrap_or((&name, "")) {
                    ("text", "") => Box::new(Text),
                    (JSON, "") => inferred(json::Encoding::Text)?,
                    (MESSAGE_PACK, "") => inferred(json::Encoding::MessagePack)?,
                    ("avro", url) if is_url(url) => {
                        Box::new(avro::Avro::of_registry(url, Arc::clone(fetch), rows)?)
                    }
                    ("avro", path) if !path.is_empty() => Box::new(avro::Avro::open(path.as_ref())?),
                    ("protobuf", rest) => match rest.rsplit_once(':') {
                        Some((url, _)) if is_url(url) => {
                            let why = "registries have sources of protobuf, which need protoc: expected a file or a directory";
                            return Err(wrong(format!("{}: {why}", without_users(url))));
                        }
                        Some((path, message)) if !path.is_empty() && !message.is_empty() => {
                            // The library panics on some files that are not of protoc.
                            let opened = catch_unwind(|| protobuf::Protobuf::open(path.as_ref(), message));
                            let failed = || wrong(format!("{path}: expected a descriptor set of protoc"));
                            Box::new(opened.map_err(|_| failed())??)
                        }
                        _ => return Err(wrong(format!("{name:?}: expected protobuf:FILE.desc:package.Message"))),
                    },
                    _ => {
                        let expected = "expected text, json, avro:FILE.avsc, avro:DIRECTORY, avro:URL, msgpack, \
                                        protobuf:FILE.desc:MESSAGE, protobuf:DIRECTORY:MESSAGE, or the schema of JSON";
                        return Err(wrong(format!("{:?}: {expected}", without_users(&name))));
                    }
                },
            };
            Ok(ColumnDecoder { column, decoder })
        });
        Ok(Self { columns: columns.collect::<Result<_>>()? })
    }

    /// The schema of decoded batches: the columns have other types, and there is a column with errors.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that is not there or not of bytes.
    pub(crate) fn schema(&mut self, schema: &SchemaRef) -> Result<SchemaRef> {
        Ok(self.decode(RecordBatch::new_empty(Arc::clone(schema)))?.schema())
    }

    /// Decodes the columns of a batch.
    ///
    /// # Errors
    /// As [`Self::schema`]; an I/O error.
    pub(crate) fn decode(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.columns.is_empty() {
            return Ok(batch);
        }
        let schema = batch.schema();
        let mut columns: Vec<(Arc<Field>, ArrayRef)> =
            schema.fields().iter().cloned().zip(batch.columns().iter().cloned()).collect();
        let mut errors = Vec::new();
        let is_one = self.columns.len() == 1;
        for ColumnDecoder { column, decoder } in &mut self.columns {
            let place = columns.iter().position(|(field, _)| field.name() == column).ok_or_else(|| {
                let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                Error::InvalidArgument(format!("decode: {column}: expected one of the columns {}", names.join(", ")))
            })?;
            let Some((field, array)) = columns.get_mut(place) else { continue };
            let (values, flaws) = decoded(decoder.as_mut(), bytes(column, array)?)?;
            *field = Arc::new(Field::new(&*column, decoder.data_type(), true));
            *array = values;
            let prefix = if is_one { String::new() } else { format!("{column}: ") };
            errors.extend(flaws.into_iter().map(|(row, text)| (row, format!("{prefix}{text}"))));
        }
        let known = columns.iter().position(|(field, _)| field.name() == ERRORS);
        let of_rows =
            with_errors(known.and_then(|at| columns.get(at)).map(|(_, array)| array), batch.num_rows(), &errors);
        let column = (Arc::new(Field::new(ERRORS, DataType::Utf8, true)), Arc::new(of_rows) as ArrayRef);
        match known.and_then(|at| columns.get_mut(at)) {
            Some(place) => *place = column,
            None => columns.push(column),
        }
        let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let schema = arrow_schema::Schema::new(fields).with_metadata(schema.metadata().clone());
        RecordBatch::try_new(Arc::new(schema), arrays).map_err(|e| Error::InvalidArgument(format!("decode: {e}")))
    }
}

fn is_url(path: &str) -> bool {
    path.starts_with("http://") || path.starts_with("https://")
}

/// Returns the number of the schema of a framed value, and the value.
fn framed(row: &[u8]) -> std::result::Result<(u32, &[u8]), String> {
    let frame = row.split_first_chunk::<FRAME>();
    let (&[magic, a, b, c, d], value) = frame.ok_or("expected a zero and the number of a schema")?;
    match magic {
        0 => Ok((u32::from_be_bytes([a, b, c, d]), value)),
        _ => Err(format!("expected 0 at byte 0, found {magic}")),
    }
}

/// Returns the files of a directory whose names are a number with an extension.
fn numbered_files(directory: &Path, extension: &str) -> Result<BTreeMap<u32, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(|e| Error::io(directory, e))? {
        let file = entry.map_err(|e| Error::io(directory, e))?.path();
        let number = file.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| file.extension().is_some_and(|found| found == extension)) {
            files.insert(number, file);
        }
    }
    Ok(files)
}

fn bytes<'a>(column: &str, array: &'a ArrayRef) -> Result<&'a BinaryArray> {
    array.as_any().downcast_ref().ok_or_else(|| {
        Error::InvalidArgument(format!("decode: {column}: expected a column of bytes, found {}", array.data_type()))
    })
}

/// The errors of rows, besides those that are known of others.
fn with_errors(known: Option<&ArrayRef>, rows: usize, errors: &[(u32, String)]) -> StringArray {
    let known = known.and_then(|array| array.as_any().downcast_ref::<StringArray>());
    let mut texts: Vec<Option<String>> = (0..rows)
        .map(|row| known.filter(|known| known.is_valid(row)).map(|known| known.value(row).to_owned()))
        .collect();
    for (row, error) in errors {
        if let Some(text) = texts.get_mut(*row as usize) {
            *text = Some(text.take().map_or_else(|| error.clone(), |known| format!("{known}; {error}")));
        }
    }
    texts.into_iter().collect()
}

/// Returns the decoded values, with null for rows that do not decode, and these rows with what is wrong.
fn decoded(decoder: &mut dyn Decode, array: &BinaryArray) -> Result<(ArrayRef, Vec<(u32, String)>)> {
    let places: Vec<u32> =
        (0..).zip(0..array.len()).filter(|(_, row)| array.is_valid(*row)).map(|(at, _)| at).collect();
    let rows: Vec<&[u8]> = places.iter().map(|at| array.value(*at as usize)).collect();
    decoder.prepare(&rows)?;
    let (mut parts, mut valid, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    halve(decoder, &places, &rows, &mut |places, result| match result {
        Ok(values) => {
            parts.push(values);
            valid.extend_from_slice(places);
        }
        Err(text) => errors.extend(places.iter().map(|at| (*at, text.clone()))),
    });
    let failed = |e: arrow_schema::ArrowError| Error::InvalidArgument(format!("decode: {e}"));
    let values = match parts.as_slice() {
        [] => new_null_array(&decoder.data_type(), array.len()),
        [values] if values.len() == array.len() => Arc::clone(values),
        parts => {
            let values = concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()).map_err(failed)?;
            let mut taken = vec![None; array.len()];
            for (value, at) in (0..).zip(&valid) {
                if let Some(place) = taken.get_mut(*at as usize) {
                    *place = Some(value);
                }
            }
            take(&values, &UInt32Array::from(taken), None).map_err(failed)?
        }
    };
    Ok((values, errors))
}

/// Decodes rows, in parts that decode or are one row.
fn halve(decoder: &dyn Decode, places: &[u32], rows: &[&[u8]], done: &mut dyn FnMut(&[u32], Values)) {
    if rows.is_empty() {
        return;
    }
    // The libraries may panic on what strangers sent.
    let values = catch_unwind(AssertUnwindSafe(|| decoder.decode(rows)));
    let values = values.unwrap_or_else(|_| Err("the decoder failed".to_owned()));
    match values {
        Err(_) if rows.len() > 1 => {
            let middle = rows.len() / 2;
            let (first, rest) = rows.split_at(middle);
            let (first_places, rest_places) = places.split_at(middle);
            halve(decoder, first_places, first, done);
            halve(decoder, rest_places, rest, done);
        }
        values => done(places, values),
    }
}
