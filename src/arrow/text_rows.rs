//! The rows of a batch as text: JSON lines, CSV, and lines for people.
//!
//! | value | JSON | CSV |
//! |---|---|---|
//! | time | milliseconds | ISO 8601 in UTC; milliseconds if no date has four digits for its year |
//! | bytes in a column `x` | `x`, or if they are not UTF-8 null and `x_base64` | likewise, in two columns |
//! | map | object | the text of the object |
//! | list of headers | list of objects with `key` and `value`, which is of bytes | the text of the list |
//! | list of texts | list | the text of the list |
//! | decoded body or value | as it is | the text of the JSON |
//! | null | null; of headers an empty list | nothing; an empty text is `""` |
//!
//! JSON is ASCII, so that no terminal obeys it.
//!
//! A line for people is a head of fields, and the body or value below it if it was read. Of a long body only the start is shown.
//! A field is a value with its label. It is in quotation marks if it is empty, has a space or a quotation mark, or is the word null.
//! Control characters are left to the caller, except line breaks.
//!
//! A [`RowFormat`] is written by the user, as for kcat's option `-f`.

use std::fmt::{self, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{GenericBinaryType, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, BinaryArray, BooleanArray, Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow_schema::{DataType, FieldRef, Schema, TimeUnit};
use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;

#[cfg(feature = "python")]
use super::json_text::json_texts;
use crate::error::{Error, Result};
use crate::time_text::{TimeText, Zone, zoned_text};

/// A column of one of the types that messages, records and batches have.
pub(crate) enum Cells<'a> {
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Flag(&'a BooleanArray),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Time(&'a TimestampMillisecondArray),
    Map(&'a MapArray, &'a StringArray, &'a StringArray),
    Headers(&'a ListArray, &'a StringArray, &'a BinaryArray),
    Texts(&'a ListArray, &'a StringArray),
    /// Decoded bodies or values, as JSON.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "only the binding decodes"))]
    Decoded(StringArray),
}

/// From this length on, JSON is handed over: it stays in the processor's cache, and a body of 64 MiB becomes up to 384 MiB of it.
const PIECE_LEN: usize = 256 << 10;

/// Text on its way to its destination, in pieces.
pub(crate) struct PieceWriter<F, E> {
    text: String,
    write: F,
    /// The first error of `write`, which is not called again.
    pub(crate) refused: Option<E>,
}

impl<F: FnMut(&str) -> std::result::Result<(), E>, E> PieceWriter<F, E> {
    pub(crate) fn new(write: F) -> Self {
        Self { text: String::with_capacity(PIECE_LEN + (PIECE_LEN >> 3)), write, refused: None }
    }

    /// Hands over what is left.
    pub(crate) fn hand_over(&mut self) -> fmt::Result {
        if self.text.is_empty() {
            return Ok(());
        }
        let written = (self.write)(&self.text);
        self.text.clear();
        written.map_err(|error| {
            self.refused = Some(error);
            fmt::Error
        })
    }
}

impl<F: FnMut(&str) -> std::result::Result<(), E>, E> Write for PieceWriter<F, E> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.text.push_str(part);
        if self.text.len() < PIECE_LEN { Ok(()) } else { self.hand_over() }
    }
}

/// Writes the rows of a batch as JSON lines, in pieces that may end anywhere.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type; the first error of `write`, which is not called again.
pub(crate) fn json_lines<E: From<Error>>(
    batch: &RecordBatch,
    write: impl FnMut(&str) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let columns = columns(batch)?;
    let mut pieces = PieceWriter::new(write);
    // Only `write` fails, and its error is kept.
    let _ = json_rows(&mut pieces, &columns, batch.num_rows()).and_then(|()| pieces.hand_over());
    pieces.refused.map_or(Ok(()), Err)
}

fn json_rows(text: &mut impl Write, columns: &[(&str, Cells<'_>)], rows: usize) -> fmt::Result {
    json_rows_with(text, columns, rows, |_, _| Ok(()))
}

/// Writes rows as JSON lines, each with what `add` writes after its columns.
pub(super) fn json_rows_with<W: Write>(
    text: &mut W,
    columns: &[(&str, Cells<'_>)],
    rows: usize,
    mut add: impl FnMut(&mut W, usize) -> fmt::Result,
) -> fmt::Result {
    let mut labels = Vec::with_capacity(columns.len());
    for (name, _) in columns {
        let mut label = String::new();
        json_text(&mut label, name)?;
        label.push_str(": ");
        labels.push(label);
    }
    for row in 0..rows {
        text.write_char('{')?;
        for (at, ((name, cells), label)) in columns.iter().zip(&labels).enumerate() {
            if at > 0 {
                text.write_str(", ")?;
            }
            if matches!(cells, Cells::Bytes(_)) {
                cells.json(text, name, row)?;
            } else {
                text.write_str(label)?;
                cells.json_or_null(text, row)?;
            }
        }
        add(text, row)?;
        text.write_str("}\n")?;
    }
    Ok(())
}

/// Returns the line of names of a CSV file.
pub(crate) fn csv_names(schema: &Schema) -> String {
    let mut text = String::new();
    for (at, field) in schema.fields().iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        quoted(&mut text, field.name());
        if *field.data_type() == DataType::Binary {
            text.push(',');
            quoted(&mut text, &format!("{}_base64", field.name()));
        }
    }
    text.push('\n');
    text
}

/// Returns the rows of a batch as lines of CSV, without the line of names.
///
/// # Errors
///
/// As [`json_lines`].
pub(crate) fn csv_lines(batch: &RecordBatch) -> Result<String> {
    let columns = columns(batch)?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for (at, (_, cells)) in columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            cells.csv(&mut text, row);
        }
        text.push('\n');
    }
    Ok(text)
}

/// Returns the columns of a batch with their names.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type.
pub(crate) fn columns(batch: &RecordBatch) -> Result<Vec<(&str, Cells<'_>)>> {
    let fields = batch.schema_ref().fields().iter();
    fields.zip(batch.columns()).map(|(field, array)| Ok((field.name().as_str(), Cells::of(field, array)?))).collect()
}

impl<'a> Cells<'a> {
    fn of(field: &FieldRef, array: &'a dyn Array) -> Result<Self> {
        let of_type = match array.data_type() {
            DataType::Utf8 => Some(Self::Text(array.as_string())),
            DataType::Binary => Some(Self::Bytes(array.as_binary())),
            DataType::Boolean => Some(Self::Flag(array.as_boolean())),
            DataType::Int32 => Some(Self::Int32(array.as_primitive::<Int32Type>())),
            DataType::Int64 => Some(Self::Int64(array.as_primitive::<Int64Type>())),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                Some(Self::Time(array.as_primitive::<TimestampMillisecondType>()))
            }
            DataType::Map(..) => {
                let map = array.as_map();
                map.keys()
                    .as_string_opt()
                    .zip(map.values().as_string_opt())
                    .map(|(keys, values)| Self::Map(map, keys, values))
            }
            DataType::List(_) => {
                let list = array.as_list();
                let headers = list.values().as_struct_opt().and_then(|pairs| match pairs.columns() {
                    [keys, values] => {
                        let values = values.as_bytes_opt::<GenericBinaryType<i32>>();
                        keys.as_string_opt().zip(values).map(|(keys, values)| Self::Headers(list, keys, values))
                    }
                    _ => None,
                });
                headers.or_else(|| list.values().as_string_opt().map(|texts| Self::Texts(list, texts)))
            }
            _ => None,
        };
        let of_type = of_type.or_else(|| Self::decoded(field, array));
        of_type.ok_or_else(|| {
            let (name, found) = (field.name(), array.data_type());
            Error::InvalidArgument(format!("column {name}: expected a column of messages or records, found {found}"))
        })
    }

    #[cfg(feature = "python")]
    fn decoded(field: &FieldRef, array: &dyn Array) -> Option<Self> {
        let texts = json_texts(field, array).ok()?.into_iter().map(|bytes| {
            let bytes = bytes?;
            let mut text = String::with_capacity(bytes.len());
            ascii(&mut text, &String::from_utf8_lossy(&bytes)).ok().map(|()| text)
        });
        Some(Self::Decoded(texts.collect()))
    }

    #[cfg(not(feature = "python"))]
    fn decoded(_: &FieldRef, _: &dyn Array) -> Option<Self> {
        None
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Text(array) => array,
            Self::Bytes(array) => array,
            Self::Flag(array) => array,
            Self::Int32(array) => array,
            Self::Int64(array) => array,
            Self::Time(array) => array,
            Self::Map(array, ..) => array,
            Self::Headers(array, ..) | Self::Texts(array, _) => array,
            Self::Decoded(array) => array,
        }
    }

    /// Returns the number or time of a row; `None` if it is null or something else.
    fn number(&self, row: usize) -> Option<i64> {
        self.array().is_valid(row).then_some(())?;
        match self {
            Self::Int32(array) => Some(array.value(row).into()),
            Self::Int64(array) => Some(array.value(row)),
            Self::Time(array) => Some(array.value(row)),
            Self::Flag(array) => Some(array.value(row).into()),
            Self::Text(_) | Self::Bytes(_) | Self::Map(..) | Self::Headers(..) | Self::Texts(..) | Self::Decoded(_) => {
                None
            }
        }
    }

    /// Returns the bytes of a row, or its JSON; `None` if it is null or something else.
    fn bytes(&self, row: usize) -> Option<&[u8]> {
        self.array().is_valid(row).then_some(())?;
        match self {
            Self::Text(array) => Some(array.value(row).as_bytes()),
            Self::Bytes(array) => Some(array.value(row)),
            Self::Decoded(texts) => Some(texts.value(row).as_bytes()),
            _ => None,
        }
    }

    /// Returns the headers of a row.
    fn headers(&self, row: usize) -> Vec<(&str, Option<&[u8]>)> {
        match self {
            Self::Headers(list, names, values) if list.is_valid(row) => entries(list.value_offsets(), row)
                .map(|entry| (names.value(entry), values.is_valid(entry).then(|| values.value(entry))))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Calls a function for each entry of a map, each header, or each text of a list, which has no name.
    fn each_pair(&self, row: usize, mut call: impl FnMut(Option<&str>, Option<&[u8]>)) {
        if !self.array().is_valid(row) {
            return;
        }
        match self {
            Self::Map(map, names, values) => {
                for entry in entries(map.value_offsets(), row) {
                    call(Some(names.value(entry)), values.is_valid(entry).then(|| values.value(entry).as_bytes()));
                }
            }
            Self::Texts(list, texts) => {
                for entry in entries(list.value_offsets(), row) {
                    call(None, texts.is_valid(entry).then(|| texts.value(entry).as_bytes()));
                }
            }
            _ => self.headers(row).into_iter().for_each(|(name, value)| call(Some(name), value)),
        }
    }

    /// Writes a name with its value.
    pub(crate) fn json(&self, text: &mut impl Write, name: &str, row: usize) -> fmt::Result {
        if let Self::Bytes(array) = self {
            return json_bytes(text, name, array.is_valid(row).then(|| array.value(row)));
        }
        json_text(text, name)?;
        text.write_str(": ")?;
        self.json_or_null(text, row)
    }

    /// Writes a value that is not of bytes.
    fn json_or_null(&self, text: &mut impl Write, row: usize) -> fmt::Result {
        match self {
            Self::Headers(..) => self.json_value(text, row),
            _ if self.array().is_valid(row) => self.json_value(text, row),
            _ => text.write_str("null"),
        }
    }

    /// Writes a value that is not null, and not of bytes.
    fn json_value(&self, text: &mut impl Write, row: usize) -> fmt::Result {
        match self {
            Self::Text(array) => json_text(text, array.value(row)),
            Self::Bytes(array) => json_base64(text, array.value(row)),
            Self::Flag(array) => text.write_str(if array.value(row) { "true" } else { "false" }),
            Self::Int32(array) => write!(text, "{}", array.value(row)),
            Self::Int64(array) => write!(text, "{}", array.value(row)),
            Self::Time(array) => write!(text, "{}", array.value(row)),
            Self::Map(map, keys, values) => {
                text.write_char('{')?;
                for (at, entry) in entries(map.value_offsets(), row).enumerate() {
                    if at > 0 {
                        text.write_str(", ")?;
                    }
                    json_text(text, keys.value(entry))?;
                    text.write_str(": ")?;
                    match values.is_valid(entry).then(|| values.value(entry)) {
                        Some(value) => json_text(text, value)?,
                        None => text.write_str("null")?,
                    }
                }
                text.write_char('}')
            }
            Self::Headers(list, keys, values) => {
                text.write_char('[')?;
                let headers = if list.is_valid(row) { entries(list.value_offsets(), row) } else { 0..0 };
                for (at, entry) in headers.enumerate() {
                    text.write_str(if at > 0 { ", {\"key\": " } else { "{\"key\": " })?;
                    json_text(text, keys.value(entry))?;
                    text.write_str(", ")?;
                    json_bytes(text, "value", values.is_valid(entry).then(|| values.value(entry)))?;
                    text.write_char('}')?;
                }
                text.write_char(']')
            }
            Self::Texts(list, texts) => {
                text.write_char('[')?;
                for (at, entry) in entries(list.value_offsets(), row).enumerate() {
                    text.write_str(if at > 0 { ", " } else { "" })?;
                    json_text(text, texts.value(entry))?;
                }
                text.write_char(']')
            }
            Self::Decoded(texts) => text.write_str(texts.value(row)),
        }
    }

    fn csv(&self, text: &mut String, row: usize) {
        let valid = self.array().is_valid(row);
        match self {
            Self::Bytes(array) => match valid.then(|| std::str::from_utf8(array.value(row))) {
                None => text.push(','),
                Some(Ok(value)) => {
                    quoted(text, value);
                    text.push(',');
                }
                Some(Err(_)) => {
                    text.push(',');
                    text.push_str(&STANDARD.encode(array.value(row)));
                }
            },
            _ if !valid => (),
            Self::Text(array) => quoted(text, array.value(row)),
            Self::Time(array) => {
                // Writing to a String cannot fail.
                let _ = write!(text, "{}", TimeText(array.value(row)));
            }
            Self::Map(..) | Self::Headers(..) | Self::Texts(..) | Self::Decoded(_) => {
                let mut value = String::new();
                let _ = self.json_value(&mut value, row);
                quoted(text, &value);
            }
            Self::Flag(_) | Self::Int32(_) | Self::Int64(_) => {
                let _ = self.json_value(text, row);
            }
        }
    }
}

/// A row of a batch, by the names of its columns.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) columns: &'a [(&'a str, Cells<'a>)],
    pub(crate) at: usize,
}

impl<'a> Row<'a> {
    fn cells(self, name: &str) -> Option<&'a Cells<'a>> {
        self.columns.iter().find(|(known, _)| *known == name).map(|(_, cells)| cells)
    }

    /// Returns a number, a time or a flag.
    pub(crate) fn number(self, name: &str) -> Option<i64> {
        self.cells(name)?.number(self.at)
    }

    /// Returns bytes or a text.
    pub(crate) fn bytes(self, name: &str) -> Option<&'a [u8]> {
        self.cells(name)?.bytes(self.at)
    }

    /// Returns the names and values of properties.
    pub(super) fn properties(self) -> Vec<(&'a str, Option<&'a str>)> {
        match self.cells("properties") {
            Some(Cells::Map(map, names, values)) if map.is_valid(self.at) => entries(map.value_offsets(), self.at)
                .map(|entry| (names.value(entry), values.is_valid(entry).then(|| values.value(entry))))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the names and values of headers.
    pub(crate) fn headers(self) -> Vec<(&'a str, Option<&'a [u8]>)> {
        self.cells("headers").map(|headers| headers.headers(self.at)).unwrap_or_default()
    }
}

/// The entries of a row of a map or a list.
fn entries(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    let at = |row: usize| offsets.get(row).and_then(|&offset| usize::try_from(offset).ok()).unwrap_or(0);
    at(row)..at(row + 1)
}

fn json_bytes(text: &mut impl Write, name: &str, value: Option<&[u8]>) -> fmt::Result {
    json_text(text, name)?;
    match value.map(std::str::from_utf8) {
        None => text.write_str(": null"),
        Some(Ok(value)) => {
            text.write_str(": ")?;
            json_text(text, value)
        }
        Some(Err(_)) => {
            text.write_str(": null, ")?;
            json_text(text, &format!("{name}_base64"))?;
            text.write_str(": ")?;
            json_base64(text, value.unwrap_or_default())
        }
    }
}

/// Writes a text in quotation marks, in ASCII.
pub(crate) fn json_text(text: &mut impl Write, value: &str) -> fmt::Result {
    text.write_char('"')?;
    let mut rest = value;
    // Runs of letters that stand for themselves are written together.
    while let Some((plain, letter, behind)) = first_escaped(rest) {
        write_plain(text, plain)?;
        match letter {
            '"' => text.write_str("\\\"")?,
            '\\' => text.write_str("\\\\")?,
            '\n' => text.write_str("\\n")?,
            '\r' => text.write_str("\\r")?,
            '\t' => text.write_str("\\t")?,
            _ => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(text, "\\u{unit:04x}")?;
                }
            }
        }
        rest = behind;
    }
    write_plain(text, rest)?;
    text.write_char('"')
}

