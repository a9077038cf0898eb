//! `Pattern`, and the matches of a pattern in rows as text and in previews.

use arrow_select::filter::filter_record_batch;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use pyo3_arrow::PyRecordBatch;

use super::convert::{self, ArrowBatch};
use super::handle::Raised;
use super::integer;
use super::text_rows::with_zone;
use crate::arrow::match_rows::{self, Style};
use crate::arrow::preview;
use crate::error::Error;
use crate::matcher::{Field, Matcher, Pattern, PatternText};

register! { class PyPattern; fn match_json_lines, match_text_lines, previews }

/// A pattern that `messages(matches=...)` and `records(matches=...)` search, with its options.
///
/// A `str` is a regular expression with Unicode classes, for content in UTF-8. A `bytes` is one of bytes with ASCII classes. The
/// syntax is that of Rust's crate `regex`: as Python's `re`, without look-around and backreferences. The search takes linear time.
///
/// Args:
///     text: The regular expression, or with `literal` the text, at most 4,096 bytes.
///     fields: The fields to search: "body", "keys" (the keys and the unique key) and "properties", each as `name=value`; or the
///         words of Kafka, "value", "key" and "headers". A message matches if one of them does.
///     literal: The text stands for itself.
///     ignore_case: Upper and lower case are the same.
///     word: No letter, digit or underscore is before or after a match.
///     invert: Messages without a match are returned.
///
/// Raises:
///     ValueError: The text is no regular expression, too long or too large; an unknown field.
///     TypeError: The text is neither `str` nor `bytes`.
#[pyclass(name = "Pattern", module = "logdex._core", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PyPattern(Pattern);

fn pattern_text(text: &Bound<'_, PyAny>) -> PyResult<PatternText> {
    if let Ok(bytes) = text.cast::<PyBytes>() {
        return Ok(PatternText::Bytes(bytes.as_bytes().to_vec()));
    }
    match text.cast::<PyString>() {
        Ok(text) => Ok(PatternText::Text(text.to_cow()?.into_owned())),
        Err(_) => Err(PyTypeError::new_err(format!(
            "matches: expected str, bytes or Pattern, got {}",
            text.get_type().name()?
        ))),
    }
}

