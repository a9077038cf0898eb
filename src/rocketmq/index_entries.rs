//! The keys of a message, and the index entries that they need: the rules of the broker's dispatcher (upstream
//! `IndexService#buildIndex`).
//!
//! The keys of a message are, in this order, its unique key, each of its space-separated keys, and with `tags` (as 5.5.0 indexes
//! them) `T#` followed by the whole tags text. Duplicate keys are kept. Only [`KeyTexts`] implements this rule: it makes the
//! index entries, and it decides whether a message carries a key.
//!
//! A message that was rolled back needs no entry. Neither does a message before the end of what is already indexed.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, StringBuilder, TimestampMillisecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::commit_log::columns::timestamp_type;
use super::commit_log::frame::{Frame, TRANSACTION_ROLLBACK, TRANSACTION_TYPE};
use super::commit_log::properties;
use crate::arrow::input_columns::{Int32s, Texts, integers, null, times};
use crate::error::{Error, Result};
use crate::hash_index::{carry_utf8, finish};
use crate::java_text::decode_utf8;

/// The message columns that index entries are made of.
pub const INDEXED_COLUMNS: [&str; 7] =
    ["topic", "phy_offset", "store_timestamp", "uniq_key", "keys", "tags", "sys_flag"];

/// Separates the keys of a message; no other character does (upstream `MessageConst.KEY_SEPARATOR`).
const KEY_SEPARATOR: char = ' ';
/// The prefix of the key of a tags entry.
pub const TAGS_PREFIX: &str = "T#";

/// Returns whether a broker indexes a message with this `sys_flag`: not if its transaction was rolled back.
pub fn is_indexed(sys_flag: i32) -> bool {
    sys_flag & TRANSACTION_TYPE != TRANSACTION_ROLLBACK
}

/// The three properties of a message that hold its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTexts<'a> {
    /// The producer's message id.
    pub uniq_key: Option<Cow<'a, str>>,
    /// The space-separated keys.
    pub keys: Option<Cow<'a, str>>,
    /// The tags.
    pub tags: Option<Cow<'a, str>>,
}

impl<'a> KeyTexts<'a> {
    /// Reads them from the raw properties of a frame.
    pub fn of_properties(bytes: &'a [u8]) -> Self {
        let [uniq_key, tags, keys] = properties::key_values(bytes).map(|value| value.map(decode_utf8));
        Self { uniq_key, keys, tags }
    }

    /// The keys of the message, each as a prefix and the text after it.
    fn marked_keys(&self, tags: bool) -> impl Iterator<Item = (&'static str, &str)> {
        let unique = self.uniq_key.as_deref().into_iter();
        let user = self.keys.as_deref().unwrap_or_default().split(KEY_SEPARATOR).filter(|key| !key.is_empty());
        let tag = self.tags.as_deref().filter(|text| tags && !text.is_empty());
        unique.chain(user).map(|key| ("", key)).chain(tag.map(|tag| (TAGS_PREFIX, tag)))
    }

    /// The unique key and the space-separated keys of the message, without its tags.
    pub fn plain_keys(&self) -> impl Iterator<Item = &str> {
        self.marked_keys(false).map(|(_, key)| key)
    }

    /// Returns whether the message carries a key; its tags count as a key if `tags` is set. An empty key is never carried.
    pub fn carries(&self, key: &str, tags: bool) -> bool {
        !key.is_empty() && self.marked_keys(tags).any(|(mark, text)| key.strip_prefix(mark) == Some(text))
    }

    /// Returns whether the message has tags that 5.5.0 indexes.
    pub fn has_tags(&self) -> bool {
        self.tags.as_ref().is_some_and(|tags| !tags.is_empty())
    }

    /// Returns whether the message has a key whose index key `topic#key` has this hash.
    pub fn has_hash(&self, topic: &str, key_hash: i32, tags: bool) -> bool {
        self.marked_keys(tags).any(|(mark, text)| hash_of([topic, "#", mark, text]) == key_hash)
    }
}

/// Returns the index hash of a key whose parts are passed separately.
fn hash_of(parts: [&str; 4]) -> i32 {
    finish(parts.into_iter().fold(0, |hash, part| carry_utf8(hash, part.as_bytes())))
}

/// Returns the index entries of a batch of messages.
///
/// Columns read: `topic`, `phy_offset`, `store_timestamp` (ms; other units round down; or integers of ms), `sys_flag`,
/// `uniq_key`, `keys`, and `tags` when `tags` is set. Texts are utf8 or `large_utf8`.
///
/// A message before `end_phy_offset` (the header field of the newest index file) is left out. The bound moves to each message
/// that has an entry. A message at the bound itself is indexed again, as in the broker.
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

/// Returns how many messages of a batch have index entries; see [`index_entries`].
///
/// # Errors
/// As [`index_entries`].
pub fn indexed_messages(messages: &RecordBatch, tags: bool) -> Result<usize> {
    let (mut count, mut last) = (0, None);
    for_each_key(messages, 0, tags, |key| {
        count += usize::from(last != Some(key.row));
        last = Some(key.row);
    })?;
    Ok(count)
}

/// One key of a message that the index has an entry for.
pub(super) struct IndexKey<'a> {
    pub(super) topic: &'a str,
    /// The prefix of the key.
    mark: &'static str,
    key: &'a str,
    pub(super) phy_offset: i64,
    store_timestamp: i64,
    row: i32,
}

impl IndexKey<'_> {
    /// The hash of the whole index key, `topic#key`.
    pub(super) fn hash(&self) -> i32 {
        hash_of([self.topic, "#", self.mark, self.key])
    }

    /// The key without the topic.
    pub(super) fn text(&self) -> String {
        [self.mark, self.key].concat()
    }
}

/// Calls `take` with each key of a batch of messages, in the order of their entries; see [`index_entries`].
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
        if offset < end || !is_indexed(sys_flag.get(row)?) {
            continue;
        }
        let texts = KeyTexts {
            uniq_key: uniq_key.get(row).map(Cow::Borrowed),
            keys: keys.get(row).map(Cow::Borrowed),
            tags: tag_text.as_ref().and_then(|tags| tags.get(row)).map(Cow::Borrowed),
        };
        let mut found = texts.marked_keys(tags).peekable();
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

/// Calls `take` with each key of a message that a broker indexes, in the order of their entries.
pub(super) fn for_each_key_of_frame(
    frame: &Frame<'_>,
    texts: &KeyTexts<'_>,
    phy_offset: i64,
    tags: bool,
    mut take: impl FnMut(IndexKey<'_>),
) {
    if !is_indexed(frame.sys_flag()) {
        return;
    }
    let topic = decode_utf8(frame.topic());
    for (mark, key) in texts.marked_keys(tags) {
        let store_timestamp = frame.store_timestamp();
        take(IndexKey { topic: &topic, mark, key, phy_offset, store_timestamp, row: 0 });
    }
}

/// Index entries that grow one by one.
#[derive(Default)]
pub(super) struct Entries {
    topic: StringBuilder,
    key: StringBuilder,
    phy_offset: Int64Builder,
    store_timestamp: TimestampMillisecondBuilder,
    row: Int32Builder,
    marked: String,
}

impl Entries {
    pub(super) fn add(&mut self, key: &IndexKey<'_>) {
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

    pub(super) fn finish(mut self) -> RecordBatch {
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
