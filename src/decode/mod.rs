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

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt32Array, new_null_array};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef, SchemaRef};
use arrow_select::{concat::concat, take::take};

use crate::arrow::json_text::json_texts;
use crate::error::{Error, Result, without_users};

/// The column with the reasons why bodies and values have no decoded value.
const ERRORS: &str = "body_error";
/// The letter that names of columns cannot have, because they are passed to C.
const NUL: char = '\0';
/// The framing of a value: a zero, and the number of its schema.
const FRAME: usize = 5;
/// The most schemas that are requested: damaged values have any number.
const MOST_SCHEMAS: usize = 1_000;

/// The values of rows, or what is wrong with one of them.
type Values = std::result::Result<ArrayRef, String>;

/// The text of a schema after those that it needs, each with its name.
pub(crate) type Sources = Vec<(String, String)>;

/// Reads the schema with a number at the URL of a registry, which must be of a kind: its text, or why the registry has none.
///
/// # Errors
/// There is no answer.
pub(crate) type Fetch = Arc<dyn Fn(&str, u32, &str) -> Result<std::result::Result<Sources, String>> + Send + Sync>;

/// The schemas of rows by number, or why there is none with the number.
type Numbered<S> = BTreeMap<u32, std::result::Result<S, String>>;

/// The registry of schemas of one kind at a URL.
struct Registry {
    url: String,
    kind: &'static str,
    fetch: Fetch,
}

impl Registry {
    /// Adds the schema with a number if it is not known.
    ///
    /// # Errors
    /// There is no answer.
    fn add<S>(
        &self,
        number: u32,
        schemas: &mut Numbered<S>,
        parse: fn(&Sources) -> std::result::Result<S, String>,
    ) -> Result<()> {
        if schemas.len() < MOST_SCHEMAS && !schemas.contains_key(&number) {
            let found = (self.fetch)(&self.url, number, self.kind)?;
            let parsed = |sources| parse(&sources).map_err(|text| format!("schema {number}: {text}"));
            schemas.insert(number, found.and_then(parsed));
        }
        Ok(())
    }

    /// Adds the schemas of rows.
    ///
    /// # Errors
    /// There is no answer.
    fn add_of<S>(
        &self,
        rows: &[&[u8]],
        schemas: &mut Numbered<S>,
        parse: fn(&Sources) -> std::result::Result<S, String>,
    ) -> Result<()> {
        rows.iter().filter_map(|row| framed(row).ok()).try_for_each(|(number, _)| self.add(number, schemas, parse))
    }

    /// The error of a schema.
    fn refused(&self, number: u32, text: &str) -> Error {
        Error::InvalidArgument(format!("{}: schema {number}: {text}", without_users(&self.url)))
    }
}

/// The facts that a format took from a sample.
#[derive(Clone, Copy)]
pub(crate) enum Pin {
    /// The fields of objects.
    Inferred,
    /// The number of the schema in a registry whose fields the column has.
    Schema(u32),
}

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

    /// Returns what the format took from a sample.
    fn pin(&self) -> Option<Pin> {
        None
    }

    /// Returns a row as JSON, with the fields of its own schema.
    fn text(&self, row: &[u8]) -> std::result::Result<Vec<u8>, String> {
        let values = self.decode(&[row])?;
        let field = Arc::new(Field::new("", values.data_type().clone(), true));
        let texts = json_texts(&field, &values).map_err(|e| e.to_string())?;
        texts.into_iter().next().flatten().ok_or_else(|| "no value".to_owned())
    }
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

    fn text(&self, row: &[u8]) -> std::result::Result<Vec<u8>, String> {
        self.decode(&[row]).map(|_| row.to_vec())
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
    /// `text`, `json`, `msgpack`, `avro:` with a file, directory or URL, or `protobuf:` with one of them and a message.
    Named(String),
    /// `json` or `msgpack` objects with these fields, and no others if these are those of a sample.
    Objects { name: String, schema: SchemaRef, is_inferred: bool },
    /// A format with a URL, whose column has the fields of the schema with this number.
    Numbered { name: String, number: u32 },
}