/// Writes JSON in ASCII: other letters are only in its texts.
#[cfg(feature = "python")]
fn ascii(text: &mut impl Write, json: &str) -> fmt::Result {
    json.chars().try_for_each(|letter| match letter {
        ' '..='~' => text.write_char(letter),
        _ => letter.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(text, "\\u{unit:04x}")),
    })
}

/// Writes text in ASCII, in parts that are short next to a piece.
fn write_plain(text: &mut impl Write, mut plain: &str) -> fmt::Result {
    while let Some((part, rest)) = plain.split_at_checked(PIECE_LEN >> 6) {
        text.write_str(part)?;
        plain = rest;
    }
    text.write_str(plain)
}

/// Returns the first letter that JSON in ASCII escapes, with the text before it and after it.
fn first_escaped(text: &str) -> Option<(&str, char, &str)> {
    let at = text.bytes().position(|byte| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\'))?;
    let (plain, rest) = text.split_at_checked(at)?;
    let mut letters = rest.chars();
    Some((plain, letters.next()?, letters.as_str()))
}

/// Writes bytes as base64 in quotation marks.
fn json_base64(text: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    write!(text, "\"{}\"", Base64Display::new(bytes, &STANDARD))
}

/// Writes a cell of CSV, in quotation marks where it needs them.
fn quoted(text: &mut String, value: &str) {
    if !value.is_empty() && !value.contains(['"', ',', '\n', '\r']) {
        text.push_str(value);
        return;
    }
    text.push('"');
    text.push_str(&value.replace('"', "\"\""));
    text.push('"');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::ArrayRef;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn example() -> RecordBatch {
        batch(vec![
            ("topic", Arc::new(StringArray::from(vec![Some("a,\"b\"\n\u{1b}\u{e9}\u{1f600}"), None, Some("")]))),
            ("body", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"shirt"), None, Some(b"\xff\x00")]))),
            ("n", Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(1)]))),
            (
                "at",
                Arc::new(TimestampMillisecondArray::from(vec![Some(-1), None, Some(i64::MAX)]).with_timezone("UTC")),
            ),
            ("ok", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ])
    }

    #[test]
    fn rows_are_json_lines_in_ascii() {
        let expected = concat!(
            r#"{"topic": "a,\"b\"\n\u001b\u00e9\ud83d\ude00", "body": "shirt", "n": -9223372036854775808, "at": -1, "ok": true}"#,
            "\n",
            r#"{"topic": null, "body": null, "n": null, "at": null, "ok": null}"#,
            "\n",
            r#"{"topic": "", "body": null, "body_base64": "/wA=", "n": 1, "at": 9223372036854775807, "ok": false}"#,
            "\n"
        );
        assert_eq!(json(&example()), [expected]);
    }

    fn json(batch: &RecordBatch) -> Vec<String> {
        let mut pieces = Vec::new();
        json_lines::<Error>(batch, |piece| {
            pieces.push(piece.to_owned());
            Ok(())
        })
        .unwrap();
        pieces
    }

    #[test]
    fn long_json_comes_in_pieces() {
        let (text, bytes, plain) = (vec![0; 1 << 20], vec![0xff; 4 << 20], vec![b'x'; 4 << 20]);
        for (body, value) in [
            (&plain, format!("\"body\": \"{}\"", "x".repeat(4 << 20))),
            (&text, format!("\"body\": \"{}\"", "\\u0000".repeat(1 << 20))),
            (&bytes, format!("\"body\": null, \"body_base64\": \"{}\"", STANDARD.encode(&bytes))),
        ] {
            let pieces = json(&batch(vec![("body", Arc::new(BinaryArray::from_vec(vec![body])))]));
            assert!(pieces.iter().all(|piece| piece.len() < PIECE_LEN + (8 << 10)));
            assert!(pieces.concat() == format!("{{{value}}}\n"));
        }
    }

    #[test]
    fn json_ends_with_the_first_error() {
        let body = vec![0; 1 << 20];
        let mut calls = 0;
        let written = json_lines(&batch(vec![("body", Arc::new(BinaryArray::from_vec(vec![&body])))]), |_| {
            calls += 1;
            Err(Error::InvalidArgument("full".into()))
        });
        assert_eq!((written.unwrap_err().to_string().as_str(), calls), ("full", 1));
    }

    #[test]
    fn rows_are_lines_of_csv() {
        let batch = example();
        assert_eq!(csv_names(batch.schema_ref()), "topic,body,body_base64,n,at,ok\n");
        let expected = concat!(
            "\"a,\"\"b\"\"\n\u{1b}\u{e9}\u{1f600}\",shirt,,-9223372036854775808,1969-12-31T23:59:59.999Z,true\n",
            ",,,,,\n",
            "\"\",,/wA=,1,9223372036854775807,false\n"
        );
        assert_eq!(csv_lines(&batch).unwrap(), expected);
    }

    #[test]
    fn base64_pads() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(STANDARD.encode(bytes), text);
        }
        assert_eq!(STANDARD.encode([0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn a_column_of_another_type_is_refused() {
        let other = batch(vec![("x", Arc::new(arrow_array::Float64Array::from(vec![1.0])))]);
        assert!(json_lines::<Error>(&other, |_| Ok(())).unwrap_err().to_string().starts_with("column x: expected"));
    }
}

/// Letters of a text that are shown, and half as many bytes of what is not a text.
const SHOWN: usize = 2_000;

/// Writes the rows of a batch of messages or of Kafka records, in pieces of whole lines. If they are `labelled`, each column of
/// the batch is a field.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type; the first error of `write`, which is not called again.
pub(crate) fn text_lines<E: From<Error>>(
    batch: &RecordBatch,
    labelled: bool,
    zone: Zone<'_>,
    write: impl FnMut(&str) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let columns = columns(batch)?;
    let of_row = match batch.column_by_name("phy_offset") {
        _ if labelled => fields,
        Some(_) => message_lines,
        None => record_lines,
    };
    let mut pieces = PieceWriter::new(write);
    let write_row = |at| {
        let lines = of_row(Row { columns: &columns, at }, zone);
        let text: String = lines.iter().map(|line| line.replace('\n', "\\n") + "\n").collect();
        pieces.write_str(&text)
    };
    // Only `write` fails, and its error is kept.
    let _ = (0..batch.num_rows()).try_for_each(write_row).and_then(|()| pieces.hand_over());
    pieces.refused.map_or(Ok(()), Err)
}

/// Returns all columns of a row as one line of fields.
fn fields(row: Row<'_>, zone: Zone<'_>) -> Vec<String> {
    let field = |(name, cells): &(&str, Cells<'_>)| {
        let value = match cells {
            _ if !cells.array().is_valid(row.at) => "null".to_owned(),
            Cells::Text(_) | Cells::Bytes(_) => in_line(cells.bytes(row.at)),
            Cells::Time(times) => zoned_text(times.value(row.at), zone),
            Cells::Map(..) | Cells::Headers(..) | Cells::Texts(..) => pairs(cells, row.at),
            Cells::Flag(_) | Cells::Int32(_) | Cells::Int64(_) | Cells::Decoded(_) => {
                let mut text = String::new();
                // Writing to a String cannot fail.
                let _ = cells.json_value(&mut text, row.at);
                text
            }
        };
        format!("{name}={value}")
    };
    vec![row.columns.iter().map(field).collect::<Vec<_>>().join("  ")]
}

/// Returns the entries of a map or a list of headers, or the texts of a list, as fields in braces.
fn pairs(cells: &Cells<'_>, at: usize) -> String {
    let mut parts = Vec::new();
    cells.each_pair(at, |name, value| {
        let name = name.map_or_else(String::new, |name| format!("{name}="));
        parts.push(name + &in_line(value));
    });
    format!("{{{}}}", parts.join(" "))
}

/// Returns the line of a message or record without its body.
pub(super) fn head(row: Row<'_>, zone: Zone<'_>) -> String {
    if row.cells("phy_offset").is_some() { message_head(row, zone) } else { record_head(row, zone) }
}

fn message_head(row: Row<'_>, zone: Zone<'_>) -> String {
    let text = |name| row.bytes(name).map(String::from_utf8_lossy);
    let number = |name| row.number(name).unwrap_or(-1);
    let queue = format!("{}/{}", text("topic").unwrap_or_default(), number("queue_id"));
    let places = format!("{queue}@{}  phy {}", number("queue_offset"), number("phy_offset"));
    let mut head = vec![time(row, "store_timestamp", zone), places];
    let labelled = |name: &&str| Some(format!("{name}={}", in_line(Some(row.bytes(name)?))));
    head.extend(["tags", "keys", "uniq_key"].iter().filter_map(labelled));
    head.join("  ")
}

fn message_lines(row: Row<'_>, zone: Zone<'_>) -> Vec<String> {
    let text = |name| row.bytes(name).map(String::from_utf8_lossy);
    let mut lines = vec![message_head(row, zone)];
    if let Some(error) = text("body_error") {
        lines.push(format!("    ({error})"));
    } else if let Some(body) = row.bytes("body") {
        let (shown, rest) = begin_of(body);
        if std::str::from_utf8(body).is_ok() {
            lines.extend(shown.lines().map(|line| format!("    {line}")));
        } else {
            lines.push(format!("    ({} bytes, no text) {shown}", grouped(body.len())));
        }
        if rest > 0 {
            lines.push(format!("    ({} more; --json gives all)", grouped(rest)));
        }
    }
    lines
}

fn record_head(row: Row<'_>, zone: Zone<'_>) -> String {
    let topic = row.bytes("topic").map(String::from_utf8_lossy).unwrap_or_default();
    let number = |name| row.number(name).unwrap_or(-1);
    let place = format!("{topic}-{}@{}", number("partition"), number("offset"));
    let mut head = vec![time(row, "timestamp", zone), place, format!("key={}", in_line(row.bytes("key")))];
    head.extend(row.headers().into_iter().map(|(name, value)| format!("header.{name}={}", in_line(value))));
    head.join("  ")
}

fn record_lines(row: Row<'_>, zone: Zone<'_>) -> Vec<String> {
    let mut lines = vec![record_head(row, zone)];
    if row.columns.iter().any(|(name, _)| *name == "value") {
        let error = row.bytes("body_error").map(|text| format!("({})", String::from_utf8_lossy(text)));
        let value = row.bytes("value");
        // Alone on its line it needs quotation marks only to differ from no value.
        let plain = value.filter(|value| !matches!(*value, b"" | b"null"));
        let text = error.unwrap_or_else(|| plain.map_or_else(|| in_line(value), unquoted));
        lines.push(format!("    {text}"));
    }
    lines
}

fn time(row: Row<'_>, name: &str, zone: Zone<'_>) -> String {
    row.number(name).map_or_else(|| "-".to_owned(), |time| zoned_text(time, zone))
}

/// Returns the start of a text, or of other bytes in hexadecimal, and how many letters or bytes are left out.
fn begin_of(content: &[u8]) -> (String, usize) {
    if let Ok(text) = std::str::from_utf8(content) {
        let mut letters = text.chars();
        return (letters.by_ref().take(SHOWN).collect(), letters.count());
    }
    let shown: Vec<_> = content.iter().take(SHOWN / 2).map(|byte| format!("{byte:02x}")).collect();
    (shown.join(" "), content.len().saturating_sub(SHOWN / 2))
}

/// Returns the value of a field: null, a text, or other bytes in hexadecimal. A text is in quotation marks if it needs them.
fn in_line(content: Option<&[u8]>) -> String {
    let Some(content) = content else { return "null".to_owned() };
    let Ok(text) = std::str::from_utf8(content) else { return unquoted(content) };
    if !matches!(text, "" | "null") && !text.contains(|letter: char| letter.is_whitespace() || letter == '"') {
        return unquoted(content);
    }
    let (shown, rest) = begin_of(content);
    let more = if rest > 0 { format!(" ({} more)", grouped(rest)) } else { String::new() };
    format!("\"{}\"{more}", shown.replace('\\', "\\\\").replace('"', "\\\""))
}

fn unquoted(content: &[u8]) -> String {
    match begin_of(content) {
        (shown, 0) => shown,
        (shown, rest) => format!("{shown} ({} more)", grouped(rest)),
    }
}

/// Returns a number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// The part of a column that a letter of a [`RowFormat`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// The value; a time as ISO 8601.
    Value,
    /// The value; a time as milliseconds.
    Plain,
    /// The number of bytes; -1 for null.
    Length,
}

/// The letters of a [`RowFormat`], with the columns of messages and of records that they show: those of kcat.
const LETTERS: [(char, [&str; 2], Shown); 9] = [
    ('t', ["topic", "topic"], Shown::Plain),
    ('p', ["queue_id", "partition"], Shown::Plain),
    ('o', ["queue_offset", "offset"], Shown::Plain),
    ('T', ["store_timestamp", "timestamp"], Shown::Plain),
    ('k', ["keys", "key"], Shown::Plain),
    ('K', ["keys", "key"], Shown::Length),
    ('s', ["body", "value"], Shown::Plain),
    ('S', ["body", "value"], Shown::Length),
    ('h', ["properties", "headers"], Shown::Plain),
];

#[derive(Debug)]
enum FormatPart {
    Text(Vec<u8>),
    Column(String, Shown),
}

/// The format of a row, as a user writes it: `%` with a letter or with the name of a column in braces, `%%`, and the escapes `\n`, `\t`,
/// `\r`, `\0`, `\\` and `\x1f`. Unless it ends with an escape, each row ends with a line break.
#[derive(Debug)]
pub(crate) struct RowFormat(Vec<FormatPart>);

impl RowFormat {
    /// Parses a format for rows with columns of these names.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] with the letters for another letter or escape. A name in braces is not checked.
    pub(crate) fn parse(text: &str, names: &[&str]) -> Result<Self> {
        let refused = |found: &str| {
            let letters = LETTERS.map(|(letter, [of_messages, of_records], shown)| {
                let name = if of_messages == of_records {
                    of_records.to_owned()
                } else {
                    format!("{of_messages} or {of_records}")
                };
                format!("%{letter} {}{name}", if shown == Shown::Length { "bytes of " } else { "" })
            });
            let known = letters.join(", ");
            let text = format!(
                "format {text:?}: expected {known}, %{{column}}, %%, \\n \\t \\r \\0 \\\\ \\xHH, found {found}"
            );
            Error::InvalidArgument(text)
        };
        let mut parts = vec![];
        let mut plain = Vec::new();
        let mut ends_with_escape = false;
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            ends_with_escape = letter == '\\';
            if letter == '\\' {
                let escaped = letters.next();
                plain.push(match escaped {
                    Some('n') => b'\n',
                    Some('t') => b'\t',
                    Some('r') => b'\r',
                    Some('0') => 0,
                    Some('\\') => b'\\',
                    Some('x') => {
                        let digits: String = letters.by_ref().take(2).collect();
                        let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                        let byte = u8::from_str_radix(&digits, 16).ok().filter(|_| is_hex);
                        byte.ok_or_else(|| refused(&format!("\\x{digits}")))?
                    }
                    _ => {
                        return Err(refused(
                            &escaped.map_or("a \\ at the end".to_owned(), |found| format!("\\{found}")),
                        ));
                    }
                });
                continue;
            }
            if letter != '%' {
                plain.extend(letter.encode_utf8(&mut [0; 4]).bytes());
                continue;
            }
            let column = match letters.next() {
                Some('%') => {
                    plain.push(b'%');
                    continue;
                }
                Some('{') => {
                    let (name, rest) = letters.as_str().split_once('}').ok_or_else(|| refused("%{ without }"))?;
                    letters = rest.chars();
                    FormatPart::Column(name.to_owned(), Shown::Value)
                }
                Some(found) => {
                    let known = LETTERS.into_iter().find(|(letter, ..)| *letter == found);
                    let (_, [of_messages, of_records], shown) = known.ok_or_else(|| refused(&format!("%{found}")))?;
                    let name = if names.contains(&of_messages) { of_messages } else { of_records };
                    FormatPart::Column(name.to_owned(), shown)
                }
                None => return Err(refused("a % at the end")),
            };
            parts.push(FormatPart::Text(std::mem::take(&mut plain)));
            parts.push(column);
        }
        if !ends_with_escape {
            plain.push(b'\n');
        }
        parts.push(FormatPart::Text(plain));
        Ok(Self(parts))
    }

    /// Returns the names of the columns that it shows, each once.
    pub(crate) fn columns(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for part in &self.0 {
            match part {
                FormatPart::Column(name, _) if !names.contains(&name.as_str()) => names.push(name.as_str()),
                FormatPart::Column(..) | FormatPart::Text(_) => (),
            }
        }
        names
    }
}

