//! From messages to index entries: the rules of the broker's dispatcher (upstream `IndexService#buildIndex`).
//!
//! One message gives, in this order, an entry for its unique key, one for each of its space-separated keys, and with
//! `tags` (as 5.5.0 does) one for `T#` and the whole tags text. Nothing is removed that comes twice. A message that was
//! rolled back gives none, nor does one that lies before the end of what is indexed already.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, StringBuilder, TimestampMillisecondBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::commit_log::columns::timestamp_type;
use super::commit_log::frame::{TRANSACTION_ROLLBACK, TRANSACTION_TYPE};
use crate::error::{Error, Result};

/// Between two keys of a message; no other character is (upstream `MessageConst.KEY_SEPARATOR`).
const KEY_SEPARATOR: char = ' ';
/// What the key of a tags entry begins with.
const TAG_MARK: &str = "T#";

/// The index entries of a batch of messages.
///
/// Columns read: `topic`, `phy_offset`, `store_timestamp` (ms; other units round down; or integers of ms), `sys_flag`,
/// `uniq_key`, `keys`, and `tags` when `tags` is set. Texts are utf8 or `large_utf8`.
///
/// A message before `end_phy_offset` (the header field of the newest index file) is left out; the bound moves to each
/// message that gave an entry. A message at the bound itself is indexed again, as in the broker.
///
/// Columns of the answer: `topic`, `key`, `phy_offset`, `store_timestamp`, and `row`, the number of the message in the
/// batch. Index keys are `topic#key`.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, of another type, or null where a message must have a value.
pub fn index_entries(messages: &RecordBatch, end_phy_offset: i64, tags: bool) -> Result<RecordBatch> {
    let topic = Texts::of(messages, "topic")?;
    let uniq_key = Texts::of(messages, "uniq_key")?;
    let keys = Texts::of(messages, "keys")?;
    let tag_text = if tags { Some(Texts::of(messages, "tags")?) } else { None };
    let phy_offset = integers(messages, "phy_offset")?;
    let store_timestamp = times(messages, "store_timestamp")?;
    let sys_flag = column(messages, "sys_flag")?;
    let sys_flag = sys_flag.as_primitive_opt::<Int32Type>().ok_or_else(|| wrong("sys_flag", sys_flag, "int32"))?;

    let mut entries = Entries::default();
    let mut end = end_phy_offset;
    for row in 0..messages.num_rows() {
        let offset = phy_offset(row).ok_or_else(|| null("phy_offset", row))?;
        if sys_flag.is_null(row) {
            return Err(null("sys_flag", row));
        }
        if offset < end || sys_flag.value(row) & TRANSACTION_TYPE == TRANSACTION_ROLLBACK {
            continue;
        }
        let unique = uniq_key.get(row).into_iter();
        let user = keys.get(row).unwrap_or_default().split(KEY_SEPARATOR).filter(|key| !key.is_empty());
        let tag = tag_text.as_ref().and_then(|tags| tags.get(row)).filter(|tags| !tags.is_empty());
        let mut found = unique.chain(user).map(|key| ("", key)).chain(tag.map(|tag| (TAG_MARK, tag))).peekable();
        if found.peek().is_none() {
            continue;
        }
        let topic = topic.get(row).ok_or_else(|| null("topic", row))?;
        let time = store_timestamp(row).ok_or_else(|| null("store_timestamp", row))?;
        let number =
            i32::try_from(row).map_err(|_| Error::InvalidArgument("the batch has too many rows".to_owned()))?;
        for (mark, key) in found {
            entries.add(topic, mark, key, offset, time, number);
        }
        end = offset;
    }
    Ok(entries.finish())
}

#[derive(Default)]
struct Entries {
    topic: StringBuilder,
    key: StringBuilder,
    phy_offset: Int64Builder,
    store_timestamp: TimestampMillisecondBuilder,
    row: Int32Builder,
    marked: String,
}

