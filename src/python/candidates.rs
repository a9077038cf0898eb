//! `find_messages` and `FoundMessages`: candidates that were checked against their messages.

use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, MapArray, RecordBatch, StringArray};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use pyo3_arrow::{PyRecordBatch, PyTable};

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::commit_log::PyCommitLog;
use super::convert;
use super::entry_table::PyEntryTable;
use super::index_file::PyIndexFile;
use super::integer;
use super::keys;
use super::time;
use crate::error::Result;
use crate::hash_index::{self, Hits, IndexFile, KeyColumn, Keys, Topics, key_hash};
use crate::java_text::decode_utf8;
use crate::rocketmq::candidates::{self, Checks, Counts, Question, VerifiedMessages};
use crate::rocketmq::commit_log::CommitLog;
use crate::rocketmq::commit_log::columns::Column;
use crate::time_range::TimeRange;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFoundMessages>()?;
    m.add_function(wrap_pyfunction!(find_messages, m)?)?;
    m.add_function(wrap_pyfunction!(frames_with_key, m)?)?;
    m.add_function(wrap_pyfunction!(offsets_within, m)?)?;
    m.add_function(wrap_pyfunction!(judge_candidates, m)?)?;
    m.add_function(wrap_pyfunction!(text_column, m)?)?;
    m.add_function(wrap_pyfunction!(message_lists, m)?)
}

/// Return the messages that carry keys, out of the candidates that an index has for them.
///
/// A message is read once and checked by its own topic, keys and store time before columns are built.
///
/// Args:
///     log: The log.
///     keys: The keys: an Arrow column or a sequence. A null key finds nothing.
///     candidates: Arrow list<int64> columns with one list of offsets for each key, in any order, offsets more than once
///         too. With one key all lists are candidates of it.
///     topics: One topic for all keys, or a column of them; None: any topic.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///     max_num: The most messages of a key; None: all.
///     tags: The tags of a message, after "T#", count as one of its keys.
///     batch_size: The most rows of a batch; it ends earlier at 64 MiB.
///     first_row: Number of the first key; the answer then begins with a column `query_row`.
///     body_budget: Bytes of bodies after which rows have null instead of body and error; None: all bodies.
///
/// Returns:
///     A reader of the message columns: in the order of the keys, of each the newest message first, each once.
///
/// Raises:
///     ValueError: Columns of different lengths.
///     TypeError: Columns of another type.
///     OSError: An I/O error; raised by the reader, too.
#[pyfunction]
#[pyo3(signature = (log, keys, candidates, *, topics=None, begin=None, end=None, max_num=None, tags=false, batch_size=8_192, first_row=None, body_budget=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
fn find_messages(
    log: &PyCommitLog,
    keys: &Bound<'_, PyAny>,
    candidates: Vec<Bound<'_, PyAny>>,
    topics: Option<&Bound<'_, PyAny>>,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
    tags: bool,
    #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
    first_row: Option<i64>,
    body_budget: Option<usize>,
) -> PyResult<PyFoundMessages> {
    let keys = texts(keys::text_column(keys, "keys")?);
    let topics = match topics {
        None => Asked::Any,
        Some(topic) => match topic.cast::<PyString>() {
            Ok(topic) => Asked::One(topic.to_cow()?.into_owned()),
            Err(_) => Asked::Each(texts(keys::text_column(topic, "topics")?)),
        },
    };
    let lists = candidates.iter().map(list_array).collect::<PyResult<Vec<_>>>()?;
    let checks = Checks {
        times: time::time_range(begin, end)?,
        max_num: convert::max_num(max_num)?,
        tags,
        columns: Column::ALL.to_vec(),
        batch_size: usize::try_from(batch_size).unwrap_or(0),
        first_row,
        body_budget,
    };
    let questions = questions(keys, &topics, &lists)?;
    PyFoundMessages::new(log.inner()?, questions, checks)
}