/// Writes the rows of a batch in a format, in pieces of whole rows. Null is nothing; a null header is `NULL`, as in kcat.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a missing column or one of another type; the first error of `write`, which is not called again.
pub(crate) fn format_rows<E: From<Error>>(
    batch: &RecordBatch,
    format: &RowFormat,
    zone: Zone<'_>,
    mut write: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let columns = columns(batch)?;
    let mut parts = Vec::new();
    for part in &format.0 {
        parts.push(match part {
            FormatPart::Text(text) => (text.as_slice(), None),
            FormatPart::Column(name, shown) => {
                let cells = columns.iter().find(|(known, _)| known == name).map(|(_, cells)| cells);
                let missing = || Error::InvalidArgument(format!("format: the rows have no column {name}"));
                (&[][..], Some((cells.ok_or_else(missing)?, *shown)))
            }
        });
    }
    let mut piece = Vec::new();
    for row in 0..batch.num_rows() {
        for (text, column) in &parts {
            piece.extend_from_slice(text);
            if let Some((cells, shown)) = column {
                cells.formatted(&mut piece, row, *shown, zone);
            }
        }
        if piece.len() >= PIECE_LEN || row + 1 == batch.num_rows() {
            write(&piece)?;
            piece.clear();
        }
    }
    Ok(())
}

