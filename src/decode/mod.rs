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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt32Array, new_null_array};
use arrow_schema::{DataType, Field, SchemaRef};
use arrow_select::{concat::concat, take::take};

use crate::error::{Error, Result};

/// The column with the reasons why bodies and values have no decoded value.
const ERRORS: &str = "body_error";
const JSON: &str = "json";

/// The values of rows, or what is wrong with one of them.
type Values = std::result::Result<ArrayRef, String>;

/// The decoder of a format.
trait Decode: Send + Sync {
    fn data_type(&self) -> DataType;

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
    /// `text`, `json`, `avro:FILE` or `avro:DIRECTORY`.
    Named(String),
    /// JSON objects with these fields.
    Json(SchemaRef),
}

impl Format {
    /// Returns whether the type of the column depends on its first values.
    pub(crate) fn needs_sample(&self) -> bool {
        matches!(self, Self::Named(name) if name == JSON)
    }
}

impl Decoders {
    /// Prepares the decoders. The fields of JSON without a schema are those of the objects in `sample`.
    ///
    /// # Errors
    /// `InvalidArgument` for another format, an invalid schema, or a sample without a common schema; an I/O error.
    pub(crate) fn new(formats: Vec<(String, Format)>, sample: Option<&RecordBatch>) -> Result<Self> {
        let columns = formats.into_iter().map(|(column, format)| {
            let wrong = |text: String| Error::InvalidArgument(format!("decode: {column}: {text}"));
            let decoder: Box<dyn Decode> = match format {
                Format::Json(schema) => Box::new(json::Json::of(schema)),
                Format::Named(name) => match name.split_once(':').unwrap_or((&name, "")) {
                    ("text", "") => Box::new(Text),
                    (JSON, "") => {
                        let rows =
                            sample.and_then(|batch| batch.column_by_name(&column)).map(|array| bytes(&column, array));
                        Box::new(json::Json::inferred(rows.transpose()?).map_err(wrong)?)
                    }
                    ("avro", path) if !path.is_empty() => Box::new(avro::Avro::open(path.as_ref())?),
                    _ => {
                        let expected = "expected text, json, avro:FILE.avsc, avro:DIRECTORY, or the schema of JSON";
                        return Err(wrong(format!("{name:?}: {expected}")));
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
    pub(crate) fn schema(&self, schema: &SchemaRef) -> Result<SchemaRef> {
        Ok(self.decode(RecordBatch::new_empty(Arc::clone(schema)))?.schema())
    }

    /// Decodes the columns of a batch.
    ///
    /// # Errors
    /// As [`Self::schema`].
    pub(crate) fn decode(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.columns.is_empty() {
            return Ok(batch);
        }
        let schema = batch.schema();
        let mut columns: Vec<(Arc<Field>, ArrayRef)> =
            schema.fields().iter().cloned().zip(batch.columns().iter().cloned()).collect();
        let mut errors = Vec::new();
        for ColumnDecoder { column, decoder } in &self.columns {
            let place = columns.iter().position(|(field, _)| field.name() == column).ok_or_else(|| {
                let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                Error::InvalidArgument(format!("decode: {column}: expected one of the columns {}", names.join(", ")))
            })?;
            let Some((field, array)) = columns.get_mut(place) else { continue };
            let (values, flaws) = decoded(decoder.as_ref(), bytes(column, array)?)?;
            *field = Arc::new(Field::new(column, decoder.data_type(), true));
            *array = values;
            let prefix = if self.columns.len() > 1 { format!("{column}: ") } else { String::new() };
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
fn decoded(decoder: &dyn Decode, array: &BinaryArray) -> Result<(ArrayRef, Vec<(u32, String)>)> {
    let places: Vec<u32> =
        (0..).zip(0..array.len()).filter(|(_, row)| array.is_valid(*row)).map(|(at, _)| at).collect();
    let rows: Vec<&[u8]> = places.iter().map(|at| array.value(*at as usize)).collect();
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
