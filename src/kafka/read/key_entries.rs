//! The entries of records in a key index: topic, text of the key, offset and timestamp.
//!
//! The text is the key if it is UTF-8, and otherwise its hexadecimal digits. The text of a header is its name, `=`, and its
//! value in the same form. docs/formats/kafka-log.md, "Key index".

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;

use crate::error::{Error, Result};

/// Returns the text of a key in the index.
pub fn key_text(key: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(key) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(key.iter().fold(String::with_capacity(2 * key.len()), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        })),
    }
}

/// Returns the entries of a batch of records with the columns topic, key, offset and timestamp, and headers if one is indexed.
///
/// # Errors
/// `InvalidArgument` when a column is missing or has another type.
pub fn key_entries(records: &RecordBatch, header: Option<&str>) -> Result<RecordBatch> {
    let keys = column(records, "key", |a| a.as_binary_opt::<i32>())?;
    let topics = column(records, "topic", |a| a.as_string_opt::<i32>())?;
    let offsets = column(records, "offset", |a| a.as_primitive_opt::<Int64Type>())?;
    let times = column(records, "timestamp", |a| a.as_primitive_opt::<TimestampMillisecondType>())?;
    let headers = header.map(|name| Headers::of(records, name)).transpose()?;

    if headers.is_none()
        && keys.null_count() == 0
        && let Ok(text) = StringArray::try_new(keys.offsets().clone(), keys.values().clone(), None)
    {
        // Nearly always the columns are taken as they are.
        let times: Int64Array = times.reinterpret_cast();
        return entries(Arc::new(topics.clone()), text, offsets.clone(), times);
    }
    let (mut topic, mut text) = (StringBuilder::new(), StringBuilder::new());
    let (mut offset, mut time) = (Int64Builder::new(), Int64Builder::new());
    let mut seen = HashSet::new();
    for row in 0..records.num_rows() {
        let mut add = |key: &str| {
            topic.append_option((!topics.is_null(row)).then(|| topics.value(row)));
            text.append_value(key);
            offset.append_value(offsets.value(row));
            time.append_value(times.value(row));
        };
        if !keys.is_null(row) {
            add(&key_text(keys.value(row)));
        }
        if let Some(headers) = &headers {
            seen.clear();
            for value in headers.values_of(row) {
                if seen.insert(value) {
                    add(&format!("{}={}", headers.name, key_text(value)));
                }
            }
        }
    }
    entries(Arc::new(topic.finish()), text.finish(), offset.finish(), time.finish())
}

fn entries(topics: ArrayRef, keys: StringArray, offsets: Int64Array, times: Int64Array) -> Result<RecordBatch> {
    let columns: [(&str, ArrayRef); 4] = [
        ("topic", topics),
        ("key", Arc::new(keys)),
        ("phy_offset", Arc::new(offsets)),
        ("store_timestamp", Arc::new(times)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .map_err(|e| Error::InvalidArgument(e.to_string()))
}

fn column<'a, A>(records: &'a RecordBatch, name: &str, of: impl Fn(&'a ArrayRef) -> Option<&'a A>) -> Result<&'a A> {
    records.column_by_name(name).and_then(of).ok_or_else(|| {
        Error::InvalidArgument(format!("records: expected the column {name:?} as logdex reads it, found another"))
    })
}

/// The headers of a batch, of which one name is wanted.
struct Headers<'a> {
    name: &'a str,
    rows: &'a arrow_array::ListArray,
    names: &'a StringArray,
    values: &'a BinaryArray,
}

impl<'a> Headers<'a> {
    fn of(records: &'a RecordBatch, name: &'a str) -> Result<Self> {
        let rows = column(records, "headers", |a| a.as_list_opt::<i32>())?;
        let pairs = match rows.values().data_type() {
            DataType::Struct(_) => rows.values().as_struct_opt(),
            _ => None,
        };
        let names = pairs.and_then(|pairs| pairs.column_by_name("key")?.as_string_opt::<i32>());
        let values = pairs.and_then(|pairs| pairs.column_by_name("value")?.as_binary_opt::<i32>());
        match (names, values) {
            (Some(names), Some(values)) => Ok(Self { name, rows, names, values }),
            _ => Err(Error::InvalidArgument("records: expected headers of \"key\" and \"value\"".to_owned())),
        }
    }

    /// Returns the values of the wanted header in a row, without nulls.
    fn values_of(&self, row: usize) -> impl Iterator<Item = &'a [u8]> {
        let ends = self.rows.value_offsets();
        let at = |row: usize| ends.get(row).copied().and_then(|end| usize::try_from(end).ok()).unwrap_or(0);
        let range = if self.rows.is_null(row) { 0..0 } else { at(row)..at(row + 1) };
        let (names, values, name) = (self.names, self.values, self.name);
        range.filter(move |at| !values.is_null(*at) && names.value(*at) == name).map(move |at| values.value(at))
    }
}
