//! Conversion of the crate's error type to Python's exceptions.

use std::io;
use std::path::Path;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::signals;
use crate::error::Error;
use crate::io::regular_file::NotAFile;
use crate::io::remote::is_answer;

mod py {
    pyo3::import_exception!(logdex.errors, CorruptFileError);
    pyo3::import_exception!(logdex.errors, GeometryError);
    pyo3::import_exception!(logdex.errors, IndexFullError);
    pyo3::import_exception!(logdex.errors, KafkaError);
    pyo3::import_exception!(logdex.errors, LockedError);
    pyo3::import_exception!(logdex.errors, WriteFailedError);
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        // The error only reports that a signal handler ended the wait.
        if let Some(raised) = signals::raised() {
            return raised;
        }
        match error {
            Error::Io { path, source } => os_error(&path, &source),
            Error::WriteFailed { path, source } => {
                let errno = errno(&source).unwrap_or(EIO);
                py::WriteFailedError::new_err((errno, text_of(errno, &source), path.into_os_string()))
            }
            Error::Corrupt { path, offset, expected, found } => {
                py::CorruptFileError::new_err((path.display().to_string(), offset, expected, found))
            }
            Error::Geometry { path, fits, count, size } => {
                py::GeometryError::new_err((path.display().to_string(), fits, count, size))
            }
            Error::Locked { path, pid } => py::LockedError::new_err((path.display().to_string(), pid)),
            Error::Refused { error, code, text } => py::KafkaError::new_err((error, code, text)),
            full @ Error::IndexFull { .. } => py::IndexFullError::new_err(full.to_string()),
            Error::InvalidArgument(text) => PyValueError::new_err(text),
        }
    }
}

/// Returns whether an exception is a `WriteFailedError`.
pub(super) fn is_write_failure(error: &Bound<'_, PyAny>) -> bool {
    error.is_instance_of::<py::WriteFailedError>()
}

/// The error that Python itself would raise: `OSError(errno, strerror, filename)`, which picks the subclass.
pub(super) fn os_error(path: &Path, source: &io::Error) -> PyErr {
    // A remote store has no numbers of errors.
    match errno(source).or_else(|| is_answer(source).then_some(EIO)) {
        Some(errno) => PyOSError::new_err((errno, text_of(errno, source), path.as_os_str().to_owned())),
        None => PyOSError::new_err(format!("{}: {source}", path.display())),
    }
}

/// "I/O error", in the C runtime of each system.
const EIO: i32 = 5;

pub(super) fn errno(source: &io::Error) -> Option<i32> {
    source.raw_os_error().or_else(|| errno_of(source))
}

fn text_of(errno: i32, source: &io::Error) -> String {
    // An error with its own text is more precise than the system's words for its number.
    if source.kind() == io::ErrorKind::UnexpectedEof || source.get_ref().is_some() {
        return source.to_string();
    }
    let text = Python::attach(|py| py.import("os")?.call_method1("strerror", (errno,))?.extract::<String>());
    text.unwrap_or_else(|_: PyErr| source.to_string())
}

/// The number of an error that this crate made itself, not the system.
#[cfg(unix)]
fn errno_of(error: &io::Error) -> Option<i32> {
    use rustix::io::Errno;
    let errno = match error.kind() {
        _ if error.get_ref().and_then(|cause| cause.downcast_ref()) == Some(&NotAFile::Link) => Errno::LOOP,
        io::ErrorKind::AlreadyExists => Errno::EXIST,
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::IsADirectory => Errno::ISDIR,
        io::ErrorKind::NotADirectory => Errno::NOTDIR,
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::NotSeekable => Errno::SPIPE,
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        io::ErrorKind::ReadOnlyFilesystem => Errno::ROFS,
        io::ErrorKind::StaleNetworkFileHandle => Errno::STALE,
        io::ErrorKind::StorageFull => Errno::NOSPC,
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        io::ErrorKind::UnexpectedEof => Errno::IO,
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => return None,
    };
    Some(errno.raw_os_error())
}

#[cfg(not(unix))]
fn errno_of(error: &io::Error) -> Option<i32> {
    // The numbers of the C runtime, which Python maps to the same subclasses.
    match error.kind() {
        io::ErrorKind::AlreadyExists => Some(17),
        io::ErrorKind::InvalidInput => Some(22),
        io::ErrorKind::IsADirectory => Some(21),
        io::ErrorKind::NotADirectory => Some(20),
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::NotSeekable => Some(29),
        io::ErrorKind::PermissionDenied => Some(13),
        io::ErrorKind::StorageFull => Some(28),
        io::ErrorKind::UnexpectedEof => Some(5),
        io::ErrorKind::WouldBlock => Some(11),
        _ => None,
    }
}