impl Format {
    /// Returns whether the type of the column depends on its first values.
    pub(crate) fn needs_sample(&self) -> bool {
        match self {
            Self::Named(name) => {
                json::Encoding::of(name).is_some() || name.split_once(':').is_some_and(|(_, place)| is_url(place))
            }
            Self::Objects { .. } | Self::Numbered { .. } => false,
        }
    }

    /// Prepares the decoder for a column, whose type is that of `rows` if the format needs a sample.
    fn decoder(self, column: &str, rows: Option<&BinaryArray>, fetch: &Fetch) -> Result<Box<dyn Decode>> {
        let wrong = |text: String| Error::InvalidArgument(format!("decode: {column}: {text}"));
        let unknown = |name: &str| {
            let expected = "expected text, json, avro:FILE.avsc, avro:DIRECTORY, avro:URL, msgpack, protobuf:FILE.desc:MESSAGE, \
                            protobuf:DIRECTORY:MESSAGE, protobuf:URL:MESSAGE, or the schema of JSON";
            wrong(format!("{:?}: {expected}", without_users(name)))
        };
        let (name, number) = match self {
            Self::Objects { name, schema, is_inferred } => {
                let encoding = json::Encoding::of(&name).ok_or_else(|| unknown(&name))?;
                return Ok(Box::new(json::Json::of(encoding, schema, is_inferred)));
            }
            Self::Named(name) => (name, None),
            Self::Numbered { name, number } => (name, Some(number)),
        };
        if let Some(encoding) = json::Encoding::of(&name) {
            return Ok(Box::new(json::Json::inferred(encoding, rows).map_err(wrong)?));
        }
        let registry = |url: &str, kind| Registry { url: url.to_owned(), kind, fetch: Arc::clone(fetch) };
        Ok(match name.split_once(':').unwrap_or((&name, "")) {
            ("text", "") => Box::new(Text),
            ("avro", url) if is_url(url) => Box::new(avro::Avro::of_registry(registry(url, "AVRO"), number, rows)?),
            ("avro", path) if !path.is_empty() => Box::new(avro::Avro::open(path.as_ref())?),
            ("protobuf", rest) => match rest.rsplit_once(':') {
                Some((url, message)) if is_url(url) && is_message(message) => {
                    Box::new(protobuf::Protobuf::of_registry(registry(url, "PROTOBUF"), message, number, rows)?)
                }
                Some((path, message)) if !path.is_empty() && !message.is_empty() && !is_url(rest) => {
                    // The library panics on some files that are not of protoc.
                    let opened = catch_unwind(|| protobuf::Protobuf::open(path.as_ref(), message));
                    let failed = || wrong(format!("{path}: expected a descriptor set of protoc"));
                    Box::new(opened.map_err(|_| failed())??)
                }
                _ => {
                    let text = "expected protobuf:FILE.desc:package.Message, or a directory or URL for the file";
                    return Err(wrong(format!("{:?}: {text}", without_users(&name))));
                }
            },
            _ => return Err(unknown(&name)),
        })
    }
}

impl Decoders {
    /// Prepares the decoders. The fields of JSON without a schema, and the schema of a registry, are those of `sample`.
    ///
    /// # Errors
    /// `InvalidArgument` for another format, an invalid schema, or a sample without a common schema; an I/O error.
    pub(crate) fn new(formats: Vec<(String, Format)>, sample: Option<&RecordBatch>, fetch: &Fetch) -> Result<Self> {
        let columns = formats.into_iter().map(|(column, format)| {
            let rows = sample.and_then(|batch| batch.column_by_name(&column)).map(|array| bytes(&column, array));
            let decoder = format.decoder(&column, rows.transpose()?, fetch)?;
            Ok(ColumnDecoder { column, decoder })
        });
        Ok(Self { columns: columns.collect::<Result<_>>()? })
    }

    /// Returns what the formats of columns took from the sample, and the types of the columns.
    pub(crate) fn pins(&self) -> Vec<(String, Pin, DataType)> {
        let pin = |each: &ColumnDecoder| Some((each.column.clone(), each.decoder.pin()?, each.decoder.data_type()));
        self.columns.iter().filter_map(pin).collect()
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
        self.replace(batch, |decoder, field, array| {
            let (values, flaws) = decoded(decoder, bytes(field.name(), array)?)?;
            Ok((decoder.data_type(), values, flaws))
        })
    }

