//! The Kafka part of the extension module.

mod arguments;
mod batch_spool;
mod files;
mod find;
mod group_offsets;
mod key_entries;
mod log;
mod log_writer;
mod producer_state;
mod reader;
mod records;
mod recovered;
mod segment;
mod sparse_index;

use pyo3::prelude::*;

pub(super) use segment::PyLogSegment;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    sparse_index::register(m)?;
    reader::register(m)?;
    segment::register(m)?;
    key_entries::register(m)?;
    log::register(m)?;
    find::register(m)?;
    log_writer::register(m)?;
    batch_spool::register(m)?;
    records::register(m)?;
    group_offsets::register(m)?;
    producer_state::register(m)?;
    recovered::register(m)?;
    files::register(m)
}
