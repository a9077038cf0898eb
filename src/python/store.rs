//! `Store`: the log and the index of a store, searched together, and the results of a search.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::convert::{self, ArrowArray, ArrowBatch, ArrowSchema, ArrowTable};
use super::decode::{Decoding, Formats};
use super::handle::Closable;
use super::handle::Raised;
use super::index_file::PyIndexHeader;
use super::integer;
use super::keys::{self, log_notes};
use super::messages::PyMessageFilter;
use super::messages::lists;
use super::queues::PyQueues;
use super::read_plan::{PyMessageStream, PyReadPlan, scan_choice, with_known_topics};
use super::sealed::{PySealedFiles, PySealedStore};
use super::time;
use crate::error::Result;
use crate::hash_index::directory::FilesOptions;
use crate::hash_index::{KeyColumn, Keys, Topics, key_hash};
use crate::io::{Location, usize_of};
use crate::java_text::decode_utf8;
use crate::report::{Finding, Report};
use crate::rocketmq::candidates::{Checks, KeyQuery, VerifiedMessages};
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::store::{
    BatchQuery, Found, FoundBatches, KeyView, MessageStream, PageQuery, Policy, Query, Range, ReadOptions, ScanChoice,
    SealedAnswer, Store, StoreIndex, subtract,
};

register! { class PyStore, PyFoundMessages, PyFoundBatches, PyMessagesAt, PyKeyView; fn subtract_ranges }

/// Return the parts of `whole` that are in none of the ranges, in ascending order.
#[pyfunction]
fn subtract_ranges(whole: Range, ranges: Vec<Range>) -> Vec<Range> {
    subtract(whole, ranges)
}

/// A range of the log that the index covers, and an int64 array of offsets.
type Indexed = (Range, ArrowArray);

/// The log and the index of a store: a search is one call.
#[pyclass(name = "Store", module = "logdex._core", frozen)]
struct PyStore(Closable<Store>);

impl PyStore {
    /// Calls while other threads run, and logs what was passed over.
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Arc<Store>) -> Result<T> + Send) -> PyResult<T> {
        let store = self.0.get()?;
        let (answer, notes) = py.detach(|| (call(&store), store.take_notes()));
        log_notes(py, notes)?;
        Ok(answer?)
    }
}

