//! The extension module `logdex._core`: conversion, release of the interpreter lock, errors. No algorithm lives here.
#![allow(clippy::needless_pass_by_value, clippy::used_underscore_items, reason = "PyO3 calls with owned arguments")]
#![allow(missing_docs, clippy::doc_markdown, reason = "the doc comments are Python docstrings")]

/// Defines the function `register`, which adds classes and functions of a file to the module.
macro_rules! register {
    ($(class $($class:ident),+)? $(; fn $($function:ident),+)?) => {
        pub(super) fn register(m: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
            use pyo3::types::PyModuleMethods as _;
            $($(m.add_class::<$class>()?;)+)?
            $($(m.add_function(pyo3::wrap_pyfunction!($function, m)?)?;)+)?
            Ok(())
        }
    };
    (fn $($function:ident),+) => { register! { ; fn $($function),+ } };
}

/// Defines the object of Python for a value of Rust.
macro_rules! into_python {
    ($kind:ty, |$value:pat_param, $py:ident| $object:expr) => {
        impl<'py> pyo3::IntoPyObject<'py> for $kind {
            type Target = pyo3::PyAny;
            type Output = pyo3::Bound<'py, pyo3::PyAny>;
            type Error = pyo3::PyErr;

            fn into_pyobject(self, $py: pyo3::Python<'py>) -> pyo3::PyResult<Self::Output> {
                let $value = self;
                $object
            }
        }
    };
}

mod batch_stream;
mod checkpoint;
mod commit_log;
mod commit_log_writer;
mod consume_queue;
mod consume_queue_writer;
mod convert;
mod counters;
mod decode;
mod errors;
mod handle;
mod index_entries;
mod index_file;
mod index_files;
mod integer;
mod kafka;
mod keys;
mod location;
mod locks;
mod messages;
mod pattern;
mod queues;
mod read_plan;
mod remoting;
mod report;
mod sealed;
mod signals;
mod small_file;
mod store;
mod text_rows;
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
    m.add("DEFAULT_DELAY_LEVELS", crate::rocketmq::consume_queue::DelayLevels::DEFAULT)?;
    m.add("INDEXED_COLUMNS", PyTuple::new(m.py(), crate::rocketmq::index_entries::INDEXED_COLUMNS)?)?;
    signals::register();
    let files = [
        batch_stream::register,
        checkpoint::register,
        commit_log::register,
        commit_log_writer::register,
        consume_queue::register,
        consume_queue_writer::register,
        counters::register,
        decode::register,
        index_entries::register,
        index_file::register,
        index_files::register,
        kafka::register,
        keys::register,
        location::register,
        locks::register,
        messages::register,
        pattern::register,
        queues::register,
        read_plan::register,
        remoting::register,
        report::register,
        sealed::register,
        small_file::register,
        store::register,
        text_rows::register,
        time::register,
    ];
    files.iter().try_for_each(|register| register(m))
}