/// Return the newest messages that carry a key as the log holds them: frames one after another, in the order of the log.
///
/// Args:
///     log: The log.
///     files: The files of its index, newest first.
///     unindexed: Entries of the rest of the log.
///     topic: The topic.
///     key: The key.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///     max_num: The most messages.
///     max_bytes: The most bytes of frames.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (log, files, unindexed, topic, key, *, begin, end, max_num, max_bytes))]
#[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
fn frames_with_key<'py>(
    py: Python<'py>,
    log: &PyCommitLog,
    files: Vec<PyRef<'py, PyIndexFile>>,
    unindexed: &PyEntryTable,
    topic: String,
    key: String,
    begin: &Bound<'py, PyAny>,
    end: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = integer::max_num)] max_num: u64,
    #[pyo3(from_py_with = integer::max_bytes)] max_bytes: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let times = time::time_range(Some(begin), Some(end))?;
    let checks = Checks {
        times,
        max_num: None,
        tags: false,
        columns: Vec::new(),
        batch_size: 1,
        first_row: None,
        body_budget: None,
    };
    let log = log.inner()?;
    let files = files.iter().map(|file| file.inner()).collect::<PyResult<Vec<_>>>()?;
    let [max_num, max_bytes] = [max_num, max_bytes].map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let (frames, damage) = py.detach(|| -> Result<_> {
        let hash = key_hash(&format!("{topic}#{key}"));
        let asked = Keys::new(KeyColumn::Hashes(vec![hash].into()), Topics::InKey);
        let (files, mut hits): (Vec<&IndexFile>, _) = (files.iter().map(AsRef::as_ref).collect(), Hits::new());
        let damage = hash_index::select_files(&files, &asked, 0..1, None, times, &mut hits)?;
        let damage = damage.map(|(file, damage)| (file.path().to_owned(), damage));
        let mut question = Question { topic: Some(topic), key: Some(key), candidates: unindexed.offsets(hash) };
        question.candidates.extend_from_slice(hits.phy_offsets());
        Ok((candidates::frames_with_key(&log, question, &checks, max_num, max_bytes)?, damage))
    })?;
    keys::warn_damage(py, damage)?;
    Ok(PyBytes::new(py, &frames))
}

/// Return the candidates of all keys in each of some ranges of the log.
///
/// Args:
///     candidates: As in `find_messages`.
///     ranges: Ascending ranges of offsets in the log, the end exclusive.
///
/// Returns:
///     An Arrow array of int64 for each range: its offsets, ascending, each once.
///
/// Raises:
///     TypeError: Columns of another type.
#[pyfunction]
fn offsets_within<'py>(
    py: Python<'py>,
    candidates: Vec<Bound<'py, PyAny>>,
    ranges: Vec<(i64, i64)>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let lists = candidates.iter().map(list_array).collect::<PyResult<Vec<_>>>()?;
    let found = py.detach(|| {
        let values = |list: &ListArray| {
            let rows = (0..list.len()).filter(|row| list.is_valid(*row)).map(|row| list.value(row));
            rows.flat_map(|row| row.as_primitive::<Int64Type>().values().to_vec()).collect::<Vec<_>>()
        };
        candidates::offsets_within(lists.iter().flat_map(values).collect(), &ranges)
    });
    found.into_iter().map(|offsets| convert::arro3_array(py, Arc::new(Int64Array::from(offsets)))).collect()
}

/// Return for each offset what its message is to a key.
///
/// Args:
///     log: The log.
///     phy_offsets: Offsets in the log.
///     topic: The topic asked for.
///     key: The key asked for; "T#" and the tags of a message count as one of its keys.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///
/// Returns:
///     "match", "out-of-range", "other-key" or "other-topic" (with the same hash), "stale-entry" (no key of the message has
///     the hash); where no message begins "expired", "cut-off", "missing-file", "beyond-log" or "damaged".
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (log, phy_offsets, topic, key, *, begin=None, end=None))]
fn judge_candidates(
    py: Python<'_>,
    log: &PyCommitLog,
    phy_offsets: Vec<i64>,
    topic: &str,
    key: &str,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<&'static str>> {
    let (log, times) = (log.inner()?, time::time_range(begin, end)?);
    Ok(py.detach(|| candidates::judge(&log, &phy_offsets, topic, key, times))?)
}

/// Return a column of texts as an Arrow array of text or bytes.
///
/// Args:
///     values: An Arrow column, or a sequence of str, UTF-8 bytes and None.
///     name: What errors call it.
///
/// Raises:
///     TypeError: It holds other values, or is one string.
#[pyfunction]
fn text_column<'py>(py: Python<'py>, values: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    convert::arro3_array(py, keys::text_column(values, name)?.into_array())
}

/// Topics of the questions.
enum Asked {
    Any,
    One(String),
    Each(Vec<Option<String>>),
}

fn texts(column: KeyColumn) -> Vec<Option<String>> {
    match column {
        KeyColumn::Text(texts) => texts.iter().map(|text| text.map(str::to_owned)).collect(),
        KeyColumn::Bytes(texts) => texts.iter().map(|text| text.map(|text| decode_utf8(text).into_owned())).collect(),
        KeyColumn::Hashes(hashes) => vec![None; hashes.len()],
    }
}

fn list_array(value: &Bound<'_, PyAny>) -> PyResult<ListArray> {
    let array = convert::arrow_array(value)?;
    let list = array.as_ref().and_then(|array| array.as_list_opt::<i32>());
    let list = list.filter(|list| list.value_type() == DataType::Int64);
    list.cloned().ok_or_else(|| PyTypeError::new_err("candidates: expected an Arrow column of list<int64>"))
}

