//! `LogSegment` and `Slice`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::super::decode::{Decoding, Formats};
use super::super::handle::Closable;
use super::super::time::{self, Round};
use super::super::{convert, integer, location};
use super::arguments::{self, check_word};
use super::producer_state::PyProducerState;
use super::reader::PySegmentReader;
use super::recovered::PyRecoveredSegment;
use crate::io::{Location, i64_of};
use crate::kafka::{
    BatchScan, Check, Fetched, LogContext, OnError, ProducerState, RecordScan, Recovered, Segment, SegmentOptions,
    SegmentRange, SegmentReader, TimedOffset, batch_columns,
};
use crate::report::{Finding, Report};

register! { class PyLogSegment, PySlice; fn _open_log_segment }

/// One segment: a `.log` file and the indexes next to it, read only.
///
/// Its size is that of the log when it was opened; batches that are appended later are not read. Indexes are read when they
/// are needed, and may be missing. A handle is thread-safe, and its calls release the interpreter lock. It pickles by its path
/// and options.
///
/// Source: `LogSegment`; docs/formats/kafka-log.md.
#[pyclass(name = "LogSegment", module = "logdex.kafka", frozen)]
pub(in crate::python) struct PyLogSegment {
    segment: Closable<Segment>,
    topic: Option<String>,
    partition: Option<i32>,
    check: Check,
    access: String,
    compat: Option<String>,
    max_batch_bytes: i64,
}

impl PyLogSegment {
    pub(in crate::python) fn inner(&self) -> PyResult<Arc<Segment>> {
        self.segment.get()
    }

    fn batches_between(&self, py: Python<'_>, begin: u64, end: u64) -> PyResult<PySegmentReader> {
        let scan = BatchScan {
            begin_position: begin,
            end_position: Some(end),
            columns: batch_columns::Column::choose::<&str>(None)?,
            batch_size: 8_192,
            check_crc: true,
            on_error: OnError::Raise,
        };
        self.batch_reader(py, scan)
    }

    fn batch_reader(&self, py: Python<'_>, scan: BatchScan) -> PyResult<PySegmentReader> {
        let segment = self.inner()?;
        let reader = py.detach(|| {
            SegmentReader::batches(segment, scan).and_then(|r| Decoding::new(r, Formats::default(), None))
        })?;
        Ok(PySegmentReader::new(reader, true))
    }

    fn bytes_at<'py>(&self, py: Python<'py>, position: u64, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        let segment = self.inner()?;
        let size = size.min(segment.len());
        let bytes = py.detach(|| segment.bytes(position, size))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn recovered(
        &self,
        py: Python<'_>,
        index_interval_bytes: i64,
        max_index_bytes: i64,
        producers: Option<&Py<PyProducerState>>,
    ) -> PyResult<Recovered> {
        let segment = self.inner()?;
        let interval = arguments::size(index_interval_bytes, "index_interval_bytes")?;
        let max = arguments::size(max_index_bytes, "max_index_bytes")?;
        let recovered = match producers.map(Py::get) {
            Some(producers) => py.detach(|| producers.with(|state| segment.recover(interval, max, state))),
            None => py.detach(|| segment.recover(interval, max, &mut ProducerState::default())),
        };
        Ok(recovered?)
    }

    fn find_at(
        &self,
        py: Python<'_>,
        t: &Bound<'_, PyAny>,
        starting_offset: Option<i64>,
        control: Option<bool>,
    ) -> PyResult<Option<TimedOffset>> {
        let segment = self.inner()?;
        let timestamp = time::time_ms(t, Round::Up, "t")?;
        let from = starting_offset.unwrap_or(segment.base_offset());
        let control = control.unwrap_or(self.compat.is_some());
        Ok(py.detach(|| segment.offset_for_timestamp(timestamp, from, control))?)
    }

    /// A segment that a log has open.
    pub(super) fn of(segment: Arc<Segment>, topic: &str, partition: i32, access: &str, compat: Option<&str>) -> Self {
        let (options, path) = (segment.options(), segment.path().clone());
        Self {
            segment: Closable::of(segment, path),
            topic: Some(topic.to_owned()),
            partition: Some(partition),
            check: options.check,
            access: access.to_owned(),
            compat: compat.map(str::to_owned),
            max_batch_bytes: i64_of(options.max_batch_bytes),
        }
    }

    /// Return whether it is open, and this segment.
    pub(super) fn is_of(&self, segment: &Arc<Segment>) -> bool {
        self.inner().is_ok_and(|inner| Arc::ptr_eq(&inner, segment))
    }