#[pymethods]
impl PyStore {
    /// Use the log and the queues of a store with its index, and pass the end of the log in the index on to the log.
    ///
    /// Args:
    ///     queues: The queues, with the log.
    ///     index: The directory of the index files, which may be missing. None: the index is not used.
    ///     sealed: A sealed index, which stands for the index files that are as they were.
    ///     hash_slots: Slots of each index file; None: inferred.
    ///     max_entries: Entries of each index file plus one; None: inferred.
    ///
    /// Raises:
    ///     GeometryError: Slots and entries are not given and cannot be inferred.
    ///     ValueError: The index files have other slots and entries.
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (queues, index, *, sealed=None, hash_slots=None, max_entries=None))]
    fn open(
        py: Python<'_>,
        queues: &PyQueues,
        index: Option<Location>,
        sealed: Option<PyRef<'_, PySealedStore>>,
        #[pyo3(from_py_with = integer::hash_slots)] hash_slots: Option<i64>,
        #[pyo3(from_py_with = integer::max_entries)] max_entries: Option<i64>,
    ) -> PyResult<Self> {
        let (queues, sealed) = (queues.inner()?, sealed.map(|sealed| sealed.inner()));
        let reading = queues.options();
        let options = FilesOptions {
            geometry: convert::wanted_geometry(hash_slots, max_entries)?,
            access: reading.access,
            answers: super::index_file::answers_of(reading.compat),
            ..FilesOptions::default()
        };
        let root = queues.root().clone();
        let index = match index {
            Some(index) => StoreIndex::new(&index, options, reading.clock_slack_ms, sealed),
            None => StoreIndex::unused(&root),
        };
        let store = Self(Closable::new(py.detach(|| Store::open(queues, index))?, root));
        store.with(py, |_| Ok(()))?;
        Ok(store)
    }

    /// Read the messages that pass a filter, in the order of the log.
    ///
    /// Args:
    ///     selection: The filter.
    ///     columns: Names of columns, in the order wanted; None: all.
    ///     body: "decoded" or "stored".
    ///     scan: When the log is read for given topics or keys: "auto", True or False.
    ///     threads: Threads that check and decode; None: as many as there are processors, at most 4.
    ///     known_topics: Called without arguments; returns the topics that a message may have, None: only the log knows.
    ///     decode: As for `read_records`.
    ///     progress: Called after each batch with the bytes of the log that were passed, and how many there are.
    ///
    /// Raises:
    ///     ValueError: An unknown column or word.
    ///     OSError: An I/O error; the reader raises it, too.
    #[pyo3(signature = (selection, *, columns=None, body="decoded", scan=None, batch_size=None, threads=None, known_topics=None, decode=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn messages(
        &self,
        py: Python<'_>,
        selection: &PyMessageFilter,
        columns: Option<&Bound<'_, PyAny>>,
        body: &str,
        scan: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: Option<i64>,
        #[pyo3(from_py_with = integer::threads)] threads: Option<i64>,
        known_topics: Option<Py<PyAny>>,
        decode: Option<Formats>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyMessageStream> {
        let scan = scan.map_or(Ok(ScanChoice::Auto), scan_choice)?;
        let (store, threads) = (self.0.get()?, convert::threads(threads)?);
        let decode = decode.unwrap_or_default();
        let options = ReadOptions {
            filter: selection.inner(),
            columns: super::commit_log::columns(columns)?,
            bodies: super::commit_log::bodies(body)?,
            batch_size: decode.batch_size(batch_size)?,
            salvage: !store.index().is_brokers(),
            threads,
        };
        let stream = with_known_topics(py, known_topics, |known| {
            let policy = Policy::of_stream(scan, &options.filter, threads);
            let plan = store.plan(&options.filter, None, policy, known)?;
            Ok(MessageStream::new(plan, options))
        });
        log_notes(py, store.take_notes())?;
        let stream = stream?;
        Ok(PyMessageStream::new(py.detach(|| Decoding::new(stream, decode, progress))?))
    }

    /// Plan a read for tasks that run in any order.
    ///
    /// Args:
    ///     selection: The filter.
    ///     phy_offsets: The offsets of the messages, if the caller knows them; None: it does not.
    ///     pushdown: Use index and queues; otherwise whole ranges of the log are read.
    ///     known_topics: As for `messages`.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (selection, *, phy_offsets=None, pushdown=true, known_topics=None))]
    fn plan(
        &self,
        py: Python<'_>,
        selection: &PyMessageFilter,
        phy_offsets: Option<Vec<i64>>,
        pushdown: bool,
        known_topics: Option<Py<PyAny>>,
    ) -> PyResult<PyReadPlan> {
        let (store, threads) = (self.0.get()?, convert::threads(None)?);
        let filter = selection.inner();
        let plan = with_known_topics(py, known_topics, |known| {
            store.plan(&filter, phy_offsets, Policy::of_tasks(pushdown, threads), known)
        });
        log_notes(py, store.take_notes())?;
        Ok(PyReadPlan { plan: plan?, queues: Arc::clone(store.queues()) })
    }

    /// Read some messages next to a position in the log; see `MessageStore.page`.
    ///
    /// Returns:
    ///     The messages, where the next page begins or None, the bytes of the log up to there, all bytes that the filter leaves, whether
    ///     the queues were read, and the findings of what was passed over.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (selection, *, position=None, columns=None, limit, newest_first, seconds))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn page<'py>(
        &self,
        py: Python<'py>,
        selection: &PyMessageFilter,
        #[pyo3(from_py_with = integer::position)] position: Option<i64>,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::limit)] limit: u64,
        newest_first: bool,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let query = PageQuery {
            filter: selection.inner(),
            position,
            columns: super::commit_log::columns(columns)?,
            limit: usize_of(limit),
            backwards: newest_first,
            most_time: Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX),
            threads: convert::threads(None)?,
        };
        let page = self.with(py, |store| store.page(query))?;
        let findings = PyTuple::new(py, page.findings)?;
        (ArrowBatch(page.batch), page.next_position, page.done, page.total, page.by_queues, findings).into_pyobject(py)
    }

    /// True if a sealed index stands for index files.
    #[getter]
    fn is_sealed(&self) -> PyResult<bool> {
        Ok(self.0.get()?.index().sealed().is_some())
    }

    /// Close the index files. A call in another thread ends first. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.close()));
    }

    /// Find the messages that carry a key, the newest first, each once.
    ///
    /// Args:
    ///     topics: The topics that may have it.
    ///     key: The key.
    ///     is_any_topic: Whether the topic does not matter, so that topics of messages count that no index file covers.
    ///     begin: First store time, inclusive.
    ///     end: Last store time, inclusive.
    ///     max_num: The most messages; None: all.
    ///     scan_bytes: The most bytes of the log that are read because no index file covers them; None: all.
    ///     progress: Called with the finished bytes of the log, and the total.
    ///     body_budget: Bytes of bodies after which rows have null instead of body and error.
    ///     batch_size: The most messages that are checked together.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (topics, key, *, is_any_topic, begin, end, max_num, scan_bytes, progress, body_budget, batch_size=8_192))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn find(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        key: String,
        is_any_topic: bool,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
        scan_bytes: Option<u64>,
        progress: Option<Py<PyAny>>,
        body_budget: usize,
        batch_size: usize,
    ) -> PyResult<PyFoundMessages> {
        let times = time::time_range(begin, end)?;
        let max_num = convert::max_num(max_num)?;
        let query = Query { topics, is_any_topic, key, times, max_num, scan_bytes, body_budget, batch_size };
        let raised = Raised::default();
        let show = |done: u64, total: u64| {
            let shown = Python::attach(|py| {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
            });
            raised.keep(shown, "the caller ended the search")
        };
        let store = self.0.get()?;
        let (found, notes) = py.detach(|| (store.find(query, &show), store.take_notes()));
        log_notes(py, notes)?;
        raised.check(found).map(PyFoundMessages)
    }

    /// Find the messages of many keys.
    ///
    /// Args:
    ///     topics: One topic for all keys, or a column of them.
    ///     keys: The keys: an Arrow column or a sequence. A null key finds nothing.
    ///     begin: First store time, inclusive.
    ///     end: Last store time, inclusive.
    ///     max_num: The most messages of a key; None: all.
    ///     scan_bytes: As for `find`.
    ///     columns: Names of message columns; None: all.
    ///     batch_size: The most rows of a batch; it ends earlier at 64 MiB.
    ///
    /// Returns:
    ///     A reader of `query_row` and the message columns: in the order of the keys, of each the newest message first.
    ///
    /// Raises:
    ///     ValueError: Columns of different lengths.
    ///     TypeError: Columns of another type.
    ///     OSError: An I/O error; raised by the reader, too.
    #[pyo3(signature = (topics, keys, *, begin, end, max_num, scan_bytes, columns, batch_size))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn find_batch(
        &self,
        py: Python<'_>,
        topics: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
        scan_bytes: Option<u64>,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
    ) -> PyResult<PyFoundBatches> {
        let columns = super::commit_log::columns(columns)?;
        let keys = keys::text_column(keys, "keys")?;
        let (asked, topics) = if let Ok(topic) = topics.cast::<PyString>() {
            let topic = topic.to_cow()?.into_owned();
            (Keys::new(keys.clone(), Topics::one(topic.as_bytes())), vec![Some(topic)])
        } else {
            let topics = keys::text_column(topics, "topics")?;
            (keys::joined(keys.clone(), topics.clone())?, texts(topics))
        };
        let keys = texts(keys);
        let (times, max_num) = (time::time_range(begin, end)?, convert::max_num(max_num)?);
        let batch_size = convert::batch_size(batch_size)?;
        let (found, unread) = self.with(py, |store| {
            let hashes = asked.hashes();
            store.find_batch(BatchQuery { hashes, keys, topics, times, max_num, scan_bytes, columns, batch_size })
        })?;
        let unread = if scan_bytes == Some(0) { 0 } else { unread.iter().map(|(begin, end)| end - begin).sum::<i64>() };
        if unread > 0 {
            log_notes(py, vec![format!("{unread} bytes of the log are neither indexed nor read")])?;
        }
        Ok(PyFoundBatches(BatchStream::new(found)))
    }

    /// Return log and index as they are now, after reading the parts of the log that no index file covers; `scan_bytes` as for `find`.
    fn view(&self, py: Python<'_>, scan_bytes: Option<u64>) -> PyResult<PyKeyView> {
        Ok(PyKeyView(self.with(py, |store| store.view(scan_bytes))?))
    }

    /// Return whether messages are found by their tags: the index holds them (5.5.0), or it holds no entry at all.
    fn has_tags(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |store| store.has_tags())
    }

    /// Return where the index leads; see `MessageStore.indexed_offsets`.
    #[pyo3(signature = (topics, keys, *, begin, end))]
    fn indexed_offsets(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        keys: Vec<String>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Vec<Indexed>>> {
        let times = time::time_range(begin, end)?;
        let found = self.with(py, |store| store.indexed_offsets(&topics, &keys, (0, i64::MAX), times))?;
        let part = |(range, offsets): (Range, Vec<i64>)| (range, ArrowArray(Arc::new(Int64Array::from(offsets))));
        Ok(found.map(|parts| parts.into_iter().map(part).collect()))
    }

    /// Return the directory of the sealed index, the files that it stands for and its candidates of a key; None if each index
    /// file is searched.
    #[pyo3(signature = (topic, key, *, begin, end))]
    fn ask_sealed(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &str,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<(Location, PySealedFiles, Vec<i64>)>> {
        let times = time::time_range(begin, end)?;
        let hash = key_hash(&[topic, "#", key].concat());
        let asked = self.with(py, |store| store.index().ask_sealed(hash, times))?;
        Ok(asked.map(|SealedAnswer { directory, unchanged, offsets }| {
            (directory, PySealedFiles { unchanged: unchanged.as_ref().clone() }, offsets)
        }))
    }

    /// Return the ranges of the log whose messages are indexed, whether sealed or not. The first and the last message of an index
    /// file are not covered: they may have keys in the files next to it.
    fn covered(&self, py: Python<'_>) -> PyResult<Vec<Range>> {
        self.with(py, |store| store.index().unsealed_view()?.map_or(Ok(Vec::new()), |view| view.covered()))
    }

    /// Description of the sealed index for people; None without one.
    #[getter]
    fn sealed_words(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |store| store.index().sealed_words())
    }

    /// Compare the sealed rows with the index files that they stand for, and with the times of the log. None if they are not used.
    fn verify_sealed(&self, py: Python<'_>) -> PyResult<Option<Report>> {
        self.with(py, |store| store.index().verify_sealed(store.log()))
    }
}

