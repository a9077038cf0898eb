//! The extension module `logdex._core`: conversion, release of the interpreter lock, errors. No algorithm lives here.
#![allow(clippy::needless_pass_by_value, clippy::used_underscore_items, reason = "PyO3 calls with owned arguments")]
#![allow(missing_docs, clippy::doc_markdown, reason = "the doc comments are Python docstrings")]

mod batch_stream;
mod candidates;
mod chains;
mod checkpoint;
mod closable;
mod commit_log;
mod commit_log_writer;
mod consume_queue;
mod consume_queue_writer;
mod convert;
mod entry_batches;
mod entry_rows;
mod errors;
mod fastjson;
mod file_system;
mod given_batches;
mod handle_mutex;
mod hash_index;
mod index_cross_check;
mod index_entries;
mod index_file;
mod index_files;
mod index_header;
mod index_recovery;
mod index_rows;
mod integer;
mod kafka;
mod keys;
mod location;
mod message_filter;
mod message_input;
mod message_object;
mod message_reader;
mod planned_log;
mod prepared_file;
mod queue_cross_check;
mod queue_reader;
mod queues;
mod read_plan;
mod remote_path;
mod remoting;
mod report;
mod sealed;
mod signals;
mod small_file;
mod store;
mod store_lock;
mod text_rows;
mod thread_lock;
mod time;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The Rust core of logdex.
#[pymodule(gil_used = false)]
#[pyo3(name = "_core")]
fn core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("CODECS", PyTuple::new(m.py(), crate::decompress::CODECS)?)?;
    m.add("SCHEMES", PyTuple::new(m.py(), crate::io::remote::url::SCHEMES)?)?;
    signals::register();
    hash_index::register(m)?;
    index_file::register(m)?;
    index_files::register(m)?;
    planned_log::register(m)?;
    location::register(m)?;
    m.add_class::<remote_path::PyRemotePath>()?;
    file_system::register(m)?;
    prepared_file::register(m)?;
    checkpoint::register(m)?;
    commit_log::register(m)?;
    commit_log_writer::register(m)?;
    consume_queue::register(m)?;
    consume_queue_writer::register(m)?;
    queue_cross_check::register(m)?;
    given_batches::register(m)?;
    fastjson::register(m)?;
    remoting::register(m)?;
    report::register(m)?;
    sealed::register(m)?;
    store::register(m)?;
    small_file::register(m)?;
    store_lock::register(m)?;
    text_rows::register(m)?;
    thread_lock::register(m)?;
    message_filter::register(m)?;
    queue_reader::register(m)?;
    queues::register(m)?;
    read_plan::register(m)?;
    message_reader::register(m)?;
    index_entries::register(m)?;
    index_cross_check::register(m)?;
    index_recovery::register(m)?;
    index_rows::register(m)?;
    candidates::register(m)?;
    chains::register(m)?;
    entry_rows::register(m)?;
    message_input::register(m)?;
    message_object::register(m)?;
    kafka::register(m)
}
