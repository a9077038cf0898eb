//! Keys of a batch call, and the lists of offsets that answer them.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Int32Array, Int64Array, ListArray, StringArray};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert::{self, KeyColumn};
use crate::error::Result;
use crate::hash_index::{self, Damage, Hits, KeySource, finish};

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
        match (&self.topics, &self.keys) {
            (Topics::InKey, KeyColumn::Text(keys)) => hash_texts(0, keys, start, hashes),
            (Topics::One(topic), KeyColumn::Text(keys)) => hash_texts(*topic, keys, start, hashes),
            _ => {
                for (to, row) in hashes.iter_mut().zip(start..) {
                    *to = self.hash(row);
                }
            }
        }
    }
}

/// The commonest shape of a batch, with no choice left in the loop.
fn hash_texts(topic: i32, keys: &StringArray, start: usize, hashes: &mut [i32]) {
    let text = keys.value_data();
    for (to, ends) in hashes.iter_mut().zip(keys.value_offsets().windows(2).skip(start)) {
        if let &[begin, end] = ends {
            let key = text.get(begin.as_usize()..end.as_usize()).unwrap_or_default();
            *to = finish(hash_index::carry_utf8(topic, key));
        }
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
