//! What a check found, as `logdex.report.Report`.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::hash_index::IndexFile;
use crate::{hash_index, kafka, rocketmq};

/// Of one index file.
pub(super) fn of_file<'py>(
    py: Python<'py>,
    file: &IndexFile,
    checked: &hash_index::Checked,
) -> PyResult<Bound<'py, PyAny>> {
    let findings =
        checked.findings.iter().map(|f| (file.path(), f.offset, f.kind, f.expected.as_str(), f.found.as_str()));
    report(py, findings, [("files", 1), ("slots", checked.slots), ("entries", checked.entries)])
}

/// Of several files of a store.
pub(super) fn of_store<'py>(py: Python<'py>, checked: &rocketmq::findings::Checked) -> PyResult<Bound<'py, PyAny>> {
    let findings =
        checked.findings.iter().map(|f| (f.path.as_path(), f.offset, f.kind, f.expected.as_str(), f.found.as_str()));
    report(py, findings, checked.counts.iter().copied())
}

/// Of a segment of Kafka, or an index of one.
pub(super) fn of_segment<'py>(py: Python<'py>, verified: &kafka::Verified) -> PyResult<Bound<'py, PyAny>> {
    report(py, verified.findings.iter().map(of_kafka), verified.checked.iter().copied())
}

/// Findings in segments of Kafka, each as `logdex.report.Finding`.
pub(super) fn findings_in_segments<'py>(py: Python<'py>, found: &[kafka::Finding]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    findings(py, found.iter().map(of_kafka))
}

fn of_kafka(found: &kafka::Finding) -> Found<'_> {
    (&found.path, found.offset, found.kind.word(), &found.expected, &found.found)
}

/// Path, offset, kind, expected, found.
type Found<'a> = (&'a Path, u64, &'a str, &'a str, &'a str);

fn findings<'a, 'py>(py: Python<'py>, found: impl Iterator<Item = Found<'a>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let finding = py.import("logdex.report")?.getattr("Finding")?;
    found
        .map(|(path, offset, kind, expected, found)| {
            finding.call1((path.display().to_string(), offset, kind, expected, found))
        })
        .collect()
}

fn report<'a, 'py>(
    py: Python<'py>,
    found: impl Iterator<Item = Found<'a>>,
    counts: impl IntoIterator<Item = (&'a str, u64)>,
) -> PyResult<Bound<'py, PyAny>> {
    let checked = PyDict::new(py);
    for (name, count) in counts {
        checked.set_item(name, count)?;
    }
    py.import("logdex.report")?.getattr("Report")?.call1((findings(py, found)?, checked))
}