    /// Replaces the columns of a batch by the JSON of their values, as bytes. Each value has the fields of its own schema, but in a
    /// column that was decoded before those of the column.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub(crate) fn texts(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        self.replace(batch, |decoder, field, array| {
            let Some(array) = array.as_binary_opt::<i32>() else {
                return Ok((DataType::Binary, texts_of(field, array)?, Vec::new()));
            };
            let mut flaws = Vec::new();
            decoder.prepare(&array.iter().flatten().collect::<Vec<_>>())?;
            let texts = (0..).zip(array).map(|(row, value)| {
                // As in `halve`.
                let text = catch_unwind(AssertUnwindSafe(|| value.map(|value| decoder.text(value))));
                match text.unwrap_or_else(|_| Some(Err("the decoder failed".to_owned())))? {
                    Ok(text) => Some(text),
                    Err(flaw) => {
                        flaws.push((row, flaw));
                        None
                    }
                }
            });
            let texts: BinaryArray = texts.collect();
            Ok((DataType::Binary, Arc::new(texts), flaws))
        })
    }

    /// Replaces the columns of a batch by others, and adds the flaws of their rows to the column of errors.
    fn replace(
        &mut self,
        batch: RecordBatch,
        mut of: impl FnMut(&mut dyn Decode, &FieldRef, &ArrayRef) -> Result<(DataType, ArrayRef, Vec<(u32, String)>)>,
    ) -> Result<RecordBatch> {
        if self.columns.is_empty() {
            return Ok(batch);
        }
        let schema = batch.schema();
        let mut columns: Vec<(FieldRef, ArrayRef)> =
            schema.fields().iter().cloned().zip(batch.columns().iter().cloned()).collect();
        let mut errors = Vec::new();
        let is_one = self.columns.len() == 1;
        for ColumnDecoder { column, decoder } in &mut self.columns {
            let place = columns.iter().position(|(field, _)| field.name() == column).ok_or_else(|| {
                let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                Error::InvalidArgument(format!("decode: {column}: expected one of the columns {}", names.join(", ")))
            })?;
            let Some((field, array)) = columns.get_mut(place) else { continue };
            let (data_type, values, flaws) = of(decoder.as_mut(), field, array)?;
            *field = Arc::new(Field::new(&*column, data_type, true));
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

/// Returns a batch whose columns have other types, by name. A value that does not fit is null.
///
/// # Errors
/// `InvalidArgument` for a type that cannot become the other.
pub(crate) fn with_types(batch: &RecordBatch, types: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.schema_ref().fields().iter().zip(batch.columns()).map(|(field, array)| {
        let Ok(wanted) = types.field_with_name(field.name()) else {
            return Ok((Arc::clone(field), Arc::clone(array)));
        };
        let array = cast(array, wanted.data_type())
            .map_err(|e| Error::InvalidArgument(format!("decode: {}: {e}", field.name())))?;
        Ok((Arc::new(wanted.clone()), array))
    });
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let schema = arrow_schema::Schema::new(fields).with_metadata(batch.schema_ref().metadata().clone());
    RecordBatch::try_new(Arc::new(schema), arrays).map_err(|e| Error::InvalidArgument(format!("decode: {e}")))
}

fn is_url(path: &str) -> bool {
    path.starts_with("http://") || path.starts_with("https://")
}

/// Returns whether a text can be the name of a message: the port of a URL cannot.
fn is_message(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_') && !name.contains('/')
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

/// Returns the JSON of decoded values; of texts, these alone.
///
/// # Errors
/// `InvalidArgument` for a type that has no JSON.
fn texts_of(field: &FieldRef, array: &ArrayRef) -> Result<ArrayRef> {
    let refused = |e| Error::InvalidArgument(format!("decode: {}: {e}", field.name()));
    if array.data_type() == &DataType::Utf8 {
        return cast(array, &DataType::Binary).map_err(refused);
    }
    Ok(Arc::new(BinaryArray::from_iter(json_texts(field, array).map_err(refused)?)))
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