    /// Return the whole segment as a range.
    pub(super) fn range(&self) -> PyResult<SegmentRange> {
        Ok(SegmentRange { topic: self.topic.clone(), partition: self.partition, ..SegmentRange::whole(self.inner()?) })
    }
}

/// The call that opens a segment when it is unpickled.
type Reduced<'py> =
    (Bound<'py, PyAny>, (Location, Option<String>, Option<i32>, Option<&'static str>, String, Option<String>, i64));

/// Open a segment when it is unpickled.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the options of the handle")]
fn _open_log_segment(
    py: Python<'_>,
    path: Location,
    topic: Option<String>,
    partition: Option<i32>,
    check: Option<&str>,
    access: &str,
    compat: Option<&str>,
    max_batch_bytes: i64,
) -> PyResult<PyLogSegment> {
    PyLogSegment::open(py, path, topic, partition, check, access, compat, max_batch_bytes, None)
}

#[pymethods]
impl PyLogSegment {
    /// Open a `.log` file.
    ///
    /// Args:
    ///     log_file: The file; its name begins with the base offset.
    ///     topic: Topic of the rows; by default from the directory's name.
    ///     partition: Partition of the rows; by default from the directory's name.
    ///     check: "verify": an index entry counts only if the log agrees, and look-ups check every batch on the way. "trust":
    ///         indexes and headers of batches are taken as they are, as the broker does. By default "trust" with `compat`,
    ///         otherwise "verify".
    ///     access: "auto" (by `pread`), "mmap" or "pread".
    ///     compat: A release such as "3.9.0", whose answers are returned.
    ///     max_batch_bytes: A larger batch, stored or uncompressed, is an error; at most 2000000000.
    ///     storage_options: Options of the store of a URL, by the names of the object_store crate.
    ///
    /// Raises:
    ///     OSError: The file cannot be read.
    ///     ValueError: The name has no base offset.
    #[staticmethod]
    #[pyo3(signature = (log_file, *, topic=None, partition=None, check=None, access="auto", compat=None, max_batch_bytes=67_108_864, storage_options=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn open(
        py: Python<'_>,
        log_file: Location,
        topic: Option<String>,
        #[pyo3(from_py_with = integer::partition)] partition: Option<i32>,
        check: Option<&str>,
        access: &str,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::max_batch_bytes)] max_batch_bytes: i64,
        storage_options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let log_file = location::located(log_file, storage_options);
        let default = if compat.is_some() { Check::Trust } else { Check::Verify };
        let options = SegmentOptions {
            check: check.map_or(Ok(default), arguments::check)?,
            access: convert::access(access)?,
            compat: arguments::compat(compat)?,
            max_batch_bytes: arguments::batch_limit(max_batch_bytes)?,
        };
        let segment = py.detach(|| Segment::open(&log_file, options))?;
        let owner = segment.topic_partition();
        Ok(Self {
            topic: topic.or_else(|| owner.map(|(topic, _)| topic.to_owned())),
            partition: partition.or(owner.map(|(_, partition)| partition)),
            segment: Closable::new(segment, log_file),
            check: options.check,
            access: access.to_owned(),
            compat: compat.map(str::to_owned),
            max_batch_bytes,
        })
    }

    /// Open a segment that is in memory. It has no indexes.
    ///
    /// Args:
    ///     name: The name of the log file, which begins with the base offset; with that of the partition's directory before it,
    ///         as `orders-0/00000000000000000000.log`, the rows have topic and partition.
    ///     data: The bytes of the log, which are copied.
    ///     topic: As for `open`.
    ///     partition: As for `open`.
    ///     compat: As for `open`.
    ///     max_batch_bytes: As for `open`.
    ///
    /// Raises:
    ///     ValueError: A name without a base offset.
    #[staticmethod]
    #[pyo3(signature = (name, data, *, topic=None, partition=None, compat=None, max_batch_bytes=67_108_864))]
    fn from_bytes(
        py: Python<'_>,
        name: &str,
        data: &[u8],
        topic: Option<String>,
        #[pyo3(from_py_with = integer::partition)] partition: Option<i32>,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::max_batch_bytes)] max_batch_bytes: i64,
    ) -> PyResult<Self> {
        let path = location::in_memory(name, data)?;
        Self::open(py, path, topic, partition, None, "auto", compat, max_batch_bytes, None)
    }

    /// The file.
    #[getter]
    fn path(&self) -> Location {
        self.segment.path().to_owned()
    }

    /// Topic of the rows.
    #[getter]
    fn topic(&self) -> Option<String> {
        self.topic.clone()
    }

    /// Partition of the rows.
    #[getter]
    fn partition(&self) -> Option<i32> {
        self.partition
    }

    /// Offset in the file's name.
    #[getter]
    fn base_offset(&self) -> PyResult<i64> {
        Ok(self.inner()?.base_offset())
    }

    /// Length of the log in bytes when it was opened.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.inner()?.len())
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.segment.is_closed()
    }

    /// Read the headers of the batches, one row each.
    ///
    /// Args:
    ///     begin_position: Byte offset of a batch.
    ///     end_position: Byte offset of the end; by default the end of the log.
    ///     columns: Names of columns; by default all.
    ///     batch_size: Rows of a record batch.
    ///     check_crc: Compare checksums; otherwise `isValid` is null and the records are not read.
    ///     on_error: At an invalid batch size: "raise", or end with a finding ("skip", "stop").
    ///
    /// Returns:
    ///     A reader of record batches with the columns position i64, size i32, magic i32, baseOffset i64, lastOffset i64, count
    ///     i32, crc i64, isValid bool, compression utf8, compressionId i32, timestampType i32, baseTimestamp and maxTimestamp
    ///     timestamp[ms, UTC], producerId i64, producerEpoch i32, baseSequence i32, lastSequence i32, partitionLeaderEpoch i32,
    ///     isTransactional bool, isControl bool, deleteHorizonMs timestamp[ms, UTC], controlTypes list<utf8>.
    #[pyo3(signature = (*, begin_position=0, end_position=None, columns=None, batch_size=8_192, check_crc=true, on_error="raise"))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin_position)] begin_position: i64,
        #[pyo3(from_py_with = integer::end_position)] end_position: Option<i64>,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
        check_crc: bool,
        on_error: &str,
    ) -> PyResult<PySegmentReader> {
        let scan = BatchScan {
            begin_position: arguments::size(begin_position, "begin_position")?,
            end_position: end_position.map(|p| arguments::size(p, "end_position")).transpose()?,
            columns: batch_columns::Column::choose(convert::column_names(columns)?.as_deref())?,
            batch_size: convert::batch_size(batch_size)?,
            check_crc,
            on_error: arguments::on_error(on_error)?,
        };
        self.batch_reader(py, scan)
    }

    /// Read the records, one row each, in the order of their offsets.
    ///
    /// Args:
    ///     begin_offset: First offset.
    ///     end_offset: End offset, which is not included.
    ///     begin: First timestamp.
    ///     end: Last timestamp.
    ///     columns: Names of columns, in their order; by default the first eight. Other columns are not built.
    ///     batch_size: The most rows of a batch, which ends earlier at 64 MiB; None: 8,192, or fewer in 3 MiB.
    ///     views: Return key and value as `BinaryView`: see `Log.records`.
    ///     control: Include control records.
    ///     aborted: (producer id, first offset, last offset) of transactions whose records are skipped.
    ///     check_crc: Compare checksums.
    ///     on_error: At damage: "raise", "skip" (note it and go on after the batch) or "stop" (note it and end). A torn or
    ///         zero tail ends the log with a finding in any case.
    ///     begin_position: Byte offset of a batch; by default found with the indexes.
    ///     end_position: Byte offset of the end; by default the end of the log.
    ///
    /// Returns:
    ///     A reader of record batches, which is also an Arrow stream, with the columns key and value binary, topic utf8,
    ///     partition i32, offset i64, timestamp timestamp[ms, UTC], timestampType i32, headers list<struct<key utf8, value
    ///     binary>>. More by name: partitionLeaderEpoch i32, producerId i64, producerEpoch i32, sequence i32, isTransactional
    ///     bool, isControl bool, magic i32, batchPosition i64, and for magic 0 and 1 crc i64 and isValid bool.
    #[pyo3(signature = (*, begin_offset=None, end_offset=None, begin=None, end=None, columns=None, batch_size=None, views=false, control=false, aborted=None, check_crc=true, on_error="raise", begin_position=None, end_position=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn records(
        &self,
        #[pyo3(from_py_with = integer::begin_offset)] begin_offset: Option<i64>,
        #[pyo3(from_py_with = integer::end_offset)] end_offset: Option<i64>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: Option<i64>,
        views: bool,
        control: bool,
        aborted: Option<&Bound<'_, PyAny>>,
        check_crc: bool,
        on_error: &str,
        #[pyo3(from_py_with = integer::begin_position)] begin_position: Option<i64>,
        #[pyo3(from_py_with = integer::end_position)] end_position: Option<i64>,
    ) -> PyResult<PySegmentReader> {
        let scan = arguments::record_scan(begin, end, columns, batch_size, control, check_crc, on_error)?;
        let scan = RecordScan { views, ..scan };
        let range = SegmentRange {
            begin_offset: begin_offset.unwrap_or(i64::MIN),
            end_offset: end_offset.unwrap_or(i64::MAX),
            begin_position: begin_position.map(|p| arguments::size(p, "begin_position")).transpose()?,
            end_position: end_position.map(|p| arguments::size(p, "end_position")).transpose()?,
            aborted: arguments::aborted(aborted)?,
            ..self.range()?
        };
        let reader = Decoding::new(SegmentReader::records(vec![range], scan)?, Formats::default(), None)?;
        Ok(PySegmentReader::new(reader, true))
    }

    /// Find the first batch whose last offset is at or above an offset.
    ///
    /// Returns:
    ///     (offset, position, size): the batch's base offset (its last offset with `compat` below 4.0), its byte offset and its
    ///     length; None if there is none.
    ///
    /// Raises:
    ///     CorruptFileError: A batch on the way is not valid.
    ///
    /// Source: `LogSegment#translateOffset`.
    #[pyo3(signature = (offset, starting_position=0))]
    fn translate_offset(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::offset)] offset: i64,
        #[pyo3(from_py_with = integer::starting_position)] starting_position: i64,
    ) -> PyResult<Option<(i64, u64, u32)>> {
        let segment = self.inner()?;
        let from = arguments::size(starting_position, "starting_position")?;
        let found = py.detach(|| segment.translate_offset(offset, from))?;
        Ok(found.map(|batch| (batch.offset, batch.position, batch.size)))
    }

    /// Find the bytes that a fetch returns: from the batch of an offset on.
    ///
    /// Args:
    ///     offset: The offset.
    ///     max_bytes: The most bytes.
    ///     max_position: The end of the bytes that may be read; by default the end of the file.
    ///     min_one_message: Return the first batch even if it is longer than `max_bytes`.
    ///
    /// Returns:
    ///     A `Slice`; None if the segment ends before the offset.
    ///
    /// Raises:
    ///     CorruptFileError: The log cannot be read up to the offset.
    ///     ValueError: A negative size, or a `max_position` before the batch.
    ///
    /// Source: `LogSegment#read`.
    #[pyo3(signature = (offset, max_bytes, *, max_position=None, min_one_message=true))]
    fn read(
        slf: Py<Self>,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::offset)] offset: i64,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: i64,
        #[pyo3(from_py_with = integer::max_position)] max_position: Option<i64>,
        min_one_message: bool,
    ) -> PyResult<Option<PySlice>> {
        let segment = slf.get().inner()?;
        let read = py.detach(|| segment.read(offset, max_bytes, max_position, min_one_message))?;
        Ok(read.map(|fetched| PySlice::new(slf, fetched)))
    }

    /// Return bytes of the log.
    ///
    /// Raises:
    ///     OSError: The log ends before them.
    fn slice_bytes<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = integer::position)] position: i64,
        #[pyo3(from_py_with = integer::size)] size: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.bytes_at(py, arguments::size(position, "position")?, arguments::size(size, "size")?)
    }

    /// Find the first record, by offset, with a timestamp at or after `t`.
    ///
    /// Args:
    ///     t: In ms, or an aware datetime.
    ///     starting_offset: Records below it do not count; by default the base offset.
    ///     control: Whether control records count; by default only with `compat`.
    ///
    /// Returns:
    ///     (timestamp, offset); None if there is none.
    ///
    /// Raises:
    ///     CorruptFileError: The log cannot be read up to the record.
    ///
    /// Source: `LogSegment#findOffsetByTimestamp`.
    #[pyo3(signature = (t, starting_offset=None, *, control=None))]
    fn offset_for_timestamp(
        &self,
        py: Python<'_>,
        t: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::starting_offset)] starting_offset: Option<i64>,
        control: Option<bool>,
    ) -> PyResult<Option<(i64, i64)>> {
        let found = self.find_at(py, t, starting_offset, control)?;
        Ok(found.map(|record| (record.timestamp, record.offset)))
    }

    /// Find the first record with a timestamp at or after `t`, as (timestamp, offset, leader epoch or None). The arguments are
    /// those of `offset_for_timestamp`.
    #[pyo3(signature = (t, starting_offset=None, *, control=None))]
    fn find_timestamp(
        &self,
        py: Python<'_>,
        t: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::starting_offset)] starting_offset: Option<i64>,
        control: Option<bool>,
    ) -> PyResult<Option<(i64, i64, Option<i32>)>> {
        let found = self.find_at(py, t, starting_offset, control)?;
        Ok(found.map(|record| (record.timestamp, record.offset, record.leader_epoch)))
    }

    /// Return the largest timestamp of the data records at or above an offset; -1 without any.
    ///
    /// Raises:
    ///     CorruptFileError: The batch that contains the offset cannot be read.
    fn largest_data_timestamp(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::start)] start: i64,
    ) -> PyResult<i64> {
        self.segment.call(py, |segment| segment.largest_data_timestamp(start))
    }

    /// Return the number of records by the headers of the batches, up to the first damage.
    fn record_count(&self, py: Python<'_>) -> PyResult<u64> {
        self.segment.call(py, Segment::record_count)
    }

    /// Return the transactions whose abort markers are in this segment.
    ///
    /// Args:
    ///     producers: The transactions that are open at the beginning of the segment; changed to those open at its end.
    ///
    /// Returns:
    ///     (producer id, first offset, offset of the marker) each.
    fn aborted_transactions(&self, py: Python<'_>, producers: Py<PyProducerState>) -> PyResult<Vec<(i64, i64, i64)>> {
        let segment = self.inner()?;
        let producers = producers.get();
        let aborted = py.detach(|| producers.with(|state| segment.aborted_transactions(state)))?;
        Ok(aborted.iter().map(|entry| (entry.producer_id, entry.first_offset, entry.last_offset)).collect())
    }

    /// Return the offset after the last batch; the base offset of a segment without batches.
    ///
    /// Raises:
    ///     CorruptFileError: The log cannot be read to its end.
    ///
    /// Source: `LogSegment#readNextOffset`.
    fn next_offset(&self, py: Python<'_>) -> PyResult<i64> {
        self.segment.call(py, Segment::next_offset)
    }

    /// Return the offset after the last batch that can be reached: `next_offset` unless the log cannot be read to its end.
    fn readable_end(&self, py: Python<'_>) -> PyResult<i64> {
        self.segment.call(py, Segment::readable_end)
    }

    /// Return the largest timestamp and the last offset of the first batch that has it; -1 and the base offset without any.
    ///
    /// With check "trust" that is the last entry of the time index, as for a broker that has just opened the segment.
    ///
    /// Raises:
    ///     CorruptFileError: The log cannot be read to its end.
    fn max_timestamp(&self, py: Python<'_>) -> PyResult<(i64, i64)> {
        let entry = self.segment.call(py, Segment::max_timestamp)?;
        Ok((entry.timestamp, entry.offset))
    }

    /// Find the valid part of the log, and rebuild its indexes. Nothing is written.
    ///
    /// Args:
    ///     index_interval_bytes: `index.interval.bytes` of the topic.
    ///     max_index_bytes: `segment.index.bytes` of the topic.
    ///     producers: Open transactions at the beginning of the segment; changed to those at its end.
    ///
    /// Raises:
    ///     CorruptFileError: Offsets decrease or do not fit in an index; the broker's own recovery fails there.
    ///     IndexFullError: An index is full.
    ///
    /// Source: `LogSegment#recover`.
    #[pyo3(signature = (*, index_interval_bytes=4096, max_index_bytes=10_485_760, producers=None))]
    fn recover(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::index_interval_bytes)] index_interval_bytes: i64,
        #[pyo3(from_py_with = integer::max_index_bytes)] max_index_bytes: i64,
        producers: Option<Py<PyProducerState>>,
    ) -> PyResult<PyRecoveredSegment> {
        self.recovered(py, index_interval_bytes, max_index_bytes, producers.as_ref()).map(PyRecoveredSegment::new)
    }

    /// Write the index files that a broker's recovery would write for this segment. The `.log` file is not truncated.
    ///
    /// Args:
    ///     directory: Where `.index`, `.timeindex` and, if a transaction was aborted, `.txnindex` are written.
    ///     index_interval_bytes: `index.interval.bytes` of the topic.
    ///     max_index_bytes: `segment.index.bytes` of the topic.
    ///     producers: Open transactions from the segments before this one, carried on; None: none are open.
    ///     overwrite: Replace existing files.
    ///
    /// Returns:
    ///     A report of what is wrong with the log: where it ends early, and why.
    ///
    /// Raises:
    ///     FileExistsError: A file exists; nothing was written.
    ///     LockedError: A running broker holds the log directory.
    #[pyo3(signature = (directory, *, index_interval_bytes=4096, max_index_bytes=10_485_760, producers=None, overwrite=false))]
    fn rebuild_indexes(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = location::local_path)] directory: PathBuf,
        #[pyo3(from_py_with = integer::index_interval_bytes)] index_interval_bytes: i64,
        #[pyo3(from_py_with = integer::max_index_bytes)] max_index_bytes: i64,
        producers: Option<Py<PyProducerState>>,
        overwrite: bool,
    ) -> PyResult<Report> {
        let base_offset = self.inner()?.base_offset();
        let recovered = self.recovered(py, index_interval_bytes, max_index_bytes, producers.as_ref())?;
        let files = py.detach(|| recovered.write_indexes(&directory, base_offset, overwrite))?;
        let checked = vec![("batches", recovered.batches), ("bytes", recovered.valid_bytes), ("files", files)];
        Ok(Report { findings: recovered.findings, checked })
    }

    /// Check the segment against its log. Findings are never raised.
    ///
    /// Args:
    ///     epochs: (leader epoch, first offset) each, in ascending order.
    ///     previous_end: End offset of the segment before it; None without one.
    ///     closed: Whether another segment follows.
    ///     offset_index: The offset index, if there is one.
    ///     time_index: The time index, if there is one.
    ///
    /// Returns:
    ///     A list of findings, and the offset after this segment.
    #[pyo3(signature = (epochs, *, previous_end=None, closed=false, offset_index=None, time_index=None))]
    fn verify_in_log(
        &self,
        py: Python<'_>,
        epochs: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::previous_end)] previous_end: Option<i64>,
        closed: bool,
        offset_index: Option<Location>,
        time_index: Option<Location>,
    ) -> PyResult<(Vec<Finding>, i64)> {
        let epochs = arguments::epochs(epochs)?;
        let log = LogContext {
            epochs: &epochs,
            previous_end,
            is_closed: closed,
            offset_index: offset_index.as_ref(),
            time_index: time_index.as_ref(),
        };
        self.segment.call(py, |segment| segment.verify_in_log(&log))
    }

    /// Check every batch, with `deep` every record, and the indexes next to the log. Findings are never raised.
    #[pyo3(signature = (*, deep=true))]
    fn verify(&self, py: Python<'_>, deep: bool) -> PyResult<Report> {
        self.segment.call(py, |segment| segment.verify(deep))
    }

    /// Close the log and the indexes. Running calls and readers go on.
    pub(super) fn close(&self) {
        self.segment.close();
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().inner()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        self.segment.text("LogSegment")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("logdex._core")?.getattr("_open_log_segment")?;
        let options = (
            self.path(),
            self.topic.clone(),
            self.partition,
            Some(check_word(self.check)),
            self.access.clone(),
            self.compat.clone(),
            self.max_batch_bytes,
        );
        Ok((open, options))
    }
}