fn questions(keys: Vec<Option<String>>, topics: &Asked, lists: &[ListArray]) -> PyResult<Vec<Question>> {
    let rows = keys.len();
    if let Asked::Each(topics) = topics
        && topics.len() != rows
    {
        return Err(PyValueError::new_err(format!("columns differ in length: {rows} keys, {} topics", topics.len())));
    }
    if let Some(list) = lists.iter().find(|list| rows != 1 && list.len() != rows) {
        let text = format!("columns differ in length: {rows} keys, {} lists of candidates", list.len());
        return Err(PyValueError::new_err(text));
    }
    let one = |row: usize, key: Option<String>| {
        let topic = match topics {
            Asked::Any => Some(None),
            Asked::One(topic) => Some(Some(topic.clone())),
            Asked::Each(topics) => topics.get(row).cloned().flatten().map(Some),
        };
        let (Some(key), Some(topic)) = (key, topic) else {
            return Question::default();
        };
        let mut candidates = Vec::new();
        for list in lists {
            let of_key = if rows == 1 { 0..list.len() } else { row..row + 1 };
            for row in of_key.filter(|row| list.is_valid(*row)) {
                candidates.extend_from_slice(list.value(row).as_primitive::<Int64Type>().values());
            }
        }
        Question { topic, key: Some(key), candidates }
    };
    Ok(keys.into_iter().enumerate().map(|(row, key)| one(row, key)).collect())
}

impl Batches for VerifiedMessages {
    type Notes = (Counts, Vec<i64>);

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Self::Notes {
        (self.counts(), self.missing())
    }
}

/// Messages that carry keys, as record batches: an iterator, and an Arrow stream.
#[pyclass(name = "FoundMessages", module = "logdex._core", frozen)]
struct PyFoundMessages(BatchStream<VerifiedMessages>, Arc<CommitLog>, OnceLock<Vec<RecordBatch>>);

impl PyFoundMessages {
    fn new(log: Arc<CommitLog>, questions: Vec<Question>, checks: Checks) -> PyResult<Self> {
        Ok(Self(BatchStream::new(VerifiedMessages::new(Arc::clone(&log), questions, checks)?), log, OnceLock::new()))
    }

    fn held(&self) -> &[RecordBatch] {
        self.2.get().map(Vec::as_slice).unwrap_or_default()
    }
}

batch_reader! {
    PyFoundMessages {
        /// How many candidates carry another key, as far as they were read.
        #[getter]
        fn rejected(&self, py: Python<'_>) -> PyResult<u64> {
            Ok(self.0.notes(py)?.0.rejected)
        }

        /// True when more messages than `max_num` carry a key.
        #[getter]
        fn truncated(&self, py: Python<'_>) -> PyResult<bool> {
            Ok(self.0.notes(py)?.0.truncated)
        }

        /// Offsets of the candidates so far where no valid message begins: it expired, or is missing or damaged.
        #[getter]
        fn missing(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
            Ok(self.0.notes(py)?.1)
        }

        /// How many rows at the end of the answer have no body because of `body_budget`, as far as they were read.
        #[getter]
        fn without_body(&self, py: Python<'_>) -> PyResult<u64> {
            Ok(self.0.notes(py)?.0.without_body)
        }

        /// Read all messages and keep them in memory. The reader is closed then.
        ///
        /// Returns:
        ///     The number of messages.
        fn hold(&self, py: Python<'_>) -> PyResult<usize> {
            let batches = self.0.batches(py)?;
            Ok(self.2.get_or_init(|| batches).iter().map(RecordBatch::num_rows).sum())
        }

        /// Return the messages in memory as a table.
        fn table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            PyTable::try_new(self.held().to_vec(), self.0.arrow_schema())?.into_arro3(py)
        }

        /// Return messages in memory as `message_lists` does. They end with the batch that holds the first one.
        ///
        /// Args:
        ///     begin: The first message.
        ///     end: The message after the last.
        fn lists<'py>(&self, py: Python<'py>, begin: usize, end: usize) -> PyResult<Vec<Bound<'py, PyList>>> {
            let mut before = 0;
            for batch in self.held() {
                let rows = batch.num_rows();
                if begin < before + rows {
                    return lists(py, batch, begin - before, end.min(before + rows) - before);
                }
                before += rows;
            }
            Err(PyValueError::new_err(format!("rows: expected 0 <= begin < {before}, got {begin}")))
        }

        /// Read messages of the answer again, with their bodies, a batch of at most 64 MiB or one message at a time.
        ///
        /// Args:
        ///     phy_offsets: Their offsets in the log.
        ///
        /// Returns:
        ///     A reader like this one: the newest message first.
        ///
        /// Raises:
        ///     CorruptFileError: A message is gone; raised by the reader.
        ///     OSError: Its file is gone; raised by the reader, with the path.
        fn at(&self, phy_offsets: &Bound<'_, PyAny>) -> PyResult<Self> {
            let offsets = convert::int64_column(phy_offsets, "phy_offsets")?;
            let candidates = convert::values(&offsets, "phy_offsets")?.to_vec();
            let checks = Checks {
                times: TimeRange::ALL,
                max_num: None,
                tags: false,
                columns: Column::ALL.to_vec(),
                batch_size: 8_192,
                first_row: None,
                body_budget: None,
            };
            let question = Question { topic: None, key: None, candidates };
            Self::new(Arc::clone(&self.1), vec![question], checks)
        }
    }
}

