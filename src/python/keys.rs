//! Keys of a batch call, and the lists of offsets that answer them.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3_arrow::PyArray;

use super::convert::KeyColumn;
use crate::error::{Error, Result};
use crate::hash_index::{self, Damage, KeySource, TextKeys, finish};

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

    fn is_null(&self, row: usize) -> bool {
        let no_topic = matches!(&self.topics, Topics::Column(column) if column.is_null(row));
        no_topic || self.keys.is_null(row)
    }

    fn hash(&self, row: usize) -> i32 {
        let topic = match &self.topics {
            Topics::InKey => 0,
            Topics::One(carried) => *carried,
            Topics::Column(column) => carry_topic(column_bytes(column, row)),
        };
        match &self.keys {
            KeyColumn::Hashes { hashes, .. } => hashes.get(row).copied().unwrap_or(0),
            text => finish(hash_index::carry_utf8(topic, column_bytes(text, row))),
        }
    }

    /// Runs a select over the keys that are not null and puts its answers into an Arrow list column.
    pub(super) fn select<D>(
        &self,
        run: impl FnOnce(&mut dyn Iterator<Item = i32>, &mut dyn FnMut(&[i64])) -> Result<Option<D>>,
    ) -> Result<(ListArray, Option<D>)> {
        let mut valid = Vec::with_capacity(self.len());
        valid.extend((0..self.len()).map(|row| !self.is_null(row)));
        let mut ends: Vec<i32> = Vec::with_capacity(self.len() + 1);
        ends.push(0);
        let mut hits = Vec::new();
        let mut too_many = false;
        let damage = {
            let mut rows = valid.iter();
            let mut each = |answer: &[i64]| {
                let mut end = ends.last().copied().unwrap_or(0);
                // Null rows before this one are empty.
                for _ in rows.by_ref().take_while(|valid| !**valid) {
                    ends.push(end);
                }
                hits.extend_from_slice(answer);
                if let Ok(new_end) = i32::try_from(hits.len()) {
                    end = new_end;
                } else {
                    too_many = true;
                }
                ends.push(end);
            };
            let mut hashes = (0..self.len()).filter(|&row| valid.get(row) == Some(&true)).map(|row| self.hash(row));
            run(&mut hashes, &mut each)?
        };
        if too_many {
            return Err(Error::InvalidArgument("more than 2^31 hits in one batch: ask for fewer keys or hits".into()));
        }
        ends.resize(self.len() + 1, ends.last().copied().unwrap_or(0));
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        let field = Arc::new(Field::new("item", DataType::Int64, true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Ok((ListArray::new(field, offsets, Arc::new(Int64Array::from(hits)), nulls), damage))
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
    PyArray::from_array_ref(Arc::new(answer) as ArrayRef).into_arro3(py)
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
