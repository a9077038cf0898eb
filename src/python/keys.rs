//! Keys of a batch call, and the lists of offsets that answer them.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Int32Array, Int64Array, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert;
use super::key_column::KeyColumn;
use crate::error::Result;
use crate::hash_index::{self, Damage, Hits, KeySource, TextKeys};

/// Keys of a batch, with their topics where these come apart.
pub(super) struct Keys {
    keys: KeyColumn,
    topics: Topics,
}

enum Topics {
    InKey,
    /// `hashCode` of `topic#`.
    One(i32),
    Column(KeyColumn),
}

impl Keys {
    pub(super) fn new(keys: &Bound<'_, PyAny>, topics: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(topics) = topics else {
            return Ok(Self { keys: KeyColumn::of_keys(keys)?, topics: Topics::InKey });
        };
        let keys = KeyColumn::of_text(keys, "keys")?;
        let topics = match topics.cast::<PyString>() {
            Ok(topic) => Topics::One(carry_topic(topic.to_cow()?.as_bytes())),
            Err(_) => Topics::Column(KeyColumn::of_text(topics, "topics")?),
        };
        if let Topics::Column(column) = &topics
            && column.len() != keys.len()
        {
            return Err(PyValueError::new_err(format!(
                "columns differ in length: {} keys, {} topics",
                keys.len(),
                column.len()
            )));
        }
        Ok(Self { keys, topics })
    }

    /// The first row without a key or a topic.
    pub(super) fn first_null(&self) -> Option<usize> {
        let topic = match &self.topics {
            Topics::Column(column) => column.first_null(),
            Topics::InKey | Topics::One(_) => None,
        };
        [topic, self.keys.first_null()].into_iter().flatten().min()
    }

    /// Hashes of all keys; null where the key or topic is null.
    pub(super) fn hashes(&self) -> Int32Array {
        let mut hashes = vec![0; self.len()];
        self.hash_block(0, &mut hashes);
        Int32Array::new(hashes.into(), self.nulls())
    }

    fn is_null(&self, row: usize) -> bool {
        let no_topic = matches!(&self.topics, Topics::Column(column) if column.is_null(row));
        no_topic || self.keys.is_null(row)
    }

    /// Runs a select over the keys and gives its answers as an Arrow list column; a row without a key is null.
    pub(super) fn select<D>(
        &self,
        run: impl FnOnce(&Asked<'_>, &mut Hits) -> Result<Option<D>>,
    ) -> Result<(ListArray, Option<D>)> {
        let asked = Asked { keys: self, nulls: self.nulls() };
        let mut hits = Hits::with_rows(self.len());
        let damage = run(&asked, &mut hits)?;
        let (ends, phy_offsets) = hits.into_parts();
        let field = Arc::new(Field::new("item", DataType::Int64, true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok((ListArray::new(field, offsets, Arc::new(Int64Array::from(phy_offsets)), asked.nulls), damage))
    }

    /// Which rows have no key or no topic, if there are such.
    fn nulls(&self) -> Option<NullBuffer> {
        self.first_null()?;
        Some((0..self.len()).map(|row| !self.is_null(row)).collect::<Vec<_>>().into())
    }
}

/// Keys to look up: a row that is null has no key.
pub(super) struct Asked<'a> {
    keys: &'a Keys,
    nulls: Option<NullBuffer>,
}

impl KeySource for Asked<'_> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        self.keys.hash_block(start, hashes);
        if let Some(nulls) = &self.nulls {
            for (hash, row) in hashes.iter_mut().zip(start..) {
                if nulls.is_null(row) {
                    *hash = -1;
                }
            }
        }
    }
}

impl KeySource for Keys {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        match &self.keys {
            KeyColumn::Text(keys) => self.hash_texts(keys.value_data(), keys.value_offsets(), start, hashes),
            KeyColumn::Bytes(keys) => self.hash_texts(keys.value_data(), keys.value_offsets(), start, hashes),
            KeyColumn::Hashes { hashes: known, .. } => {
                for (to, hash) in hashes.iter_mut().zip(known.iter().skip(start)) {
                    *to = *hash;
                }
            }
        }
    }
}

impl Keys {
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

/// Rows whose topics are carried together.
const TOPICS: usize = 32;

/// `hashCode` of `topic#` of each row from `start` on. Rows that follow each other mostly have one topic: it is hashed once.
fn carry_topics(column: &KeyColumn, start: usize, hashes: &mut [i32]) {
    let mut before: Option<(&[u8], i32)> = None;
    for (to, row) in hashes.iter_mut().zip(start..column.len()) {
        let topic = column_bytes(column, row);
        *to = match before {
            Some((same, carried)) if same == topic => carried,
            _ => carry_topic(topic),
        };
        before = Some((topic, *to));
    }
}

fn carry_topic(topic: &[u8]) -> i32 {
    hash_index::carry_utf8(hash_index::carry_utf8(0, topic), b"#")
}

fn column_bytes(column: &KeyColumn, row: usize) -> &[u8] {
    match column {
        KeyColumn::Text(a) => a.value(row).as_bytes(),
        KeyColumn::Bytes(a) => a.value(row),
        KeyColumn::Hashes { .. } => &[],
    }
}

pub(super) fn list_array(py: Python<'_>, answer: ListArray) -> PyResult<Bound<'_, PyAny>> {
    convert::arro3_array(py, Arc::new(answer))
}

/// Tells the log of the program that a chain was broken and how the answer was found all the same.
pub(super) fn warn_damage(py: Python<'_>, damage: Option<(PathBuf, Damage)>) -> PyResult<()> {
    let Some((path, damage)) = damage else { return Ok(()) };
    let logger = py.import("logging")?.call_method1("getLogger", ("logdex",))?;
    let text = "%s at byte %d: expected %s, found %s; the entries were read from end to end instead";
    let Damage { offset, expected, found } = damage;
    logger.call_method1("warning", (text, path.display().to_string(), offset, expected, found))?;
    Ok(())
}