fn texts(column: KeyColumn) -> Vec<Option<String>> {
    match column {
        KeyColumn::Text(texts) => texts.iter().map(|text| text.map(str::to_owned)).collect(),
        KeyColumn::Bytes(texts) => texts.iter().map(|text| text.map(|text| decode_utf8(text).into_owned())).collect(),
        KeyColumn::Hashes(hashes) => vec![None; hashes.len()],
    }
}

/// The messages of a key, in memory.
#[pyclass(name = "FoundMessages", module = "logdex._core", frozen)]
struct PyFoundMessages(Found);

#[pymethods]
impl PyFoundMessages {
    fn __len__(&self) -> usize {
        self.0.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Number of candidates that carry another key.
    #[getter]
    fn rejected(&self) -> u64 {
        self.0.counts.rejected
    }

    /// True when more messages than requested carry the key.
    #[getter]
    fn truncated(&self) -> bool {
        self.0.counts.truncated
    }

    /// Number of messages at the end without a body because of `body_budget`.
    #[getter]
    fn without_body(&self) -> u64 {
        self.0.counts.without_body
    }

    /// Bytes of the log that were read because no index file covers them.
    #[getter]
    fn scanned_bytes(&self) -> u64 {
        self.0.scanned
    }

    /// Ranges of the log that neither the index covers nor any call has read, that no file holds, or that are damaged.
    #[getter]
    fn unscanned(&self) -> Vec<Range> {
        self.0.unscanned.clone()
    }

    /// Those parts of them that cannot be read.
    #[getter]
    fn unreadable(&self) -> Vec<Range> {
        self.0.unreadable.clone()
    }

    /// The schema of the message columns.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(Arc::clone(&self.0.schema))
    }

