//! Keys in Arrow columns, with their topics where these are columns of their own.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, StringArray};
use arrow_buffer::NullBuffer;

use super::java_hash::{KeySource, carry_utf8};
use super::text_keys::TextKeys;

/// A column of keys or of topics.
#[derive(Clone, Debug)]
pub enum KeyColumn {
    /// UTF-8.
    Text(StringArray),
    /// UTF-8 that may be malformed.
    Bytes(BinaryArray),
    /// Hashes of whole index keys.
    Hashes(Int32Array),
}

impl KeyColumn {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.as_array().len()
    }

    /// True when there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The Arrow array, as a reference.
    pub fn as_array(&self) -> &dyn Array {
        match self {
            Self::Text(a) => a,
            Self::Bytes(a) => a,
            Self::Hashes(a) => a,
        }
    }

    /// The Arrow array.
    pub fn into_array(self) -> ArrayRef {
        match self {
            Self::Text(a) => Arc::new(a),
            Self::Bytes(a) => Arc::new(a),
            Self::Hashes(a) => Arc::new(a),
        }
    }

    fn bytes(&self, row: usize) -> &[u8] {
        match self {
            Self::Text(a) => a.value(row).as_bytes(),
            Self::Bytes(a) => a.value(row),
            Self::Hashes(_) => &[],
        }
    }
}

/// The topics of a batch of keys.
#[derive(Clone, Debug)]
pub enum Topics {
    /// Each key is a whole index key, `topic#key`.
    InKey,
    /// One topic for all keys, as the `hashCode` of `topic#`.
    One(i32),
    /// A topic for each key.
    Column(KeyColumn),
}

impl Topics {
    /// One topic for all keys.
    pub fn one(topic: &[u8]) -> Self {
        Self::One(carry_topic(topic))
    }
}

/// The keys of a batch call. A row without a key or topic is null.
#[derive(Clone, Debug)]
pub struct Keys {
    column: KeyColumn,
    topics: Topics,
    nulls: Option<NullBuffer>,
}

impl Keys {
    /// Joins keys with their topics. The columns have the same length.
    pub fn new(keys: KeyColumn, topics: Topics) -> Self {
        let of_topics = match &topics {
            Topics::Column(column) => column.as_array().nulls(),
            Topics::InKey | Topics::One(_) => None,
        };
        let nulls = NullBuffer::union(keys.as_array().nulls(), of_topics).filter(|nulls| nulls.null_count() > 0);
        Self { column: keys, topics, nulls }
    }

    /// Rows without a key or a topic.
    pub fn nulls(&self) -> Option<&NullBuffer> {
        self.nulls.as_ref()
    }

    /// The first row without a key or a topic.
    pub fn first_null(&self) -> Option<usize> {
        let nulls = self.nulls.as_ref()?;
        (0..nulls.len()).find(|&row| nulls.is_null(row))
    }

    /// Hashes of all keys; null where the key or topic is null.
    pub fn hashes(&self) -> Int32Array {
        let mut hashes = vec![0; self.len()];
        self.hash_rows(0, &mut hashes);
        Int32Array::new(hashes.into(), self.nulls.clone())
    }

    fn hash_rows(&self, start: usize, hashes: &mut [i32]) {
        match &self.column {
            KeyColumn::Text(keys) => self.hash_texts(keys.value_data(), keys.value_offsets(), start, hashes),
            KeyColumn::Bytes(keys) => self.hash_texts(keys.value_data(), keys.value_offsets(), start, hashes),
            KeyColumn::Hashes(known) => {
                for (to, hash) in hashes.iter_mut().zip(known.values().iter().skip(start)) {
                    *to = *hash;
                }
            }
        }
    }

    fn hash_texts(&self, text: &[u8], ends: &[i32], start: usize, hashes: &mut [i32]) {
        let keys = |carry| TextKeys { carry, text, ends };
        match &self.topics {
            Topics::InKey => keys(0).hash_block(start, hashes),
            Topics::One(carried) => keys(*carried).hash_block(start, hashes),
            Topics::Column(column) => {
                for (at, hashes) in (start..).step_by(TOPICS).zip(hashes.chunks_mut(TOPICS)) {
                    let mut carries = [0; TOPICS];
                    carry_topics(column, at, &mut carries);
                    keys(0).hash_behind(&carries, at, hashes);
                }
            }
        }
    }
}

/// A row without a key has a hash below 0.
impl KeySource for Keys {
    fn len(&self) -> usize {
        self.column.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        self.hash_rows(start, hashes);
        if let Some(nulls) = &self.nulls {
            for (hash, row) in hashes.iter_mut().zip(start..) {
                if nulls.is_null(row) {
                    *hash = -1;
                }
            }
        }
    }
}

/// Rows whose topics are hashed together.
const TOPICS: usize = 32;

/// Returns `hashCode` of `topic#` for each row from `start` on. Consecutive rows often have one topic: it is hashed once.
fn carry_topics(column: &KeyColumn, start: usize, hashes: &mut [i32]) {
    let mut before: Option<(&[u8], i32)> = None;
    for (to, row) in hashes.iter_mut().zip(start..column.len()) {
        let topic = column.bytes(row);
        *to = match before {
            Some((same, carried)) if same == topic => carried,
            _ => carry_topic(topic),
        };
        before = Some((topic, *to));
    }
}

fn carry_topic(topic: &[u8]) -> i32 {
    carry_utf8(carry_utf8(0, topic), b"#")
}
