//! Commands of the remoting protocol, the sends of producers, which are taken together, and JSON as brokers write it.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::error::Result;
use crate::rocketmq::commit_log::write::{Host, PutResult, SentMessage};
use crate::rocketmq::fastjson::{self, Value};
use crate::rocketmq::remoting::{self, Frames, Header, Refused, SendFacts, SendTable, Sends};

register! { class PyRemotingCommand, PySendTable, PySends; fn java_integer, remoting_frames, parse_fastjson }

/// The topics that take plain sends: single messages, neither delayed nor of a transaction, with short names of fields (code 310).
///
/// Args:
///     cluster: The name of the cluster, which messages get.
///     store_host: The broker, as `ip:port` or `[ipv6]:port`.
///     fields: The fields of each answer.
///     illegal_code: The code of the answer if no log takes a message.
///     illegal_remark: The remark of this answer.
///
/// Raises:
///     ValueError: An invalid host.
#[pyclass(name = "SendTable", module = "logdex._core", frozen)]
pub(super) struct PySendTable {
    table: RwLock<SendTable>,
    facts: Arc<SendFacts>,
}

#[pymethods]
impl PySendTable {
    #[new]
    fn new(
        cluster: String,
        store_host: &str,
        fields: &Bound<'_, PyDict>,
        illegal_code: i32,
        illegal_remark: String,
    ) -> PyResult<Self> {
        let facts = SendFacts {
            cluster,
            store_host: Host::parse(store_host)?,
            fields: self::fields(fields)?,
            illegal: Refused { code: illegal_code, remark: illegal_remark },
        };
        Ok(Self { table: RwLock::default(), facts: Arc::new(facts) })
    }

    /// Take plain sends for a topic.
    ///
    /// Args:
    ///     topic: The topic.
    ///     queues: The number of its queues.
    fn learn(&self, topic: &str, queues: i32) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).learn(topic, queues);
    }

    /// Take no more plain sends for a topic.
    fn forget(&self, topic: &str) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).forget(topic);
    }
}

/// Plain sends of one client that followed one another. Its length is that of their frames.
#[pyclass(name = "Sends", module = "logdex._core", frozen)]
pub(super) struct PySends {
    sends: Sends,
    /// The frames, without what else came: they may wait for long.
    data: Vec<u8>,
    born_host: Option<Host>,
    facts: Arc<SendFacts>,
}

impl PySends {
    pub(super) fn messages(&self) -> impl ExactSizeIterator<Item = SentMessage<'_>> {
        self.sends.messages(&self.data, &self.facts, self.born_host)
    }

    pub(super) fn answers(&self, puts: &[Result<Vec<PutResult<'_>>>], flushed: Option<u64>) -> (Vec<u8>, usize) {
        self.sends.answers(&self.facts, puts, flushed)
    }
}

#[pymethods]
impl PySends {
    /// The number of messages.
    #[getter]
    fn count(&self) -> usize {
        self.sends.count()
    }

    fn __len__(&self) -> usize {
        self.sends.bytes()
    }

    /// Return the frames of answers that refuse all of them. `ext` None: the answers have no fields.
    #[pyo3(signature = (code, remark, ext=None))]
    fn refusals<'py>(
        &self,
        py: Python<'py>,
        code: i32,
        remark: String,
        ext: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let fields = ext.map(fields).transpose()?;
        Ok(PyBytes::new(py, &self.sends.refusals(&Refused { code, remark }, fields.as_deref())))
    }
}

fn fields(ext: &Bound<'_, PyDict>) -> PyResult<Vec<(String, String)>> {
    ext.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect()
}

/// Return the 32-bit or 64-bit integer that Java parses from a text (Integer.parseInt, Long.parseLong); None if it is invalid.
#[pyfunction]
#[pyo3(signature = (text, bits=64))]
fn java_integer(text: &str, bits: u32) -> Option<i64> {
    if bits == 32 { text.parse::<i32>().ok().map(i64::from) } else { text.parse().ok() }
}