impl Cells<'_> {
    fn formatted(&self, piece: &mut Vec<u8>, row: usize, shown: Shown, zone: Zone<'_>) {
        let value = self.bytes(row);
        match (self, shown) {
            (_, Shown::Length) => {
                let length = value.map_or_else(|| "-1".to_owned(), |value| value.len().to_string());
                piece.extend_from_slice(length.as_bytes());
            }
            (Self::Text(_) | Self::Bytes(_) | Self::Decoded(_), _) => {
                piece.extend_from_slice(value.unwrap_or_default());
            }
            (Self::Map(..) | Self::Headers(..) | Self::Texts(..), _) => {
                let mut is_first = true;
                self.each_pair(row, |name, value| {
                    piece.extend_from_slice(if is_first { b"" } else { b"," });
                    if let Some(name) = name {
                        piece.extend_from_slice(name.as_bytes());
                        piece.push(b'=');
                    }
                    piece.extend_from_slice(value.unwrap_or(b"NULL"));
                    is_first = false;
                });
            }
            (_, _) if !self.array().is_valid(row) => (),
            (Self::Time(times), Shown::Value) => piece.extend_from_slice(zoned_text(times.value(row), zone).as_bytes()),
            (Self::Flag(_) | Self::Int32(_) | Self::Int64(_) | Self::Time(_), _) => {
                let mut text = String::new();
                // Writing to a String cannot fail.
                let _ = self.json_value(&mut text, row);
                piece.extend_from_slice(text.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod text_lines_tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BinaryArray, Int32Array, Int64Array, StringArray, StructArray, TimestampMillisecondArray,
    };
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;

    use super::*;

    fn lines(columns: Vec<(&str, ArrayRef)>) -> String {
        let mut text = String::new();
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        text_lines::<Error>(&batch, false, None, |piece| {
            text += piece;
            Ok(())
        })
        .unwrap();
        text
    }

    #[test]
    fn a_message_is_a_line_with_its_body_below() {
        let long = format!("two\nlines{}", "x".repeat(2_001));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("topic", Arc::new(StringArray::from(vec!["T"; 4]))),
            ("queue_id", Arc::new(Int32Array::from(vec![1; 4]))),
            ("queue_offset", Arc::new(Int64Array::from(vec![2; 4]))),
            ("phy_offset", Arc::new(Int64Array::from(vec![3; 4]))),
            ("store_timestamp", Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, Some(0), Some(0)]))),
            ("keys", Arc::new(StringArray::from(vec![Some("k\nl"), None, None, None]))),
            (
                "body",
                Arc::new(BinaryArray::from_opt_vec(vec![None, Some(b"\xff\0"), Some(long.as_bytes()), Some(b"text")])),
            ),
            ("body_error", Arc::new(StringArray::from(vec![Some("why"), None, None, None]))),
        ];
        let expected = format!(
            "1970-01-01T00:00:00.000Z  T/1@2  phy 3  keys=\"k\\nl\"\n    (why)\n\
             -  T/1@2  phy 3\n    (2 bytes, no text) ff 00\n\
             1970-01-01T00:00:00.000Z  T/1@2  phy 3\n    two\n    lines{}\n    (10 more; --json gives all)\n\
             1970-01-01T00:00:00.000Z  T/1@2  phy 3\n    text\n",
            "x".repeat(1_991)
        );
        assert_eq!(lines(columns), expected);
    }

    #[test]
    fn a_record_is_a_line_with_its_value_below() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("topic", Arc::new(StringArray::from(vec!["t"]))),
            ("partition", Arc::new(Int32Array::from(vec![0]))),
            ("offset", Arc::new(Int64Array::from(vec![7]))),
            ("timestamp", Arc::new(TimestampMillisecondArray::from(vec![-1]))),
            ("key", Arc::new(BinaryArray::from_opt_vec(vec![None]))),
            ("value", Arc::new(BinaryArray::from_vec(vec![&[0xff; 3_000]]))),
        ];
        let value = vec!["ff"; 1_000].join(" ");
        let expected = format!("1969-12-31T23:59:59.999Z  t-0@7  key=null\n    {value} (2,000 more)\n");
        assert_eq!(lines(columns), expected);
    }

    fn headers(pairs: &[(&str, Option<&[u8]>)]) -> ListArray {
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(pairs.iter().map(|(name, _)| name)));
        let values: ArrayRef = Arc::new(pairs.iter().map(|(_, value)| *value).collect::<BinaryArray>());
        let fields = [("key", DataType::Utf8), ("value", DataType::Binary)];
        let fields: Vec<_> = fields.map(|(name, kind)| Arc::new(Field::new(name, kind, true))).to_vec();
        let pairs = StructArray::new(fields.clone().into(), vec![names, values], None);
        let item = Arc::new(Field::new("element", DataType::Struct(fields.into()), true));
        ListArray::new(item, OffsetBuffer::from_lengths([pairs.len()]), Arc::new(pairs), None)
    }

    /// A record, with its headers.
    fn record(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        pairs: &[(&str, Option<&[u8]>)],
    ) -> Vec<(&'static str, ArrayRef)> {
        vec![
            ("topic", Arc::new(StringArray::from(vec!["t"]))),
            ("partition", Arc::new(Int32Array::from(vec![0]))),
            ("offset", Arc::new(Int64Array::from(vec![7]))),
            ("timestamp", Arc::new(TimestampMillisecondArray::from(vec![5]))),
            ("key", Arc::new(BinaryArray::from_opt_vec(vec![key]))),
            ("value", Arc::new(BinaryArray::from_opt_vec(vec![value]))),
            ("headers", Arc::new(headers(pairs))),
        ]
    }

    #[test]
    fn a_value_is_in_quotation_marks_where_it_needs_them() {
        for (value, expected) in [
            (None, "null"),
            (Some("null"), "\"null\""),
            (Some("nullable"), "nullable"),
            (Some(""), "\"\""),
            (Some("a=b"), "a=b"),
            (Some("a b"), "\"a b\""),
            (Some("a\tb\\"), "\"a\tb\\\\\""),
            (Some("\"a\""), "\"\\\"a\\\"\""),
        ] {
            assert_eq!(in_line(value.map(str::as_bytes)), expected);
        }
        assert_eq!(in_line(Some(b"\xff \0")), "ff 20 00");
        let labelled = record(Some(b"null"), Some(b"null"), &[("key", Some(b"a b")), ("x", None)]);
        assert_eq!(
            lines(labelled),
            "1970-01-01T00:00:00.005Z  t-0@7  key=\"null\"  header.key=\"a b\"  header.x=null\n    \"null\"\n"
        );
        let plain = record(None, None, &[]);
        assert_eq!(lines(plain), "1970-01-01T00:00:00.005Z  t-0@7  key=null\n    null\n");
        assert!(lines(record(None, Some(b"a b"), &[])).ends_with("\n    a b\n"));
    }

    #[test]
    fn chosen_columns_are_fields() {
        let batch = RecordBatch::try_from_iter(record(None, Some(b"a b"), &[("x", None), ("y", Some(b"z"))])).unwrap();
        let mut text = String::new();
        text_lines::<Error>(&batch, true, Some(&|_| 3_600_000), |piece| {
            text += piece;
            Ok(())
        })
        .unwrap();
        assert_eq!(
            text,
            "topic=t  partition=0  offset=7  timestamp=1970-01-01T01:00:00.005+01:00  key=null  value=\"a b\"  headers={x=null y=z}\n"
        );
    }

    fn formatted(format: &str) -> Result<Vec<u8>> {
        let batch = RecordBatch::try_from_iter(record(Some(b"\xff"), None, &[("x", None), ("y", Some(b"z"))])).unwrap();
        let names: Vec<String> = batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect();
        let format = RowFormat::parse(format, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let mut bytes = Vec::new();
        format_rows::<Error>(&batch, &format, Some(&|_| -60_000), |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    #[test]
    fn a_format_is_that_of_kcat() {
        for (format, expected) in [
            ("%t %p %o %T", &b"t 0 7 5\n"[..]),
            ("%k,%K,%s,%S,%h", b"\xff,1,,-1,x=NULL,y=z\n"),
            ("%t\\n", b"t\n"),
            ("%t\\t\\r\\0\\\\\\x7F", b"t\t\r\0\\\x7f"),
            ("%%%{timestamp}|%{partition}|%{headers}", b"%1969-12-31T23:59:00.005-00:01|0|x=NULL,y=z\n"),
            ("\u{e9}", b"\xc3\xa9\n"),
            ("", b"\n"),
        ] {
            assert_eq!(formatted(format).unwrap(), expected, "{format}");
        }
        for (format, found) in [
            ("%z", "%z"),
            ("%", "a % at the end"),
            ("\\", "a \\ at the end"),
            ("\\q", "\\q"),
            ("%\u{7b}t", "%\u{7b} without \u{7d}"),
            ("\\x+1", "\\x+1"),
            ("\\x1", "\\x1"),
        ] {
            let refused = formatted(format).unwrap_err().to_string();
            assert!(refused.ends_with(&format!("found {found}")), "{refused}");
            assert!(refused.contains("expected %t topic, %p queue_id or partition, "), "{refused}");
        }
        assert_eq!(formatted("%{x}").unwrap_err().to_string(), "format: the rows have no column x");
        assert_eq!(RowFormat::parse("%t%t %k%%%{a}", &["key"]).unwrap().columns(), ["topic", "key", "a"]);
    }
}
