//! From messages to index entries: the rules of the broker's dispatcher (upstream `IndexService#buildIndex`).
//!
//! One message gives, in this order, an entry for its unique key, one for each of its space-separated keys, and with
//! `tags` (as 5.5.0 does) one for `T#` and the whole tags text. Nothing is removed that comes twice. A message that was
//! rolled back gives none, nor does one that lies before the end of what is indexed already.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, StringBuilder, TimestampMillisecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::commit_log::columns::timestamp_type;
use super::commit_log::frame::{TRANSACTION_ROLLBACK, TRANSACTION_TYPE};
use super::message_columns::{Int32s, Texts, integers, null, times};
use crate::error::{Error, Result};
use crate::hash_index::{carry_utf8, finish};

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
    let mut entries = Entries::default();
    for_each_key(messages, end_phy_offset, tags, |key| entries.add(&key))?;
    Ok(entries.finish())
}

/// One key of a message that the index has an entry for.
pub(super) struct IndexKey<'a> {
    pub(super) topic: &'a str,
    /// Stands before the key.
    mark: &'static str,
    key: &'a str,
    pub(super) phy_offset: i64,
    store_timestamp: i64,
    row: i32,
}

impl IndexKey<'_> {
    /// The hash of the whole index key, `topic#key`.
    pub(super) fn hash(&self) -> i32 {
        let parts = [self.topic, "#", self.mark, self.key];
        finish(parts.into_iter().fold(0, |hash, part| carry_utf8(hash, part.as_bytes())))
    }

    /// The key behind the topic.
    pub(super) fn text(&self) -> String {
        [self.mark, self.key].concat()
    }
}

/// Gives `take` the keys of a batch of messages in the order of their entries; see [`index_entries`].
pub(super) fn for_each_key(
    messages: &RecordBatch,
    end_phy_offset: i64,
    tags: bool,
    mut take: impl FnMut(IndexKey<'_>),
) -> Result<()> {
    let topic = Texts::of(messages, "topic")?;
    let uniq_key = Texts::of(messages, "uniq_key")?;
    let keys = Texts::of(messages, "keys")?;
    let tag_text = if tags { Some(Texts::of(messages, "tags")?) } else { None };
    let phy_offset = integers(messages, "phy_offset")?;
    let store_timestamp = times(messages, "store_timestamp")?;
    let sys_flag = Int32s::of(messages, "sys_flag")?;

    let mut end = end_phy_offset;
    for row in 0..messages.num_rows() {
        let offset = phy_offset(row).ok_or_else(|| null("phy_offset", row))?;
        if offset < end || sys_flag.get(row)? & TRANSACTION_TYPE == TRANSACTION_ROLLBACK {
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
            take(IndexKey { topic, mark, key, phy_offset: offset, store_timestamp: time, row: number });
        }
        end = offset;
    }
    Ok(())
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
    fn add(&mut self, key: &IndexKey<'_>) {
        self.topic.append_value(key.topic);
        if key.mark.is_empty() {
            self.key.append_value(key.key);
        } else {
            self.marked.clear();
            self.marked.push_str(key.mark);
            self.marked.push_str(key.key);
            self.key.append_value(&self.marked);
        }
        self.phy_offset.append_value(key.phy_offset);
        self.store_timestamp.append_value(key.store_timestamp);
        self.row.append_value(key.row);
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

#[cfg(test)]
#[path = "index_entries_tests.rs"]
mod tests;