/// Returns the compiled pattern of an argument `matches`.
pub(super) fn matcher(matches: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Matcher>> {
    let Some(matches) = matches else { return Ok(None) };
    let pattern = match matches.cast::<PyPattern>() {
        Ok(pattern) => pattern.get().0.clone(),
        Err(_) => Pattern::new(pattern_text(matches)?),
    };
    Ok(Some(Matcher::new(&pattern)?))
}

#[pymethods]
impl PyPattern {
    #[new]
    #[pyo3(signature = (text, *, fields=None, literal=false, ignore_case=false, word=false, invert=false))]
    #[expect(clippy::fn_params_excessive_bools, reason = "keywords of the Python call")]
    fn new(
        text: &Bound<'_, PyAny>,
        fields: Option<&Bound<'_, PyAny>>,
        literal: bool,
        ignore_case: bool,
        word: bool,
        invert: bool,
    ) -> PyResult<Self> {
        let fields = match fields {
            None => vec![Field::Body],
            Some(one) if one.is_instance_of::<PyString>() => {
                return Err(PyTypeError::new_err(
                    "fields: expected an iterable of str, found one str; put it into a tuple",
                ));
            }
            Some(fields) => {
                let mut named = Vec::new();
                for name in fields.try_iter()? {
                    let field = Field::named(name?.extract()?)?;
                    if !named.contains(&field) {
                        named.push(field);
                    }
                }
                named
            }
        };
        let pattern = Pattern { text: pattern_text(text)?, fields, literal, ignore_case, word, invert };
        Matcher::new(&pattern)?;
        Ok(Self(pattern))
    }

    /// The regular expression, or the text that stands for itself.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match &self.0.text {
            PatternText::Text(text) => PyString::new(py, text).into_any(),
            PatternText::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        }
    }

    /// The fields to search: "body", "keys" and "properties".
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.fields.iter().map(|field| field.name()))
    }

    /// True if the text stands for itself.
    #[getter]
    fn literal(&self) -> bool {
        self.0.literal
    }

    /// True if upper and lower case are the same.
    #[getter]
    fn ignore_case(&self) -> bool {
        self.0.ignore_case
    }

    /// True if only whole words match.
    #[getter]
    fn word(&self) -> bool {
        self.0.word
    }

    /// True if messages without a match are returned.
    #[getter]
    fn invert(&self) -> bool {
        self.0.invert
    }

    /// Return the rows of a batch of messages or records that match; with `invert` those that do not.
    ///
    /// Raises:
    ///     ValueError: A column has another type than in a read.
    fn select(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<ArrowBatch> {
        let batch = batch.into_inner();
        let wanted = py.detach(|| match_rows::wanted(&batch, &Matcher::new(&self.0)?))?;
        Ok(ArrowBatch(filter_record_batch(&batch, &wanted).map_err(|e| PyValueError::new_err(e.to_string()))?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut arguments = vec![self.text(py).repr()?.to_string()];
        if self.0.fields != [Field::Body] {
            arguments.push(format!("fields={}", self.fields(py)?.repr()?));
        }
        let set = self.flags().into_iter().filter(|(_, is_set)| *is_set);
        arguments.extend(set.map(|(name, _)| format!("{name}=True")));
        Ok(format!("Pattern({})", arguments.join(", ")))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((Bound<'py, PyAny>,), Bound<'py, PyDict>)> {
        let options = PyDict::new(py);
        options.set_item("fields", self.fields(py)?)?;
        for (name, value) in self.flags() {
            options.set_item(name, value)?;
        }
        Ok(((self.text(py),), options))
    }
}

impl PyPattern {
    fn flags(&self) -> [(&'static str, bool); 4] {
        let Pattern { literal, ignore_case, word, invert, .. } = self.0;
        [("literal", literal), ("ignore_case", ignore_case), ("word", word), ("invert", invert)]
    }
}

/// Write rows as `json_lines` does, each with the positions of the matches of a pattern.
///
/// A match has the column `field`, of a property or header its `name`, and `begin` and `end`: bytes of the content, or of the text
/// `name=value`.
///
/// Args:
///     batch: Rows of messages or records.
///     matches: The pattern.
///     path: The value `path` of each line; None: there is none.
///     bodies: Include the bodies. They are searched anyway.
///     write: Called with bytes, in pieces of about 256 KiB, which may end anywhere.
#[pyfunction]
#[pyo3(signature = (batch, matches, *, path, bodies, write))]
fn match_json_lines(
    py: Python<'_>,
    batch: PyRecordBatch,
    matches: &PyPattern,
    path: Option<String>,
    bodies: bool,
    write: Py<PyAny>,
) -> PyResult<()> {
    let (batch, compiled) = (batch.into_inner(), Matcher::new(&matches.0)?);
    let write = |piece: &str| Python::attach(|py| write.call1(py, (PyBytes::new(py, piece.as_bytes()),)).map(drop));
    py.detach(|| match_rows::json_lines(&batch, &compiled, path.as_deref(), bodies, write))
}

/// Write rows for people: a line for each, and the first matches of a pattern with what is around them. Control characters are
/// escaped.
///
/// Args:
///     batch: Rows of messages or records.
///     matches: The pattern.
///     prefix: The text before each row.
///     marks: The texts before and after each match.
///     bodies: Write whole bodies.
///     only: Write only the matches, each on a line.
///     write: Called with pieces of about 256 KiB, of whole lines.
///     zone: As for `text_lines`.
#[pyfunction]
#[pyo3(signature = (batch, matches, *, prefix, marks, bodies, only, write, zone=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
fn match_text_lines(
    py: Python<'_>,
    batch: PyRecordBatch,
    matches: &PyPattern,
    prefix: String,
    marks: (String, String),
    bodies: bool,
    only: bool,
    write: Py<PyAny>,
    zone: Option<Py<PyAny>>,
) -> PyResult<()> {
    let (batch, compiled) = (batch.into_inner(), Matcher::new(&matches.0)?);
    let style = Style { prefix, marks, bodies, only };
    let raised = Raised::default();
    let write =
        |piece: &str| raised.keep(Python::attach(|py| write.call1(py, (piece,)).map(drop)), "the caller cannot write");
    let written =
        py.detach(|| with_zone(zone, |zone| match_rows::text_lines::<Error>(&batch, &compiled, &style, zone, write)));
    raised.check(Ok(()))?;
    written
}

/// A preview: whether it is a text, the bytes of the value, and the parts of the line, each with whether it is a match.
type Preview = (bool, usize, Vec<(String, bool)>);

/// Return the start of each body or value on one line, with the matches of a pattern in it; None for a null.
///
/// White space becomes single spaces, and that between the tokens of JSON is left out. What is no text is shown as bytes in hex. If the
/// first match is not near the start, the line begins near it.
///
/// Args:
///     column: A column of bytes.
///     matches: The pattern; None: nothing is searched.
///     limit: The letters of a line, about.
///
/// Returns:
///     For each row whether it is a text, its size in bytes, and the parts of the line, each with whether it is a match.
#[pyfunction]
#[pyo3(signature = (column, *, matches=None, limit=160))]
fn previews(
    py: Python<'_>,
    column: &Bound<'_, PyAny>,
    matches: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = integer::limit)] limit: u64,
) -> PyResult<Vec<Option<Preview>>> {
    let (column, compiled) = (convert::binary_column(column, "column")?, matcher(matches)?);
    let of_rows = py.detach(|| preview::previews(&column, compiled.as_ref(), limit.try_into().unwrap_or(0)));
    Ok(of_rows.into_iter().map(|row| row.map(|found| (found.is_text, found.size, found.pieces))).collect())
}
