//! `SegmentReader`: records or batches of segments as record batches.

use arrow_array::RecordBatch;
use pyo3::prelude::*;

use super::super::batch_stream::{BatchStream, Batches, batch_reader};
use super::super::report;
use crate::error::Result;
use crate::kafka::SegmentReader;
use crate::report::Finding;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySegmentReader>()
}

/// What is known of the way through the segments.
#[derive(Clone)]
pub(in super::super) struct Notes {
    findings: Vec<Finding>,
    position: u64,
    bytes_read: u64,
}

impl Batches for SegmentReader {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.next_batch()
    }

    fn notes(&self) -> Notes {
        Notes { findings: self.findings().to_vec(), position: self.position(), bytes_read: self.bytes_read() }
    }
}

/// Records or batches of segments as record batches: an iterator and an Arrow stream.
///
/// The iterator releases the interpreter lock. It raises `CorruptFileError` for damage and `OSError` for the system's errors.
#[pyclass(name = "SegmentReader", module = "logdex._core", frozen)]
pub(super) struct PySegmentReader(BatchStream<SegmentReader>);

impl PySegmentReader {
    pub(super) fn new(reader: SegmentReader) -> Self {
        Self(BatchStream::new(reader))
    }
}

batch_reader! {
    PySegmentReader {
        /// Findings so far that were not raised, as a list of `logdex.report.Finding`: torn and zero tails, skipped batches.
        #[getter]
        fn findings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
            report::findings(py, &self.0.notes(py).findings)
        }

        /// Byte offset in the current segment, after the last whole batch that was read.
        #[getter]
        fn position(&self, py: Python<'_>) -> u64 {
            self.0.notes(py).position
        }

        /// Bytes of segments that were read so far.
        #[getter]
        fn bytes_read(&self, py: Python<'_>) -> u64 {
            self.0.notes(py).bytes_read
        }
    }
}
