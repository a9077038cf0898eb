//! What `OffsetIndex` and `TimeIndex` have in common: a handle of an index, the log beside it, how it is opened again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StructArray};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3_arrow::{PyArray, PyRecordBatchReader};

use super::super::{convert, report};
use super::arguments;
use crate::error::Result;
use crate::kafka::{Check, IndexOptions, Segment, SegmentOptions, SparseIndex};

/// What Python sees of an index.
pub(super) trait Shown: SparseIndex {
    /// Name of the class.
    const CLASS: &'static str;
    /// Name of the function that unpickling calls.
    const OPEN_AGAIN: &'static str;

    /// The last entry that holds, of the first `rank`, by what the log says.
    fn entry_before(log: &Segment, rank: usize) -> Result<Self::Entry>;

    /// Entries as two columns.
    fn columns(entries: &[Self::Entry]) -> [(&'static str, ArrayRef); 2];
}

/// An open index, and the log that its entries are checked against.
pub(super) struct Open<I> {
    pub(super) index: I,
    log: Option<Arc<Segment>>,
}

impl<I: Shown> Open<I> {
    /// The entry that a rank stands for.
    fn entry_before(&self, rank: usize) -> Result<I::Entry> {
        match &self.log {
            Some(log) => I::entry_before(log, rank),
            None => Ok(self.index.entry_of_rank(rank)),
        }
    }

    fn lookup(&self, target: i64) -> Result<I::Entry> {
        self.entry_before(self.index.rank(target))
    }

    fn lookup_batch(&self, targets: &[i64]) -> Result<Vec<I::Entry>> {
        let ranks = self.index.ranks(targets);
        ranks.into_iter().map(|rank| self.entry_before(usize::try_from(rank).unwrap_or(usize::MAX))).collect()
    }
}

/// A call that opens an index again.
pub(super) type Reduced<'py> = (Bound<'py, PyAny>, (PathBuf, &'static str, String, Option<String>, Option<i64>));

/// What stands behind an object of Python.
pub(super) struct Handle<I> {
    open: RwLock<Option<Open<I>>>,
    pub(super) path: PathBuf,
    check: Check,
    access: String,
    compat: Option<String>,
    /// What the caller gave; `None`: the name's.
    base_offset: Option<i64>,
    write: bool,
}

impl<I: Shown> Handle<I> {
    pub(super) fn open(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        check: &str,
        access: &str,
        compat: Option<&str>,
        base_offset: Option<i64>,
    ) -> PyResult<Self> {
        let write = convert::write_mode(mode)?;
        let check = arguments::check(check)?;
        let access_kind = convert::access(access)?;
        // All releases read an index alike.
        arguments::compat(compat)?;
        let open = py.detach(|| {
            // A base offset of the caller's need not be that of the log.
            let verified = check == Check::Verify && !write && base_offset.is_none();
            let log = if verified { log_beside(&path, I::SUFFIX).map(Arc::new) } else { None };
            let log_len = log.as_ref().map(|log| log.len());
            let options = IndexOptions { write, check, access: access_kind, base_offset, log_len };
            I::open(&path, &options).map(|index| Open { index, log })
        })?;
        Ok(Self {
            open: RwLock::new(Some(open)),
            path,
            check,
            access: access.to_owned(),
            compat: compat.map(str::to_owned),
            base_offset,
            write,
        })
    }

    pub(super) fn create(
        py: Python<'_>,
        path: PathBuf,
        base_offset: i64,
        max_bytes: i64,
        compat: Option<&str>,
    ) -> PyResult<Self> {
        arguments::compat(compat)?;
        let max = arguments::size(max_bytes, "max_bytes")?;
        let index = py.detach(|| I::create(&path, base_offset, max))?;
        Ok(Self {
            open: RwLock::new(Some(Open { index, log: None })),
            path,
            check: Check::Trust,
            access: "auto".to_owned(),
            compat: compat.map(str::to_owned),
            base_offset: Some(base_offset),
            write: true,
        })
    }

    fn with_open<T>(&self, read: impl FnOnce(&Open<I>) -> PyResult<T>) -> PyResult<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        read(open.as_ref().ok_or_else(|| self.is_closed())?)
    }

    /// To be called without the interpreter lock where `read` waits for the disk.
    pub(super) fn with<T>(&self, read: impl FnOnce(&I) -> PyResult<T>) -> PyResult<T> {
        self.with_open(|open| read(&open.index))
    }

    /// As [`Self::with`].
    pub(super) fn with_mut<T>(&self, write: impl FnOnce(&mut I) -> Result<T>) -> PyResult<T> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        Ok(write(&mut open.as_mut().ok_or_else(|| self.is_closed())?.index)?)
    }

    /// `ValueError` once closed.
    pub(super) fn check_open(&self) -> PyResult<()> {
        self.with(|_| Ok(()))
    }

    fn is_closed(&self) -> PyErr {
        PyValueError::new_err(format!("{} is closed", self.path.display()))
    }

    pub(super) fn closed(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    pub(super) fn close(&self, py: Python<'_>) {
        py.detach(|| self.open.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(super) fn mode(&self) -> &'static str {
        if self.write { "r+" } else { "r" }
    }

    pub(super) fn check(&self) -> &'static str {
        arguments::check_word(self.check)
    }

    pub(super) fn entry(&self, n: i64) -> PyResult<I::Entry> {
        self.with(|index| {
            usize::try_from(n).ok().and_then(|n| index.entry(n)).ok_or_else(|| {
                PyIndexError::new_err(format!(
                    "attempt to fetch the {n}th entry from index {}, which has size {}",
                    self.path.display(),
                    index.len()
                ))
            })
        })
    }

    pub(super) fn lookup(&self, py: Python<'_>, target: i64) -> PyResult<I::Entry> {
        // Without a log the entries are in memory: a search takes less than letting the interpreter go and having it back.
        if let Ok(open) = self.open.try_read()
            && let Some(open) = open.as_ref().filter(|open| open.log.is_none())
        {
            return Ok(open.lookup(target)?);
        }
        py.detach(|| self.with_open(|open| Ok(open.lookup(target)?)))
    }

    /// A struct column; null where the target is.
    pub(super) fn lookup_batch<'py>(&self, py: Python<'py>, targets: &Int64Array) -> PyResult<Bound<'py, PyAny>> {
        let entries = py.detach(|| self.with_open(|open| Ok(open.lookup_batch(targets.values())?)))?;
        let (fields, columns) = columns::<I>(&entries);
        let array: ArrayRef = Arc::new(StructArray::new(fields.clone(), columns, targets.nulls().cloned()));
        let field = Arc::new(Field::new("", DataType::Struct(fields), true));
        PyArray::try_new(array, field).map_err(|e| PyValueError::new_err(e.to_string()))?.into_arro3(py)
    }

