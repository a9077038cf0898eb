//! `control_record`: a control record as a dict with the names of Kafka's messages.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::kafka::control_record::{Content, ControlRecord, Endpoint, Voter};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(control_record, m)?)
}

/// Decode a control record.
///
/// Returns:
///     `type` and `id`. A marker of a transaction has `coordinatorEpoch`; a record of KRaft's log has `message`, the name of
///     its message, and `value`, the fields. Both are missing if the value does not have the form of its type.
#[pyfunction]
fn control_record<'py>(py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let record = ControlRecord::decode(key, value);
    let dict = PyDict::new(py);
    dict.set_item("type", record.kind.name())?;
    dict.set_item("id", record.kind.id())?;
    let message = match record.content {
        None => None,
        Some(Content::Marker { coordinator_epoch }) => {
            dict.set_item("coordinatorEpoch", coordinator_epoch)?;
            None
        }
        Some(Content::SnapshotHeader { version, last_contained_log_timestamp }) => {
            let field = ("lastContainedLogTimestamp", last_contained_log_timestamp.into_bound_py_any(py)?);
            Some(("SnapshotHeader", version, Some(field)))
        }
        Some(Content::SnapshotFooter { version }) => Some(("SnapshotFooter", version, None)),
        Some(Content::KRaftVersion { version, kraft_version }) => {
            Some(("KRaftVersion", version, Some(("kRaftVersion", kraft_version.into_bound_py_any(py)?))))
        }
        Some(Content::KRaftVoters { version, voters }) => {
            let voters = voters.iter().map(|each| voter(py, each)).collect::<PyResult<Vec<_>>>()?;
            Some(("KRaftVoters", version, Some(("voters", PyList::new(py, voters)?.into_any()))))
        }
    };
    if let Some((name, version, field)) = message {
        let fields = PyDict::new(py);
        fields.set_item("version", version)?;
        if let Some((name, value)) = field {
            fields.set_item(name, value)?;
        }
        dict.set_item("message", name)?;
        dict.set_item("value", fields)?;
    }
    Ok(dict)
}

fn voter<'py>(py: Python<'py>, voter: &Voter) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("voterId", voter.id)?;
    fields.set_item("voterDirectoryId", uuid_text(voter.directory_id))?;
    let endpoints = voter.endpoints.iter().map(|each| endpoint(py, each)).collect::<PyResult<Vec<_>>>()?;
    fields.set_item("endpoints", endpoints)?;
    let versions = PyDict::new(py);
    versions.set_item("minSupportedVersion", voter.versions.0)?;
    versions.set_item("maxSupportedVersion", voter.versions.1)?;
    fields.set_item("kRaftVersionFeature", versions)?;
    Ok(fields)
}

fn endpoint<'py>(py: Python<'py>, endpoint: &Endpoint) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("name", &endpoint.name)?;
    fields.set_item("host", &endpoint.host)?;
    fields.set_item("port", endpoint.port)?;
    Ok(fields)
}

/// A UUID as Kafka writes it: base64 for URLs, without padding.
fn uuid_text(id: [u8; 16]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = u128::from_be_bytes(id);
    let digit = |place: u32| {
        // The last digit has two bits of the number and four zeros.
        let bits = if place == 21 { number << 4 } else { number >> (122 - 6 * place) };
        DIGITS.get(usize::from(bits.to_le_bytes()[0] & 63)).copied().map_or('A', char::from)
    };
    (0..22).map(digit).collect()
}