impl Entries {
    fn add(&mut self, topic: &str, mark: &str, key: &str, phy_offset: i64, store_timestamp: i64, row: i32) {
        self.topic.append_value(topic);
        if mark.is_empty() {
            self.key.append_value(key);
        } else {
            self.marked.clear();
            self.marked.push_str(mark);
            self.marked.push_str(key);
            self.key.append_value(&self.marked);
        }
        self.phy_offset.append_value(phy_offset);
        self.store_timestamp.append_value(store_timestamp);
        self.row.append_value(row);
    }

    fn finish(mut self) -> RecordBatch {
        let fields = [
            ("topic", DataType::Utf8),
            ("key", DataType::Utf8),
            ("phy_offset", DataType::Int64),
            ("store_timestamp", timestamp_type()),
            ("row", DataType::Int32),
        ];
        let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.topic.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.phy_offset.finish()),
            Arc::new(self.store_timestamp.finish().with_timezone("UTC")),
            Arc::new(self.row.finish()),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).expect("every entry adds one row to every column")
    }
}

fn null(column: &str, row: usize) -> Error {
    Error::InvalidArgument(format!("messages: {column} of row {row} is null"))
}

fn wrong(column: &str, array: &ArrayRef, wanted: &str) -> Error {
    Error::InvalidArgument(format!("messages: {column} is {}, not {wanted}", array.data_type()))
}

fn column<'a>(messages: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    messages.column_by_name(name).ok_or_else(|| Error::InvalidArgument(format!("messages: there is no column {name}")))
}

/// A column of texts.
enum Texts<'a> {
    Utf8(&'a arrow_array::StringArray),
    LargeUtf8(&'a arrow_array::LargeStringArray),
    View(&'a arrow_array::StringViewArray),
    Null,
}

impl<'a> Texts<'a> {
    fn of(messages: &'a RecordBatch, name: &str) -> Result<Self> {
        let array = column(messages, name)?;
        match array.data_type() {
            DataType::Utf8 => Ok(Self::Utf8(array.as_string())),
            DataType::LargeUtf8 => Ok(Self::LargeUtf8(array.as_string())),
            DataType::Utf8View => Ok(Self::View(array.as_string_view())),
            DataType::Null => Ok(Self::Null),
            _ => Err(wrong(name, array, "text")),
        }
    }

    fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Utf8(a) => a.is_valid(row).then(|| a.value(row)),
            Self::LargeUtf8(a) => a.is_valid(row).then(|| a.value(row)),
            Self::View(a) => a.is_valid(row).then(|| a.value(row)),
            Self::Null => None,
        }
    }
}

/// Reads one row of a column.
type Get<'a> = Box<dyn Fn(usize) -> Option<i64> + 'a>;

fn integers<'a>(messages: &'a RecordBatch, name: &str) -> Result<Get<'a>> {
    let array = column(messages, name)?;
    let values = array.as_primitive_opt::<Int64Type>().ok_or_else(|| wrong(name, array, "int64"))?;
    Ok(Box::new(|row| values.is_valid(row).then(|| values.value(row))))
}

fn times<'a>(messages: &'a RecordBatch, name: &str) -> Result<Get<'a>> {
    let array = column(messages, name)?;
    let DataType::Timestamp(unit, _) = array.data_type() else {
        return integers(messages, name).map_err(|_| wrong(name, array, "a timestamp"));
    };
    Ok(match unit {
        TimeUnit::Second => {
            let values = array.as_primitive::<TimestampSecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row).saturating_mul(1000)))
        }
        TimeUnit::Millisecond => {
            let values = array.as_primitive::<TimestampMillisecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row)))
        }
        TimeUnit::Microsecond => {
            let values = array.as_primitive::<TimestampMicrosecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row).div_euclid(1000)))
        }
        TimeUnit::Nanosecond => {
            let values = array.as_primitive::<TimestampNanosecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row).div_euclid(1_000_000)))
        }
    })
}

#[cfg(test)]
#[path = "index_entries_tests.rs"]
mod tests;