    pub(super) fn entries<'py>(&self, py: Python<'py>, batch_size: i64) -> PyResult<Bound<'py, PyAny>> {
        let rows = arguments::rows(batch_size);
        if rows == 0 {
            return Err(PyValueError::new_err(format!("batch_size is 1 or more, not {batch_size}")));
        }
        let entries: Vec<I::Entry> =
            self.with(|index| Ok((0..index.len()).filter_map(|slot| index.entry(slot)).collect()))?;
        let schema = Arc::new(Schema::new(columns::<I>(&[]).0));
        let of = Arc::clone(&schema);
        let batches: Vec<std::result::Result<RecordBatch, ArrowError>> =
            entries.chunks(rows).map(|chunk| RecordBatch::try_new(Arc::clone(&of), columns::<I>(chunk).1)).collect();
        PyRecordBatchReader::new(Box::new(RecordBatchIterator::new(batches, schema))).into_arro3(py)
    }

    pub(super) fn resize(&self, py: Python<'_>, max_bytes: i64) -> PyResult<bool> {
        let max = arguments::size(max_bytes, "max_bytes")?;
        py.detach(|| self.with_mut(|index| index.resize(max)))
    }

    pub(super) fn verify<'py>(&self, py: Python<'py>, log: Option<PathBuf>) -> PyResult<Bound<'py, PyAny>> {
        let base_offset = self.with(|index| Ok(index.base_offset()))?;
        let verified = py.detach(|| {
            let log = match log {
                Some(log) => Some(Segment::open(&log, SegmentOptions::default())?),
                None => log_beside(&self.path, I::SUFFIX),
            };
            let base_offset = Some(base_offset);
            let options = IndexOptions { check: Check::Trust, base_offset, ..IndexOptions::default() };
            I::open(&self.path, &options)?.verify(log.as_ref())
        })?;
        report::report(py, &verified)
    }

    pub(super) fn repr(&self) -> String {
        let path = self.path.display().to_string();
        match self.with(|index| Ok((index.base_offset(), index.len()))) {
            Ok((base, len)) => format!("{}({path:?}, base_offset={base}, entries={len})", I::CLASS),
            Err(_) => format!("{}({path:?}, closed)", I::CLASS),
        }
    }

    pub(super) fn reduce<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("logdex._core")?.getattr(I::OPEN_AGAIN)?;
        self.check_open()?;
        Ok((open, (self.path.clone(), self.check(), self.access.clone(), self.compat.clone(), self.base_offset)))
    }
}

/// The segment beside an index, where there is one of its name.
fn log_beside(path: &Path, suffix: &str) -> Option<Segment> {
    let name = path.file_name()?.to_str()?.strip_suffix(suffix)?;
    let log = path.with_file_name(format!("{name}.log"));
    log.is_file().then(|| Segment::open(&log, SegmentOptions::default()).ok()).flatten()
}

fn columns<I: Shown>(entries: &[I::Entry]) -> (Fields, Vec<ArrayRef>) {
    let columns = I::columns(entries);
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    (fields, columns.map(|(_, array)| array).into())
}
