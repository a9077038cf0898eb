//! The value that a Python object holds until it is closed.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::io::Location;

/// A value that `close` drops. A call in another thread keeps it until that call ends.
pub(super) struct Closable<T> {
    /// Has no lock, because a fork could leave it locked in the child.
    value: ArcSwapOption<T>,
    path: Location,
}

impl<T> Closable<T> {
    /// Holds an open value, with the path that it was opened by.
    pub(super) fn new(value: T, path: Location) -> Self {
        Self { value: ArcSwapOption::from_pointee(value), path }
    }

    /// Holds an open value that others hold, too.
    pub(super) fn of(value: Arc<T>, path: Location) -> Self {
        Self { value: ArcSwapOption::new(Some(value)), path }
    }

    /// The path, after `close` as well.
    pub(super) fn path(&self) -> &Location {
        &self.path
    }

    /// The value. Raises `ValueError` once closed.
    pub(super) fn get(&self) -> PyResult<Arc<T>> {
        self.value.load_full().ok_or_else(|| PyValueError::new_err(format!("{} is closed", self.path.display())))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.value.load().is_none()
    }

    /// Closes, and returns the value: dropping it closes files, unless a call still uses it.
    pub(super) fn close(&self) -> Option<Arc<T>> {
        self.value.swap(None)
    }
}
