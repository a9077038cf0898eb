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

/// A range in Python: the segment, the first offset, the end offset, and the transactions to skip.
type PyRange<'py> = (Py<PyLogSegment>, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// Read ranges of segments, in their order, as one stream. Files are open only while they are read.
///
/// Args:
///     parts: (segment, begin_offset, end_offset, aborted) each; see `LogSegment.records`.
///     begin: First timestamp.
///     end: Last timestamp.
///     columns: Names of columns; by default the first eight.
///     keys: Only records whose key is one of these; a `str` is encoded as UTF-8.
///     header: Compare the values of the header of this name with `keys`, not the record's key.
///     offsets: Only records at these offsets.
///     batch_size: Rows of a batch; it ends earlier at 64 MiB.
///     control: Include control records.
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
    let ranges = parts
        .try_iter()?
        .map(|part| {
            let (segment, begin_offset, end_offset, aborted): PyRange<'_> = part?.extract()?;
            let mut range = segment.borrow(py).range()?;
            range.begin_offset = integer::begin_offset::<Option<i64>>(&begin_offset)?.unwrap_or(i64::MIN);
            range.end_offset = integer::end_offset::<Option<i64>>(&end_offset)?.unwrap_or(i64::MAX);
            range.aborted = arguments::aborted(aborted.as_ref())?;
            Ok(range)
        })
        .collect::<PyResult<Vec<_>>>()?;
    Ok(PySegmentReader::new(SegmentReader::records(ranges, scan)?))
}
