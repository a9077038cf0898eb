//! `MessageReader`: what a scan of the log gives.

use arrow_array::RecordBatch;
use pyo3::prelude::*;

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::report;
use crate::error::Result;
use crate::io::FileSource;
use crate::report::Report;
use crate::rocketmq::commit_log::MessageReader;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyMessageReader>()
}

/// The state of a scan.
#[derive(Clone)]
pub(super) struct Notes {
    end_offset: Option<u64>,
    checked: Report,
    missing: Vec<i64>,
}

impl Batches for MessageReader<FileSource> {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Notes {
        Notes {
            end_offset: self.stop().map(|stop| stop.phy_offset),
            checked: self.checked().clone(),
            missing: self.missing().to_vec(),
        }
    }
}

/// Messages as record batches: an iterator, and an Arrow stream for a consumer.
///
/// As an iterator it releases the interpreter lock and raises I/O errors as they are.
#[pyclass(name = "MessageReader", module = "logdex._core", frozen)]
pub(super) struct PyMessageReader(BatchStream<MessageReader<FileSource>>);

impl PyMessageReader {
    pub(super) fn new(reader: MessageReader<FileSource>) -> Self {
        Self(BatchStream::new(reader))
    }
}

batch_reader! {
    PyMessageReader {
        /// Offset in the log where the scan ended; None while it goes on, and where it was handed over or closed before.
        #[getter]
        fn end_offset(&self, py: Python<'_>) -> PyResult<Option<u64>> {
            Ok(self.0.notes(py)?.end_offset)
        }

        /// The offsets read so far without a valid message, if `message_batches` was called with a selection.
        #[getter]
        fn missing(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
            Ok(self.0.notes(py)?.missing)
        }

        /// The findings so far, as a `logdex.report.Report`. After a hand-over, those of the new stream are not in it.
        #[getter]
        fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            report::report(py, &self.0.notes(py)?.checked)
        }
    }
}
