//! `read_records`: ranges of segments as one stream.

use pyo3::prelude::*;

use super::super::{convert, integer};
use super::arguments;
use super::reader::PySegmentReader;
use super::segment::PyLogSegment;
use crate::kafka::{RecordScan, SegmentReader};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_records, m)?)
}

/// A part in Python: the segment, its first and its end offset, the transactions that are left out.
type PyPart<'py> = (Py<PyLogSegment>, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// Read parts of segments, in their order, as one stream. Their files are open only while they are read.
///
/// Args:
///     parts: (segment, begin_offset, end_offset, aborted) each; see `LogSegment.records`.
///     begin: First timestamp.
///     end: Last timestamp.
///     columns: Names of columns; the first eight where not given.
///     keys: Only records whose key is one of these; a `str` stands for its UTF-8 bytes. Batches may then be empty.
///     header: Compare the values of the header of this name with `keys`, not the record's key.
///     offsets: Only records at these offsets.
///     batch_size: Rows of a batch; it ends earlier at 64 MiB.
///     control: Markers of the broker as well.
///     check_crc: Compare checksums.
///     on_error: "raise", "skip" or "stop".
///
/// Returns:
///     A reader of record batches, which is also an Arrow stream.
#[pyfunction]
#[pyo3(signature = (parts, *, begin=None, end=None, columns=None, keys=None, header=None, offsets=None, batch_size=8_192, control=false, check_crc=true, on_error="raise"))]
#[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
fn read_records(
    py: Python<'_>,
    parts: &Bound<'_, PyAny>,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    columns: Option<&Bound<'_, PyAny>>,
    keys: Option<&Bound<'_, PyAny>>,
    header: Option<String>,
    offsets: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
    control: bool,
    check_crc: bool,
    on_error: &str,
) -> PyResult<PySegmentReader> {
    let offsets = offsets.map(|offsets| {
        let offsets = convert::int64_column(offsets, "offsets")?;
        convert::values(&offsets, "offset").map(<[i64]>::to_vec)
    });
    let scan = RecordScan {
        keys: arguments::key_filter(keys, header)?,
        offsets: offsets.transpose()?,
        ..arguments::record_scan(begin, end, columns, batch_size, control, check_crc, on_error)?
    };
    let parts = parts
        .try_iter()?
        .map(|part| {
            let (segment, begin_offset, end_offset, aborted): PyPart<'_> = part?.extract()?;
            let mut part = segment.borrow(py).part()?;
            part.begin_offset = integer::begin_offset::<Option<i64>>(&begin_offset)?.unwrap_or(i64::MIN);
            part.end_offset = integer::end_offset::<Option<i64>>(&end_offset)?.unwrap_or(i64::MAX);
            part.aborted = arguments::aborted(aborted.as_ref())?;
            Ok(part)
        })
        .collect::<PyResult<Vec<_>>>()?;
    Ok(PySegmentReader::new(SegmentReader::records(parts, scan)?))
}