/// The bytes of a fetch: they begin with a batch, and may end inside one.
#[pyclass(name = "Slice", module = "logdex.kafka", frozen)]
pub(super) struct PySlice {
    /// The segment.
    #[pyo3(get)]
    segment: Py<PyLogSegment>,
    /// The first byte in the `.log` file.
    #[pyo3(get)]
    position: u64,
    /// Length in bytes.
    #[pyo3(get)]
    size: u64,
    /// True if the first batch is longer than `size`.
    #[pyo3(get)]
    first_entry_incomplete: bool,
}

impl PySlice {
    pub(super) fn new(segment: Py<PyLogSegment>, fetched: Fetched) -> Self {
        let Fetched { position, size, first_entry_incomplete } = fetched;
        Self { segment, position, size, first_entry_incomplete }
    }
}

#[pymethods]
impl PySlice {
    /// Read the headers of the whole batches; see `LogSegment.batches`.
    fn batches(&self, py: Python<'_>) -> PyResult<PySegmentReader> {
        self.segment.get().batches_between(py, self.position, self.position.saturating_add(self.size))
    }

    /// Read the bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.segment.get().bytes_at(py, self.position, self.size)
    }

    fn __repr__(&self) -> String {
        let Self { position, size, first_entry_incomplete, .. } = self;
        let incomplete = if *first_entry_incomplete { "True" } else { "False" };
        format!("Slice(position={position}, size={size}, first_entry_incomplete={incomplete})")
    }
}