/// Return the whole frames at the beginning of the bytes that a client sent, in their order.
///
/// Args:
///     data: The bytes.
///     table: The topics that take plain sends; None: all frames are returned as bytes.
///     born_host: The client, as `ip:port` or `[ipv6]:port`; None: the broker.
///
/// Raises:
///     ValueError: No frame has the length of the first one, or an invalid host. After other frames a wrong length ends the result.
#[pyfunction]
#[pyo3(signature = (data, table=None, born_host=None))]
fn remoting_frames<'py>(
    py: Python<'py>,
    data: PyBackedBytes,
    table: Option<&PySendTable>,
    born_host: Option<&str>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let born_host = born_host.map(Host::parse).transpose()?;
    let found = py.detach(|| {
        let topics = table.map(|table| table.table.read().unwrap_or_else(PoisonError::into_inner));
        remoting::frames(&data, topics.as_deref())
    });
    let object = |frames| match (frames, table) {
        (Frames::Sends(sends), Some(PySendTable { facts, .. })) => {
            let own = data.get(sends.place()).unwrap_or_default().to_vec();
            let sends = PySends { sends, data: own, born_host, facts: Arc::clone(facts) };
            Ok(Bound::new(py, sends)?.into_any())
        }
        (Frames::Other(place), _) => Ok(PyBytes::new(py, data.get(place).unwrap_or_default()).into_any()),
        (Frames::Sends(_), None) => unreachable!("there are plain sends only for a table"),
    };
    found.map_err(PyValueError::new_err)?.into_iter().map(object).collect()
}

/// A request or an answer of the remoting protocol. docs/formats/rocketmq-wire.md describes the format.
///
/// Source: `RemotingCommand`.
#[pyclass(name = "RemotingCommand", module = "logdex._core", frozen)]
pub(super) struct PyRemotingCommand {
    /// The code of the request, or of the result.
    #[pyo3(get)]
    code: i32,
    /// The fields: texts by their names. A value that is not a text is its JSON.
    #[pyo3(get)]
    ext: Py<PyDict>,
    /// The bytes after the header.
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
    ///     ValueError: No frame is this short or this long; other than four bytes.
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
            ext.set_item(&*name, &*value)?;
        }
        let remoting::Command { code, opaque, flag, version, .. } = command;
        let (remark, language) = (command.remark.map(Cow::into_owned), command.language.into_owned());
        let (ext, body) = (ext.unbind(), PyBytes::new(py, command.body).unbind());
        Ok(Self { code, ext, body, remark, opaque, flag, language, version })
    }

    /// Return the frame of a request.
    ///
    /// Raises:
    ///     TypeError: Fields that are not texts.
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
    ///     TypeError: Fields that are not texts.
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

    /// True if it answers a request of this side.
    #[getter]
    fn is_answer(&self) -> bool {
        self.flag & remoting::ANSWER != 0
    }

    /// True if no answer is wanted.
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

/// Return the value of a text in fastjson's JSON, in linear time. All names become strings.
///
/// Raises:
///     ValueError: The text is invalid or has a number of more than 64 bits.
#[pyfunction]
fn parse_fastjson(py: Python<'_>, text: PyBackedStr) -> PyResult<Bound<'_, PyAny>> {
    let value = py.detach(|| fastjson::parse(&text)).map_err(PyValueError::new_err)?;
    object(py, value)
}

fn object<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Value::Integer(value) => PyInt::new(py, value).into_any(),
        Value::Float(value) => PyFloat::new(py, value).into_any(),
        Value::Text(text) => PyString::new(py, &text).into_any(),
        Value::List(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(object(py, value)?)?;
            }
            list.into_any()
        }
        Value::Map(members) => {
            let dict = PyDict::new(py);
            for (name, value) in members {
                dict.set_item(&*name, object(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
