//! `read_records`: ranges of segments as one stream; `unlisted_transactions`; `internal_as_json`.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatch;

use super::super::convert::ArrowBatch;
use super::super::decode::{Decoding, Formats};
use super::super::{convert, integer, pattern};
use super::arguments;
use super::reader::PySegmentReader;
use super::segment::PyLogSegment;
use crate::kafka::{self, RecordScan, SegmentRange, SegmentReader};
use crate::report::Finding;

register! { fn unlisted_transactions, read_records, internal_as_json }

/// A range in Python: the segment, the first offset, the end offset, and the transactions to skip.
type PyRange<'py> = (Py<PyLogSegment>, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// The missing parts of a log, each with the number of the range after it.
type MissingParts = Vec<(usize, Finding)>;

/// The ranges of a plan, and what is missing.
pub(super) fn planned(py: Python<'_>, parts: &Bound<'_, PyAny>) -> PyResult<(Vec<SegmentRange>, MissingParts)> {
    let (mut ranges, mut missing) = (Vec::new(), Vec::new());
    for part in parts.try_iter()? {
        let part = part?;
        if !part.is_instance_of::<PyTuple>() {
            missing.push((ranges.len(), part.extract()?));
            continue;
        }
        let (segment, begin_offset, end_offset, aborted): PyRange<'_> = part.extract()?;
        let mut range = segment.borrow(py).range()?;
        range.begin_offset = integer::begin_offset::<Option<i64>>(&begin_offset)?.unwrap_or(i64::MIN);
        range.end_offset = integer::end_offset::<Option<i64>>(&end_offset)?.unwrap_or(i64::MAX);
        range.aborted = arguments::aborted(aborted.as_ref())?;
        ranges.push(range);
    }
    Ok((ranges, missing))
}

/// Read ranges of segments, in their order, as one stream. Files are open only while they are read.
///
/// Args:
///     parts: (segment, begin_offset, end_offset, aborted) each, see `LogSegment.records`; or a `Finding`, for what is missing
///         at this place.
///     begin: First timestamp.
///     end: Last timestamp.
///     columns: Names of columns; by default the first eight.
///     keys: Only records whose key is one of these; a `str` is encoded as UTF-8.
///     header: Compare the values of the header of this name with `keys`, not the record's key.
///     offsets: Only records at these offsets.
///     matches: Only records in which this pattern is found: a `str` or `bytes` for values, or a `Pattern`.
///     batch_size: The most rows of a batch, which ends earlier at 64 MiB; None: 8,192, or fewer in 3 MiB.
///     views: Return keys and values as Arrow's `BinaryView`.
///     control: Include control records.
///     check_crc: Compare checksums.
///     on_error: "raise", "skip" or "stop".
///     warn: Issue a `DamageWarning` at the end for what was passed over; false if the caller reports it.
///     threads: Threads that read and decode, of segments on this machine; None: as many as there are processors, at most 4. The reader
///         must not go on in a forked process if there are several.
///     decode: The formats of columns of bytes: "text", "json", "avro:FILE", "avro:DIRECTORY", or the Arrow schema of JSON objects.
///     progress: Called after each batch with the bytes of segments that were read, and None.
///
/// Returns:
///     A reader of record batches, which is also an Arrow stream.
#[pyfunction]
#[pyo3(signature = (parts, *, begin=None, end=None, columns=None, keys=None, header=None, offsets=None, matches=None, batch_size=None, views=false, control=false, check_crc=true, on_error="raise", warn=true, threads=None, decode=None, progress=None))]
#[expect(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keywords of the Python call")]
fn read_records(
    py: Python<'_>,
    parts: &Bound<'_, PyAny>,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    columns: Option<&Bound<'_, PyAny>>,
    keys: Option<&Bound<'_, PyAny>>,
    header: Option<String>,
    offsets: Option<&Bound<'_, PyAny>>,
    matches: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = integer::batch_size)] batch_size: Option<i64>,
    views: bool,
    control: bool,
    check_crc: bool,
    on_error: &str,
    warn: bool,
    #[pyo3(from_py_with = integer::threads)] threads: Option<i64>,
    decode: Option<Formats>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PySegmentReader> {
    let offsets = offsets.map(|offsets| {
        let offsets = convert::int64_column(offsets, "offsets")?;
        convert::values(&offsets, "offset").map(<[i64]>::to_vec)
    });
    let decode = decode.unwrap_or_default();
    let scan = RecordScan {
        keys: arguments::key_filter(keys, header)?,
        offsets: offsets.transpose()?,
        matcher: pattern::matcher(matches)?,
        threads: convert::threads(threads)?,
        batch_size: decode.batch_size(batch_size)?,
        views,
        ..arguments::record_scan(begin, end, columns, batch_size, control, check_crc, on_error)?
    };
    let (ranges, missing) = planned(py, parts)?;
    let reader = SegmentReader::records_of_log(ranges, missing, scan)?;
    let reader = py.detach(|| Decoding::new(reader, decode, progress))?;
    Ok(PySegmentReader::new(reader, warn))
}

/// Name the first aborted transaction that each index misses, for the segments of a log.
///
/// Args:
///     segments: The segments, in ascending order.
///     after_crash: Whether the index of the last segment does not count.
#[pyfunction]
#[pyo3(signature = (segments, *, after_crash))]
fn unlisted_transactions(py: Python<'_>, segments: Vec<Py<PyLogSegment>>, after_crash: bool) -> PyResult<Vec<Finding>> {
    let segments = segments.iter().map(|segment| segment.get().inner()).collect::<PyResult<Vec<_>>>()?;
    Ok(py.detach(|| kafka::unlisted_transactions(&segments, after_crash))?)
}

/// Return records with JSON as keys and values of Kafka's internal topics, as kafka-dump-log prints them.
///
/// The columns `topic` and `key` are needed; a key or value of another form, and other batches, are returned as they are.
#[pyfunction]
fn internal_as_json(py: Python<'_>, records: PyRecordBatch) -> ArrowBatch {
    let records = records.into_inner();
    ArrowBatch(py.detach(|| kafka::with_json(records)))
}
