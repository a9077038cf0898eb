//! What a check found, as `logdex.report.Report`.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::hash_index::IndexFile;
use crate::{hash_index, rocketmq};

/// Of one index file.
pub(super) fn of_file<'py>(
    py: Python<'py>,
    file: &IndexFile,
    checked: &hash_index::Checked,
) -> PyResult<Bound<'py, PyAny>> {
    let findings = checked.findings.iter().map(|f| (file.path(), f.offset, f.kind, &f.expected, &f.found));
    report(py, findings, [("files", 1), ("slots", checked.slots), ("entries", checked.entries)])
}

/// Of several files of a store.
pub(super) fn of_store<'py>(py: Python<'py>, checked: &rocketmq::findings::Checked) -> PyResult<Bound<'py, PyAny>> {
    let findings = checked.findings.iter().map(|f| (f.path.as_path(), f.offset, f.kind, &f.expected, &f.found));
    report(py, findings, checked.counts.iter().copied())
}

fn report<'a, 'py>(
    py: Python<'py>,
    findings: impl Iterator<Item = (&'a Path, u64, &'a str, &'a String, &'a String)>,
    counts: impl IntoIterator<Item = (&'a str, u64)>,
) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("logdex.report")?;
    let finding = module.getattr("Finding")?;
    let findings = findings
        .map(|(path, offset, kind, expected, found)| {
            finding.call1((path.display().to_string(), offset, kind, expected, found))
        })
        .collect::<PyResult<Vec<_>>>()?;
    let checked = PyDict::new(py);
    for (name, count) in counts {
        checked.set_item(name, count)?;
    }
    module.getattr("Report")?.call1((findings, checked))
}