    /// Return the messages as a table.
    fn table(&self) -> ArrowTable {
        ArrowTable(self.0.batches.clone(), Arc::clone(&self.0.schema))
    }

    /// Return messages as `message_lists` does. They end with the batch that holds the first one.
    ///
    /// Args:
    ///     begin: The first message.
    ///     end: The message after the last.
    fn lists<'py>(&self, py: Python<'py>, begin: usize, end: usize) -> PyResult<Vec<Bound<'py, PyList>>> {
        let mut before = 0;
        for batch in &self.0.batches {
            let rows = batch.num_rows();
            if begin < before + rows {
                return lists(py, batch, begin - before, end.min(before + rows) - before);
            }
            before += rows;
        }
        Err(PyValueError::new_err(format!("rows: expected 0 <= begin < {before}, got {begin}")))
    }

    /// Read some of the messages again, with their bodies.
    ///
    /// Args:
    ///     begin: The first message.
    ///     end: The message after the last.
    ///     batch_size: The most rows of a batch; it ends earlier at 64 MiB.
    ///
    /// Raises:
    ///     CorruptFileError: One of them is gone; raised by the reader.
    ///     OSError: An I/O error.
    #[pyo3(signature = (begin, end, *, batch_size=8_192))]
    fn read_again(&self, begin: usize, end: usize, batch_size: usize) -> PyResult<PyMessagesAt> {
        let name = Column::PhyOffset.name();
        let mut candidates = Vec::new();
        for batch in &self.0.batches {
            let offsets = batch.column_by_name(name).and_then(|offsets| offsets.as_primitive_opt::<Int64Type>());
            let offsets = offsets.ok_or_else(|| PyTypeError::new_err("phy_offset: expected int64"))?;
            candidates.extend_from_slice(offsets.values());
        }
        let candidates = candidates.get(begin..end.min(candidates.len())).unwrap_or_default().to_vec();
        let checks = Checks {
            times: crate::time_range::TimeRange::ALL,
            max_num: None,
            tags: false,
            columns: Column::ALL.to_vec(),
            batch_size,
            first_row: None,
            body_budget: None,
        };
        let key_query = KeyQuery { topics: None, key: None, candidates };
        let messages = VerifiedMessages::new(Arc::clone(&self.0.log), vec![key_query], checks)?;
        Ok(PyMessagesAt(BatchStream::new(messages)))
    }
}

