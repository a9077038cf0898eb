//! `SegmentReader`: records or batches of segments as record batches.

use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::super::batch_stream::{BatchStream, Batches, in_frame, stream_of};
use super::super::convert::{ArrowBatch, ArrowSchema, ArrowTable};
use super::super::decode::{Decoding, Measured};
use super::super::handle::lock;
use super::super::report;
use crate::error::Result;
use crate::kafka::{SegmentReader, UnreadOffsets};
use crate::report::Finding;

register! { class PySegmentReader }

/// Topic, partition, first offset, the offset after the last one, and bytes of the log.
type PyUnread = (Option<String>, Option<i32>, i64, i64, u64);

/// The state of the walk through the segments.
#[derive(Clone)]
pub(in super::super) struct Notes {
    findings: Vec<Finding>,
    damage: Vec<Finding>,
    unread: Vec<UnreadOffsets>,
    position: u64,
    bytes_read: u64,
}

impl Batches for SegmentReader {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.next_batch()
    }

    fn notes(&self) -> Notes {
        Notes {
            findings: self.findings().to_vec(),
            damage: self.damage().to_vec(),
            unread: self.unread().to_vec(),
            position: self.position(),
            bytes_read: self.bytes_read(),
        }
    }
}

impl Measured for SegmentReader {
    fn progress(&mut self) -> Result<(u64, u64)> {
        Ok((self.bytes_read().min(self.total_bytes()), self.total_bytes()))
    }
}

/// The reader in the hands of an Arrow consumer. Its object in Python still has the findings.
struct HandedOver {
    reader: Decoding<SegmentReader>,
    notes: Arc<Mutex<Option<Notes>>>,
    warns: bool,
}

impl Iterator for HandedOver {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.reader.next();
        let notes = self.reader.notes();
        let warned = if next.is_none() && std::mem::take(&mut self.warns) && !notes.damage.is_empty() {
            Python::attach(|py| report::warn(py, notes.damage.clone()))
        } else {
            Ok(())
        };
        *lock(&self.notes) = Some(notes);
        warned.map_or_else(|error| Some(Err(ArrowError::ExternalError(Box::new(error)))), |()| next)
    }
}

impl RecordBatchReader for HandedOver {
    fn schema(&self) -> SchemaRef {
        RecordBatchReader::schema(&self.reader)
    }
}

/// Records or batches of segments as record batches: an iterator and an Arrow stream.
///
/// The iterator releases the interpreter lock. It raises `CorruptFileError` for damage and `OSError` for I/O errors.
/// If damage was passed over, it issues one `DamageWarning` at its end, also when another consumer reads the stream.
#[pyclass(name = "SegmentReader", module = "logdex._core", frozen)]
pub(super) struct PySegmentReader {
    stream: BatchStream<Decoding<SegmentReader>>,
    /// The facts known since the reader was handed over.
    handed_over: Arc<Mutex<Option<Notes>>>,
    /// True if damage is still to be warned about.
    warns: Mutex<bool>,
}

impl PySegmentReader {
    /// `warns`: else the caller reports the findings.
    pub(super) fn new(reader: Decoding<SegmentReader>, warns: bool) -> Self {
        Self { stream: BatchStream::new(reader), handed_over: Arc::default(), warns: Mutex::new(warns) }
    }

    fn notes(&self, py: Python<'_>) -> PyResult<Notes> {
        let handed_over = lock(&self.handed_over).clone();
        handed_over.map_or_else(|| self.stream.notes(py), Ok)
    }

    fn takes_warning(&self) -> bool {
        std::mem::take(&mut *lock(&self.warns))
    }

    /// Warn once about what was left out.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let damage = self.notes(py)?.damage;
        if !damage.is_empty() && self.takes_warning() { report::warn(py, damage) } else { Ok(()) }
    }
}

#[pymethods]
impl PySegmentReader {
    /// The schema of the batches.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        self.stream.schema()
    }

    fn __repr__(&self) -> String {
        self.stream.text("SegmentReader")
    }

    /// True after `close`, `read_all`, or after it was passed on as a stream.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.stream.closed(py)
    }

    /// Findings so far that were not raised, as a list of `logdex.report.Finding`: torn and zero tails, skipped batches, missing
    /// segments. It is also filled after the stream was passed to a consumer.
    #[getter]
    fn findings(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        Ok(self.notes(py)?.findings)
    }

    /// The findings that left out rows: not the torn or zero tail of the last segment, which a broker may still write.
    #[getter]
    fn damage(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        Ok(self.notes(py)?.damage)
    }

    /// The offsets that damage hides: topic, partition, first offset, the offset after the last one, and bytes of the log. The end
    /// of the log may be unknown: it is then 2^63 - 1. Missing segments are only in the findings.
    #[getter]
    fn unread(&self, py: Python<'_>) -> PyResult<Vec<PyUnread>> {
        let of = |each: UnreadOffsets| (each.topic, each.partition, each.begin_offset, each.end_offset, each.bytes);
        Ok(self.notes(py)?.unread.into_iter().map(of).collect())
    }

    /// Byte offset in the current segment, after the last whole batch that was read.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.notes(py)?.position)
    }

    /// Bytes of segments that were read so far.
    #[getter]
    fn bytes_read(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.notes(py)?.bytes_read)
    }

    /// Return the next batch.
    ///
    /// Raises:
    ///     StopIteration: There is no further batch.
    ///     CorruptFileError: A segment is damaged; the reader is at its end.
    ///     OSError: A file cannot be read; the reader is at its end.
    fn read_next_batch(&self, py: Python<'_>) -> PyResult<ArrowBatch> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Return the remaining batches as a table.
    fn read_all(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let table = self.stream.read_all(py)?;
        self.finish(py)?;
        Ok(table)
    }

    /// Return the remaining batches as a `pandas.DataFrame`; see `BatchStream.to_pandas`.
    ///
    /// Raises:
    ///     ImportError: pandas or pyarrow is not installed.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        in_frame(py, self.read_all(py)?, "to_pandas")
    }

    /// Return the remaining batches as a `polars.DataFrame`.
    ///
    /// Raises:
    ///     ImportError: polars is not installed.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        in_frame(py, self.read_all(py)?, "to_polars")
    }

    /// Return the remaining batches as an `arro3.core.Table`, which `pyarrow.table` takes without a copy.
    fn to_arrow(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        self.read_all(py)
    }

    /// Close the files.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stream.close(py);
        self.finish(py)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let next = self.stream.next(py)?;
        if next.is_none() {
            self.finish(py)?;
        }
        Ok(next)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.stream.schema_capsule(py)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.stream.take(py)?;
        let given = HandedOver { reader, notes: Arc::clone(&self.handed_over), warns: self.takes_warning() };
        stream_of(py, Box::new(given), requested_schema)
    }
}