/// Return rows of a batch of messages as one Python list for each column: times in ms, properties as dicts.
///
/// Args:
///     batch: A record batch of message columns.
///     begin: The first row.
///     end: The row after the last.
///
/// Raises:
///     ValueError: There are no such rows.
///     TypeError: A column has a type that no message column has.
#[pyfunction]
fn message_lists(py: Python<'_>, batch: PyRecordBatch, begin: usize, end: usize) -> PyResult<Vec<Bound<'_, PyList>>> {
    lists(py, &batch.into_inner(), begin, end)
}

fn lists<'py>(py: Python<'py>, batch: &RecordBatch, begin: usize, end: usize) -> PyResult<Vec<Bound<'py, PyList>>> {
    if begin > end || end > batch.num_rows() {
        let text = format!("rows: expected 0 <= begin <= end <= {}, got {begin} and {end}", batch.num_rows());
        return Err(PyValueError::new_err(text));
    }
    let rows = batch.slice(begin, end - begin);
    rows.columns().iter().map(|column| column_list(py, column)).collect()
}

fn column_list<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    match column.data_type() {
        DataType::Utf8 => text_list(py, column.as_string()),
        DataType::Binary => PyList::new(py, column.as_binary::<i32>().iter().map(|b| b.map(|b| PyBytes::new(py, b)))),
        DataType::Int32 => PyList::new(py, column.as_primitive::<Int32Type>()),
        DataType::Int64 => PyList::new(py, column.as_primitive::<Int64Type>()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            PyList::new(py, column.as_primitive::<TimestampMillisecondType>())
        }
        DataType::Map(..) => property_list(py, column.as_map()),
        kind => Err(PyTypeError::new_err(format!("expected a message column, got one of type {kind}"))),
    }
}

/// Texts of a column. Neighbours that are equal are one object.
fn text_list<'py>(py: Python<'py>, column: &StringArray) -> PyResult<Bound<'py, PyList>> {
    let mut last: Option<(&str, Bound<'py, PyString>)> = None;
    let texts = column.iter().map(|text| {
        let text = text?;
        let object = match &last {
            Some((same, object)) if *same == text => object.clone(),
            _ => PyString::new(py, text),
        };
        last = Some((text, object.clone()));
        Some(object)
    });
    PyList::new(py, texts.collect::<Vec<_>>())
}

/// A text and its object.
type Seen<'a, 'py> = (&'a str, Bound<'py, PyString>);

/// Properties of a column as dicts. Names and values that are equal in neighbours are one object.
fn property_list<'py>(py: Python<'py>, column: &MapArray) -> PyResult<Bound<'py, PyList>> {
    let (names, values) = (column.keys().as_string_opt::<i32>(), column.values().as_string_opt::<i32>());
    let (Some(names), Some(values)) = (names, values) else {
        return Err(PyTypeError::new_err("properties: expected a map of utf8 to utf8"));
    };
    let mut seen: Vec<[Seen<'_, 'py>; 2]> = Vec::new();
    let list = PyList::empty(py);
    for (row, ends) in column.value_offsets().windows(2).enumerate() {
        let [begin, end] = [0, 1].map(|end| ends.get(end).and_then(|at| usize::try_from(*at).ok()).unwrap_or(0));
        let dict = PyDict::new(py);
        for (number, at) in (begin..end).filter(|_| column.is_valid(row)).enumerate() {
            let texts = [names.value(at), values.value(at)];
            if number == seen.len() {
                seen.push(texts.map(|text| (text, PyString::new(py, text))));
            }
            let Some(known) = seen.get_mut(number) else { continue };
            for (known, text) in known.iter_mut().zip(texts) {
                if known.0 != text {
                    *known = (text, PyString::new(py, text));
                }
            }
            let [(_, name), (_, value)] = &*known;
            dict.set_item(name, values.is_valid(at).then_some(value))?;
        }
        list.append(dict)?;
    }
    Ok(list)
}
