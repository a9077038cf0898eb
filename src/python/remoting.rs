//! Commands of the remoting protocol, and counts of what is asked.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::rocketmq::meter::Meter;
use crate::rocketmq::remoting::{self, Header};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyRemotingCommand>()?;
    m.add_class::<PyMeter>()
}

/// Counts of the last ten minutes.
#[pyclass(name = "Meter", module = "logdex._core", frozen)]
#[derive(Default)]
struct PyMeter {
    meter: Mutex<Meter>,
}

#[pymethods]
impl PyMeter {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Count.
    fn add(&self, count: u64) {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).add(count);
    }

    /// How many a second there were in the last 10, 60 and 600 whole seconds, or since the begin if that is not so long ago.
    #[getter]
    fn rates(&self) -> [f64; 3] {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).rates()
    }
}

/// A request or an answer of the remoting protocol. docs/formats/rocketmq-wire.md describes the format.
///
/// Source: `RemotingCommand`.
#[pyclass(name = "RemotingCommand", module = "logdex._core", frozen)]
pub(super) struct PyRemotingCommand {
    /// What is asked, or how it ended.
    #[pyo3(get)]
    code: i32,
    /// The fields: texts by their names. A value that is no text stands as its JSON.
    #[pyo3(get)]
    ext: Py<PyDict>,
    /// What follows the header.
    #[pyo3(get)]
    body: Py<PyBytes>,
    /// A text for people.
    #[pyo3(get)]
    remark: Option<String>,
    /// The number of a request, which its answer repeats.
    #[pyo3(get)]
    opaque: i32,
    flag: i32,
    /// The language of the sender, such as "JAVA".
    #[pyo3(get)]
    language: String,
    /// The version of the sender, as its ordinal in `MQVersion`.
    #[pyo3(get)]
    version: i32,
}

#[pymethods]
impl PyRemotingCommand {
    /// The most bytes of a frame with its length field (com.rocketmq.remoting.frameMaxLength).
    #[classattr]
    const MAX_FRAME: usize = remoting::MAX_FRAME;
    /// The version of what this side sends: the ordinal of V4_9_3 in `MQVersion`.
    #[classattr]
    const VERSION: i32 = remoting::VERSION;

    /// Return the bytes of a frame, with its length field, that begins with these four.
    ///
    /// Raises:
    ///     ValueError: No frame is so short or so long; other than four bytes.
    #[staticmethod]
    fn frame_length(head: &[u8]) -> PyResult<usize> {
        let head = head.try_into().map_err(|_| PyValueError::new_err("head: expected 4 bytes"))?;
        remoting::frame_length(head).map_err(PyValueError::new_err)
    }

    /// Return the command of a whole frame.
    ///
    /// Raises:
    ///     ValueError: It is none.
    #[staticmethod]
    fn decode(py: Python<'_>, frame: &[u8]) -> PyResult<Self> {
        let command = remoting::decode(frame).map_err(PyValueError::new_err)?;
        let ext = PyDict::new(py);
        for (name, value) in command.ext {
            ext.set_item(name, value)?;
        }
        let remoting::Command { code, remark, opaque, flag, language, version, .. } = command;
        let (ext, body) = (ext.unbind(), PyBytes::new(py, command.body).unbind());
        Ok(Self { code, ext, body, remark, opaque, flag, language, version })
    }

    /// Return the frame of a request.
    ///
    /// Raises:
    ///     TypeError: Fields that are no texts.
    #[staticmethod]
    #[pyo3(signature = (code, opaque, ext, body=b"".as_slice(), *, one_way=false))]
    fn request<'py>(
        py: Python<'py>,
        code: i32,
        opaque: i32,
        ext: &Bound<'py, PyDict>,
        body: &[u8],
        one_way: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let flag = if one_way { remoting::ONE_WAY } else { 0 };
        frame(py, &Header { code, opaque, flag, remark: None }, Some(ext), body)
    }

    /// Return the frame that answers this request. `ext` None: the answer has no fields.
    ///
    /// As a broker's, its header is JSON, whatever that of the request is: clients read both.
    ///
    /// Raises:
    ///     TypeError: Fields that are no texts.
    #[pyo3(signature = (code, ext=None, body=b"".as_slice(), remark=None))]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        code: i32,
        ext: Option<&Bound<'py, PyDict>>,
        body: &[u8],
        remark: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        frame(py, &Header { code, opaque: self.opaque, flag: remoting::ANSWER, remark }, ext, body)
    }

    /// Whether it answers a request of this side.
    #[getter]
    fn is_answer(&self) -> bool {
        self.flag & remoting::ANSWER != 0
    }

    /// Whether no answer is wanted.
    #[getter]
    fn is_one_way(&self) -> bool {
        self.flag & remoting::ONE_WAY != 0
    }

    fn __repr__(&self) -> String {
        format!("RemotingCommand(code={}, opaque={}, flag={})", self.code, self.opaque, self.flag)
    }
}

fn frame<'py>(
    py: Python<'py>,
    header: &Header<'_>,
    ext: Option<&Bound<'py, PyDict>>,
    body: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let mut texts: Vec<(Bound<'py, PyString>, Bound<'py, PyString>)> = Vec::new();
    for (name, value) in ext.into_iter().flatten() {
        texts.push((name.cast_into()?, value.cast_into()?));
    }
    let mut fields = Vec::with_capacity(texts.len());
    for (name, value) in &texts {
        fields.push((name.to_str()?, value.to_str()?));
    }
    let head = header.head(ext.map(|_| fields.into_iter()), body.len());
    PyBytes::new_with(py, head.len() + body.len(), |to| {
        if let Some((first, rest)) = to.split_at_mut_checked(head.len()) {
            first.copy_from_slice(&head);
            rest.copy_from_slice(body);
        }
        Ok(())
    })
}