impl Batches for VerifiedMessages {
    type Notes = ();

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Self::Notes {}
}

/// Messages at offsets of the log, as record batches: an iterator, and an Arrow stream.
#[pyclass(name = "MessagesAt", module = "logdex._core", frozen)]
struct PyMessagesAt(BatchStream<VerifiedMessages>);

batch_reader! { PyMessagesAt {} }

impl Batches for FoundBatches {
    type Notes = Vec<Finding>;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Self::Notes {
        self.findings().to_vec()
    }
}

/// The messages of many keys, as record batches: an iterator, and an Arrow stream.
#[pyclass(name = "FoundBatches", module = "logdex._core", frozen)]
struct PyFoundBatches(BatchStream<FoundBatches>);

batch_reader! {
    PyFoundBatches {
        /// Missing and damaged parts of the log that may hold a match, as far as they are known.
        #[getter]
        fn findings(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
            self.0.notes(py)
        }
    }
}

/// Log and index as they were at one moment: a search lists no directory, so that many searches cost little.
#[pyclass(name = "KeyView", module = "logdex.rocketmq.find", frozen)]
struct PyKeyView(KeyView);

#[pymethods]
impl PyKeyView {
    fn __repr__(&self) -> String {
        format!("KeyView({} index files)", self.0.files().len())
    }

    /// The header of the newest index file.
    #[getter]
    fn newest(&self, py: Python<'_>) -> PyResult<Option<PyIndexHeader>> {
        let header = py.detach(|| self.0.files().first().map(|file| file.header()).transpose())?;
        Ok(header.map(PyIndexHeader::from))
    }

    /// Return the newest messages that carry a key as the log holds them, in its order.
    ///
    /// Args:
    ///     topic: The topic.
    ///     key: The key.
    ///     begin: First store time, inclusive.
    ///     end: Last store time, inclusive.
    ///     max_num: The most messages.
    ///     max_bytes: The most bytes of frames.
    ///
    /// Raises:
    ///     OSError: An I/O error, or a file of that moment is gone.
    #[pyo3(signature = (topic, key, *, begin, end, max_num, max_bytes))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn stored_frames(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &str,
        begin: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::max_num)] max_num: u64,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: u64,
    ) -> PyResult<Vec<u8>> {
        let times = time::time_range(Some(begin), Some(end))?;
        let [max_num, max_bytes] = [max_num, max_bytes].map(usize_of);
        let frames = py.detach(|| self.0.stored_frames(topic, key, times, max_num, max_bytes));
        log_notes(py, self.0.store().take_notes())?;
        Ok(frames?)
    }
}
