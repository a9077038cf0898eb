//! `key_entries` and `key_text`, the entries of a key index; `record_batch`, the records that a search found.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3_arrow::PyRecordBatch;

use super::super::convert::ArrowBatch;
use crate::kafka;

register! { fn key_entries, key_text, record_batch }

/// Return the index entries of a batch of records: topic, key, phy_offset (the record's offset) and store_timestamp.
///
/// Args:
///     records: A batch with the columns topic, key, offset and timestamp, and headers if `header` is given.
///     header: The name of a header whose values are indexed next to the keys.
#[pyfunction]
#[pyo3(signature = (records, header=None))]
fn key_entries(py: Python<'_>, records: PyRecordBatch, header: Option<&str>) -> PyResult<ArrowBatch> {
    let records = records.into_inner();
    Ok(ArrowBatch(py.detach(|| kafka::key_entries(&records, header))?))
}

/// Return the text of a key in the index: the key itself if it is UTF-8, otherwise its hexadecimal digits.
#[pyfunction]
fn key_text(key: &[u8]) -> String {
    kafka::key_text(key).into_owned()
}

/// A `logdex.kafka.find.Record`.
#[derive(FromPyObject)]
struct Record {
    topic: String,
    partition: i32,
    offset: i64,
    timestamp: i64,
    timestamp_type: i32,
    key: Option<PyBackedBytes>,
    value: Option<PyBackedBytes>,
    headers: Vec<(String, Option<PyBackedBytes>)>,
}

/// Return `logdex.kafka.find.Record` objects as a batch of record columns.
#[pyfunction]
fn record_batch(records: Vec<Record>) -> PyResult<ArrowBatch> {
    let rows: Vec<_> = records
        .into_iter()
        .map(|record| kafka::RecordRow {
            topic: record.topic,
            partition: record.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            timestamp_type: record.timestamp_type,
            key: record.key,
            value: record.value,
            headers: record.headers,
        })
        .collect();
    Ok(ArrowBatch(kafka::record_batch(&rows)?))
}
