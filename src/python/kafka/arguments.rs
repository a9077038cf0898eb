//! Arguments and results that the Kafka classes share: words with few values, findings, struct columns.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3_arrow::PyArray;

use crate::kafka::{AbortedRange, Check, Compat, Finding, OnError, Segment, SegmentOptions, Verified};

/// "verify" or "trust".
pub(super) fn check(word: &str) -> PyResult<Check> {
    match word {
        "verify" => Ok(Check::Verify),
        "trust" => Ok(Check::Trust),
        _ => Err(PyValueError::new_err(format!("check is \"verify\" or \"trust\", not {word:?}"))),
    }
}

pub(super) fn check_word(check: Check) -> &'static str {
    match check {
        Check::Verify => "verify",
        Check::Trust => "trust",
    }
}

/// A Kafka release whose answers are wanted, or `None`.
pub(super) fn compat(word: Option<&str>) -> PyResult<Option<Compat>> {
    word.map(|word| {
        Compat::parse(word).ok_or_else(|| {
            PyValueError::new_err(format!("compat is None or a release such as \"3.9.0\", not {word:?}"))
        })
    })
    .transpose()
}

/// "r" or "r+".
pub(super) fn write_mode(mode: &str) -> PyResult<bool> {
    match mode {
        "r" => Ok(false),
        "r+" => Ok(true),
        _ => Err(PyValueError::new_err(format!("mode is \"r\" or \"r+\", not {mode:?}"))),
    }
}

/// "raise", "skip" or "stop".
pub(super) fn on_error(word: &str) -> PyResult<OnError> {
    match word {
        "raise" => Ok(OnError::Raise),
        "skip" => Ok(OnError::Skip),
        "stop" => Ok(OnError::Stop),
        _ => Err(PyValueError::new_err(format!("on_error is \"raise\", \"skip\" or \"stop\", not {word:?}"))),
    }
}

/// Names of columns, from anything but one string.
pub(super) fn names(names: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    names
        .map(|names| {
            if names.is_instance_of::<PyString>() {
                return Err(PyValueError::new_err("columns: expected names, got one string; put it into a list"));
            }
            names.try_iter()?.map(|name| name?.extract::<String>()).collect()
        })
        .transpose()
}

/// A number of bytes or rows.
pub(super) fn size(value: i64, what: &str) -> PyResult<u64> {
    u64::try_from(value).map_err(|_| PyValueError::new_err(format!("{what} is 0 or more, not {value}")))
}

/// A number of rows; 0 is refused where it is used.
pub(super) fn rows(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Ranges of transactions that were rolled back.
pub(super) fn aborted(ranges: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<AbortedRange>> {
    let Some(ranges) = ranges.filter(|ranges| !ranges.is_none()) else { return Ok(Vec::new()) };
    ranges
        .try_iter()?
        .map(|range| {
            let (producer_id, first_offset, last_offset) = range?.extract()?;
            Ok(AbortedRange { producer_id, first_offset, last_offset })
        })
        .collect()
}

/// The segment beside an index, where there is one of its name.
pub(super) fn log_of_index(path: &Path, suffix: &str) -> Option<Segment> {
    let name = path.file_name()?.to_str()?.strip_suffix(suffix)?;
    let log = path.with_file_name(format!("{name}.log"));
    log.is_file().then(|| Segment::open(&log, SegmentOptions::default()).ok()).flatten()
}

/// `logdex.report.Finding` of each.
pub(super) fn findings<'py>(py: Python<'py>, findings: &[Finding]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let finding = py.import("logdex.report")?.getattr("Finding")?;
    findings
        .iter()
        .map(|f| finding.call1((f.path.display().to_string(), f.offset, f.kind.word(), &f.expected, &f.found)))
        .collect()
}

/// A `logdex.report.Report`.
pub(super) fn report<'py>(py: Python<'py>, verified: &Verified) -> PyResult<Bound<'py, PyAny>> {
    let counts = PyDict::new(py);
    for (name, count) in &verified.checked {
        counts.set_item(name, count)?;
    }
    let found = findings(py, &verified.findings)?;
    py.import("logdex.report")?.getattr("Report")?.call1((found, counts))
}

/// A struct column of these fields.
pub(super) fn struct_array<'py>(
    py: Python<'py>,
    fields: Vec<(&str, ArrayRef)>,
    nulls: Option<NullBuffer>,
) -> PyResult<Bound<'py, PyAny>> {
    let (names, arrays): (Vec<Field>, Vec<ArrayRef>) =
        fields.into_iter().map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array)).unzip();
    let fields = Fields::from(names);
    let array: ArrayRef = Arc::new(StructArray::new(fields.clone(), arrays, nulls));
    let field = Arc::new(Field::new("", DataType::Struct(fields), true));
    PyArray::try_new(array, field).map_err(|e| PyValueError::new_err(e.to_string()))?.into_arro3(py)
}
