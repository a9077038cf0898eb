//! `CommitLog`, and `MessageReader`, the messages of a scan.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::checkpoint::PyStoreCheckpoint;
use super::convert::{self, ArrowBatch, ArrowSchema, log_offset};
use super::handle::Closable;
use super::messages::PyMessageFilter;
use super::{integer, location, time};
use crate::error::Result;
use crate::io::remote::Objects;
use crate::io::{FileSource, Location};
use crate::report::{Finding, Report};
use crate::rocketmq::commit_log::columns::{self, Column};
use crate::rocketmq::commit_log::frame::Versions;
use crate::rocketmq::commit_log::{AtDamage, Bodies, CommitLog, Message, MessageReader, Options, ScanOptions, Start};
use crate::rocketmq::offset_files::{self, Gap};
use crate::rocketmq::release::Release;
use crate::rocketmq::{candidates, file_name};
use crate::time_range::TimeRange;

register! { class PyCommitLog, PyMessageReader; fn commit_log_directories, judge_candidates, message_schema, _open_commit_log }

/// The most bytes that one row of an Arrow column can have, with a margin.
const MOST_BODY_BYTES: i64 = 2_000_000_000;

/// Returns the message columns of these names; all if no names are passed.
pub(super) fn columns(names: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Column>> {
    Ok(Column::choose(convert::column_names(names)?.as_deref())?)
}

/// Parses "decoded" or "stored".
pub(super) fn bodies(word: &str) -> PyResult<Bodies> {
    match word {
        "decoded" => Ok(Bodies::Decoded),
        "stored" => Ok(Bodies::Stored),
        _ => Err(PyValueError::new_err(format!("body is \"decoded\" or \"stored\", not {word:?}"))),
    }
}

/// Converts an offset of the log; `None` for an integer out of range.
fn any_offset(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    match value.extract::<i64>() {
        Ok(offset) => Ok(u64::try_from(offset).ok()),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The commit log of a store directory, read only: nothing in it is created or changed.
///
/// Every call lists the directory again, because a broker adds and deletes files. Any thread may call. With access "auto" files
/// are read by `pread`, not mapped. With compat "4.9.3" a frame of version 2 ends the log, as for a broker before 5.1.0.
#[pyclass(name = "CommitLog", module = "logdex._core", frozen)]
pub(super) struct PyCommitLog {
    log: Closable<CommitLog>,
    settings: Settings,
}

/// The arguments of `open` after the directory, as they were given.
#[derive(Clone, FromPyObject, IntoPyObject)]
pub(super) struct Settings(String, Option<String>, i64);

impl Settings {
    /// Returns the options that these arguments mean.
    pub(super) fn options(&self) -> PyResult<Options> {
        let Self(access, compat, max_body_bytes) = self;
        let limit = usize::try_from(*max_body_bytes).ok().filter(|_| *max_body_bytes <= MOST_BODY_BYTES);
        let release = convert::compat(compat.as_deref())?;
        Ok(Options {
            access: convert::access(access)?,
            // COMPAT(rocketmq MappedFile#selectMappedBuffer): nothing after the end is read.
            broker_end: release.is_some(),
            versions: match release {
                // COMPAT(rocketmq CommitLog#checkMessageAndReturnSize): a frame of version 2 ends the log.
                Some(Release::V4_9_3) => Versions::V1,
                _ => Versions::V1AndV2,
            },
            max_body_bytes: limit.ok_or_else(|| {
                PyValueError::new_err(format!("max_body_bytes is 0 to {MOST_BODY_BYTES}, not {max_body_bytes}"))
            })?,
        })
    }
}

impl PyCommitLog {
    pub(super) fn new(log: Closable<CommitLog>, settings: Settings) -> Self {
        Self { log, settings }
    }

    pub(super) fn inner(&self) -> PyResult<Arc<CommitLog>> {
        self.log.get()
    }

    /// The directory that it was opened with.
    pub(super) fn directory(&self) -> Location {
        self.log.path().to_owned()
    }

    /// The arguments that opened it.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Options for the queues of the same store.
    pub(super) fn reading(&self) -> PyResult<(crate::io::Access, Option<Release>)> {
        let Settings(access, compat, _) = &self.settings;
        Ok((convert::access(access)?, convert::compat(compat.as_deref())?))
    }
}

/// Return the directories of a log's path: the path itself. If no directory has that name, return the paths between its commas,
/// as in a broker's `storePathCommitLog`.
///
/// Source: `MessageStoreConfig.MULTI_PATH_SPLITTER`.
#[pyfunction]
fn commit_log_directories(
    py: Python<'_>,
    #[pyo3(from_py_with = location::paths)] path: Location,
) -> PyResult<Vec<Location>> {
    Ok(py.detach(|| offset_files::directories(&path))?)
}

/// Return the Arrow schema of all message columns.
#[pyfunction]
fn message_schema() -> ArrowSchema {
    ArrowSchema(columns::schema(&Column::ALL))
}

/// Return for each offset what its message is to a key.
///
/// Args:
///     log: The log.
///     phy_offsets: Offsets in the log.
///     topic: The requested topic.
///     key: The requested key; "T#" and the tags of a message count as one of its keys.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///
/// Returns:
///     "match", "out-of-range", "other-key" or "other-topic" (with the same hash), "stale-entry" (no key of the message has
///     the hash); where no message begins "expired", "cut-off", "missing-file", "beyond-log" or "damaged".
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (log, phy_offsets, topic, key, *, begin=None, end=None))]
fn judge_candidates(
    py: Python<'_>,
    log: &PyCommitLog,
    phy_offsets: Vec<i64>,
    topic: &str,
    key: &str,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<&'static str>> {
    let (log, times) = (log.inner()?, time::time_range(begin, end)?);
    Ok(py.detach(|| candidates::judge(&log, &phy_offsets, topic, key, times))?)
}

/// A range of the log, and why it cannot be read.
pub(super) type Part = (u64, u64, Finding);

/// Returns gaps between files, with their findings.
pub(super) fn gap_parts(gaps: &[Gap]) -> Vec<Part> {
    gaps.iter().map(|gap| (gap.begin, gap.end, gap.finding())).collect()
}

/// The arguments that open a log again.
type Reduced<'py> = (Bound<'py, PyAny>, (Vec<Location>, Settings));

/// Unpickle a log from its directories.
#[pyfunction]
fn _open_commit_log(py: Python<'_>, directories: Vec<Location>, settings: Settings) -> PyResult<PyCommitLog> {
    open_log(py, Location::several(directories), settings)
}

fn open_log(py: Python<'_>, path: Location, settings: Settings) -> PyResult<PyCommitLog> {
    let options = settings.options()?;
    let log = py.detach(|| CommitLog::open(&path, options))?;
    Ok(PyCommitLog::new(Closable::new(log, path), settings))
}

#[pymethods]
impl PyCommitLog {
    /// Open the log in a directory, which a store names `commitlog`.
    ///
    /// Args:
    ///     directory: The directory. Files whose names are not 20 digits are ignored.
    ///     access: "auto" (by `pread`), "mmap" or "pread".
    ///     compat: Nothing after the end of the log is a message; "4.9.3" accepts frames of version 1 only.
    ///     max_body_bytes: A body that decompresses to more is null, with the reason in `body_error`. At most 2000000000.
    ///     storage_options: Options of the store of a URL, by the names of the object_store crate.
    ///     filesystem: See `MessageStore.open`.
    ///
    /// Raises:
    ///     OSError: The directory cannot be read.
    #[staticmethod]
    #[pyo3(signature = (directory, *, access="auto", compat=None, max_body_bytes=67_108_864, storage_options=None, filesystem=None))]
    fn open(
        py: Python<'_>,
        directory: &Bound<'_, PyAny>,
        access: &str,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::max_body_bytes)] max_body_bytes: i64,
        storage_options: Option<BTreeMap<String, String>>,
        filesystem: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let directory = location::located(location::in_file_system(directory, filesystem)?, storage_options);
        open_log(py, directory, Settings(access.to_owned(), compat.map(str::to_owned), max_body_bytes))
    }

    /// Open a log whose files are in memory.
    ///
    /// Args:
    ///     files: The bytes of each file, which are copied, by its name: the offset of its first byte in 20 digits.
    ///     compat: As for `open`.
    ///     max_body_bytes: As for `open`.
    ///
    /// Raises:
    ///     ValueError: No file, or a name that is not 20 digits.
    #[staticmethod]
    #[pyo3(signature = (files, *, compat=None, max_body_bytes=67_108_864))]
    fn from_bytes(
        py: Python<'_>,
        files: BTreeMap<String, Vec<u8>>,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::max_body_bytes)] max_body_bytes: i64,
    ) -> PyResult<Self> {
        let misnamed = files.keys().find(|name| file_name::parse(name).is_none()).map(String::as_str);
        if let Some(name) = misnamed.or_else(|| files.is_empty().then_some("")) {
            return Err(PyValueError::new_err(format!("files: expected names of 20 decimal digits, found {name:?}")));
        }
        let files = files.into_iter().map(|(name, content)| (name, content.into()));
        open_log(
            py,
            Location::whole(Objects::in_memory(files)?),
            Settings("auto".to_owned(), compat.map(str::to_owned), max_body_bytes),
        )
    }

    /// Return the log with the files that it has now: none is added, and reading one that was deleted since is an error.
    ///
    /// Raises:
    ///     OSError: The directory cannot be read.
    fn pinned(&self, py: Python<'_>) -> PyResult<Self> {
        let pinned = self.log.call(py, CommitLog::pinned)?;
        Ok(Self::new(Closable::new(pinned, self.directory()), self.settings.clone()))
    }

    /// Return the parts of a range of the log that no file holds, in ascending order.
    ///
    /// Raises:
    ///     OSError: The directory cannot be read.
    fn missing(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: i64,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: u64,
    ) -> PyResult<Vec<(u64, u64)>> {
        let begin = begin_phy_offset.max(0).cast_unsigned();
        self.log.call(py, |log| log.missing(begin, end_phy_offset))
    }

    /// Start of the last file that holds messages; 0 without messages.
    #[getter]
    fn last_file(&self, py: Python<'_>) -> PyResult<u64> {
        self.log.call(py, CommitLog::last_file)
    }

    /// The directory.
    #[getter]
    fn path(&self) -> Location {
        self.directory()
    }

    /// The log's files in the order of their offsets, without strays.
    #[getter]
    fn files(&self, py: Python<'_>) -> PyResult<Vec<Location>> {
        let files = self.log.call(py, CommitLog::files)?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    /// Length of the log's files in bytes: the most frequent one; 0 without files.
    #[getter]
    fn file_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.log.call(py, CommitLog::file_size)
    }

    /// Offset of the first byte of the first file, 0 without files.
    #[getter]
    fn min_offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.log.call(py, CommitLog::min_offset)
    }

    /// Offset after the last valid frame of the last file with data; 0 without files.
    ///
    /// The first call is linear in that file. Later calls read only what was added since.
    #[getter]
    fn max_offset(&self, py: Python<'_>) -> PyResult<u64> {
        self.log.call(py, CommitLog::max_offset)
    }

    /// Return the file that holds an offset, or else the last file before it, and the offset in this file. If there is no such
    /// file, return the log's directory.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn place(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::phy_offset)] phy_offset: u64,
    ) -> PyResult<(String, u64)> {
        let (path, offset) = self.log.call(py, |log| log.place(phy_offset))?;
        Ok((path.display().to_string(), offset))
    }

    /// Return whether a batch that its writer never completed begins at this offset: its messages were refused.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn is_uncommitted(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::phy_offset)] phy_offset: u64,
    ) -> PyResult<bool> {
        self.log.call(py, |log| log.is_uncommitted(phy_offset))
    }

    /// Return whether the log has a single file that lacks its end, so that the size of the log's files is unknown.
    ///
    /// Args:
    ///     end_phy_offset: The end of the log.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn is_cut_short(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: u64,
    ) -> PyResult<bool> {
        self.log.call(py, |log| log.is_cut_short(end_phy_offset))
    }

    /// Check for stray files, gaps between files, and files of another length.
    ///
    /// Returns:
    ///     A `logdex.report.Report`; docs/findings.md lists the kinds.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn check_files(&self, py: Python<'_>) -> PyResult<Report> {
        self.log.call(py, CommitLog::check_files)
    }

    /// Return the ranges of the log whose file is missing, renamed or compressed.
    ///
    /// Files before the first one are expired and not missing, unless they were set aside: a directory entry has the name of
    /// such a file with a suffix. This method does not detect that the last files are missing.
    ///
    /// Args:
    ///     begin: First store time, in ms: only gaps whose messages may have been stored in a time range; None: no bound.
    ///     end: Last store time.
    ///     clock_slack_ms: How far the broker's clock may have stepped within a file.
    ///
    /// Returns:
    ///     A tuple for each range, in ascending order: the offset where it begins, the offset where it ends, and a
    ///     `logdex.report.Finding` of the kind "file-gap".
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (*, begin=None, end=None, clock_slack_ms=3_600_000))]
    fn gaps(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin)] begin: Option<i64>,
        #[pyo3(from_py_with = integer::end)] end: Option<i64>,
        #[pyo3(from_py_with = integer::clock_slack_ms)] clock_slack_ms: i64,
    ) -> PyResult<Vec<Part>> {
        let times = TimeRange::new(begin, end);
        Ok(gap_parts(&self.log.call(py, |log| log.gaps_in_time(times, clock_slack_ms))?))
    }

    /// Return the missing and damaged parts of the log that hold these offsets; linear in the files that hold damage.
    ///
    /// Args:
    ///     phy_offsets: Offsets of the log, ascending. Those before the log, after its end, and inside of valid messages have no
    ///         part, and neither have messages that a broker truncated.
    ///
    /// Returns:
    ///     A tuple for each part, as of `gaps`.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn damage(&self, py: Python<'_>, phy_offsets: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Part>> {
        let offsets: Vec<_> = phy_offsets.iter().map(any_offset).collect::<PyResult<_>>()?;
        let offsets: Vec<u64> = offsets.into_iter().flatten().collect();
        self.log.call(py, |log| log.damage(&offsets))
    }

    /// Return the end of a batch of messages: the offset of the first message that does not fit. The first one always fits.
    ///
    /// Args:
    ///     begin_phy_offset: Where the batch begins.
    ///     end_phy_offset: Where it ends at the latest.
    ///     max_bytes: The most bytes of log; None: no limit.
    ///     max_num: The most messages; None: no limit.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (begin_phy_offset, end_phy_offset, *, max_bytes=None, max_num=None))]
    fn batch_end(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: u64,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: u64,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: Option<u64>,
        #[pyo3(from_py_with = integer::max_num)] max_num: Option<u64>,
    ) -> PyResult<u64> {
        self.log.call(py, |log| log.batch_end(begin_phy_offset, end_phy_offset, max_bytes, max_num))
    }

    /// Return the topics of all messages, sorted; linear in the log.
    ///
    /// Args:
    ///     salvage: Continue after damage, without messages that a broker truncated. False: end where a broker's walk would.
    ///
    /// Returns:
    ///     The topics, and a `logdex.report.Report` of the damage if the walk continued after it.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (*, salvage))]
    fn topics(&self, py: Python<'_>, salvage: bool) -> PyResult<(Vec<String>, Report)> {
        let at_damage = if salvage { AtDamage::Skip { queue_end: 0 } } else { AtDamage::Stop };
        let (topics, report) = self.log.call(py, |log| log.topics(at_damage))?;
        Ok((topics, if salvage { report } else { Report::default() }))
    }

    /// Return the recovery that a broker would do on this log at its start.
    ///
    /// Args:
    ///     checkpoint: The store's checkpoint; None: zeros, as for a broker without the file.
    ///     last_exit_ok: Whether the broker was shut down cleanly: there is no file `abort`.
    ///     queue_end: The largest `ConsumeQueue.log_end` of the store; None or -1 without queues.
    ///     message_index_safe: The broker's setting messageIndexSafe.
    ///     settle: After an unclean exit, bring the files of the walk to the disk and read them from there, because the page
    ///         cache may hold writes that never reached the disk. For a caller that writes next.
    ///
    /// Returns:
    ///     Three offsets. The first is the beginning of the file where the broker's walk starts. The second is the end of the
    ///     log, after which everything is truncated. The third is the offset from which messages are dispatched to queues and
    ///     index; it is the end if none are. The rules are those of the release that the log was opened for, else of 4.9.3.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///
    /// Source: `CommitLog#recoverNormally`, `#recoverAbnormally`, `DefaultMessageStore#start`.
    #[pyo3(signature = (checkpoint=None, *, last_exit_ok, queue_end=None, message_index_safe=false, settle=false))]
    fn recovery(
        &self,
        py: Python<'_>,
        checkpoint: Option<&PyStoreCheckpoint>,
        last_exit_ok: bool,
        #[pyo3(from_py_with = integer::queue_end)] queue_end: Option<i64>,
        message_index_safe: bool,
        settle: bool,
    ) -> PyResult<(u64, u64, u64)> {
        let timestamps = checkpoint.map(|checkpoint| checkpoint.timestamps(py)).transpose()?.unwrap_or_default();
        let compat = self.reading()?.1.unwrap_or(Release::V4_9_3);
        let queue_end = queue_end.unwrap_or(-1);
        let start = Start { last_exit_ok, timestamps, queue_end, message_index_safe, compat, settle };
        let recovery = self.log.call(py, |log| log.recovery(start))?;
        Ok((recovery.begin, recovery.end, recovery.dispatch))
    }

    /// Read the message that begins at an offset.
    ///
    /// Args:
    ///     phy_offset: Any integer. A frame inside a body is not a message.
    ///
    /// Returns:
    ///     A `logdex.rocketmq.Message`. None if no message begins there, if the checksum of the body is wrong, or if a broker
    ///     truncated the message and left it on the disk (see `is_cut_off`).
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn message(&self, py: Python<'_>, phy_offset: &Bound<'_, PyAny>) -> PyResult<Option<Message>> {
        let phy_offset = any_offset(phy_offset)?;
        self.log.call(py, |log| phy_offset.map_or(Ok(None), |phy_offset| log.message(phy_offset)))
    }

    /// Return whether a whole message that a broker truncated and left on the disk begins at an offset.
    ///
    /// A broker that truncates its log erases nothing. A message counts as truncated if it is after the end of the log and steps
    /// back in time or in its queue. It also counts if it is in the filling at the end of a file. In compat everything after the
    /// end of the log counts as truncated.
    ///
    /// Args:
    ///     phy_offset: Any integer.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn is_cut_off(&self, py: Python<'_>, phy_offset: &Bound<'_, PyAny>) -> PyResult<bool> {
        let phy_offset = any_offset(phy_offset)?;
        self.log.call(py, |log| phy_offset.map_or(Ok(false), |phy_offset| log.is_cut_off(phy_offset)))
    }

    /// Return the messages that begin at these offsets, one row each, in the order of the offsets.
    ///
    /// Args:
    ///     phy_offsets: An Arrow column or a sequence of integers.
    ///     columns: Names of columns; None: all.
    ///     body: "decoded", or "stored": as the log holds it, possibly compressed.
    ///
    /// Returns:
    ///     A record batch. If no valid message begins at an offset (see `message`), all columns but `phy_offset` are null.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: An unknown column or value, or messages of more than 2 GB.
    #[pyo3(signature = (phy_offsets, *, columns=None, body="decoded"))]
    fn messages(
        &self,
        py: Python<'_>,
        phy_offsets: &Bound<'_, PyAny>,
        columns: Option<&Bound<'_, PyAny>>,
        body: &str,
    ) -> PyResult<ArrowBatch> {
        let (columns, bodies) = (self::columns(columns)?, bodies(body)?);
        let offsets = convert::int64_column(phy_offsets, "phy_offsets")?;
        self.log.call(py, |log| log.messages(&offsets, &columns, bodies)).map(ArrowBatch)
    }

    /// Return the messages at these offsets as the log holds them: frames one after another, in the order of the log.
    ///
    /// Args:
    ///     phy_offsets: An Arrow column or a sequence of integers. An offset where no valid message begins is left out, and a
    ///         repeated offset gives its frame again.
    ///     max_bytes: If the frames are longer, those at the later ones of the offsets as given are left out.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn stored_frames(
        &self,
        py: Python<'_>,
        phy_offsets: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: u64,
    ) -> PyResult<Vec<u8>> {
        let offsets = convert::int64_column(phy_offsets, "phy_offsets")?;
        self.log.call(py, |log| log.stored_frames(offsets.iter(), max_bytes))
    }

    /// Read the messages that begin at these offsets, in the order of the offsets, in batches of at most 64 MiB.
    ///
    /// Args:
    ///     phy_offsets: An Arrow column or a sequence of integers.
    ///     columns: Names of columns; None: all.
    ///     body: "decoded" or "stored".
    ///     selection: Return only messages that pass it; None: one row for each offset, as `messages` returns them.
    ///
    /// Raises:
    ///     OSError: An I/O error; the reader raises it, too.
    ///     ValueError: An unknown column.
    #[pyo3(signature = (phy_offsets, *, columns=None, body="decoded", selection=None))]
    fn message_batches(
        &self,
        phy_offsets: &Bound<'_, PyAny>,
        columns: Option<&Bound<'_, PyAny>>,
        body: &str,
        selection: Option<&Bound<'_, PyMessageFilter>>,
    ) -> PyResult<PyMessageReader> {
        let log = self.inner()?;
        let (columns, bodies) = (self::columns(columns)?, bodies(body)?);
        let offsets = convert::int64_column(phy_offsets, "phy_offsets")?;
        let filter = selection.map(|filter| filter.get().inner());
        Ok(PyMessageReader::new(CommitLog::message_batches(&log, offsets.iter().collect(), &columns, bodies, filter)))
    }

    /// Scan the messages in log order, up to the first frame that a broker would refuse.
    ///
    /// Args:
    ///     begin_phy_offset: No message begins before it. If a message begins at this offset, the walk starts there. Otherwise it
    ///         starts at the beginning of the file, because only a walk finds the frames.
    ///     end_phy_offset: No message begins at or after it.
    ///     columns: Names of columns, in the order wanted; None: all. Other columns are not decoded.
    ///     batch_size: The most rows of a batch, which ends earlier at 64 MiB; None: 8,192, or fewer in 3 MiB.
    ///     stop: When the scan ends. "broker": at the first frame that a broker would refuse. "salvage": the scan continues with
    ///         the next message that states its own offset. A last column `suspect` is then added: null, or the reasons to doubt
    ///         the message, separated by spaces. "after-stop": a broker's walk ends before it. "time-back": stored earlier than a
    ///         message before it. "queue-back": an earlier message of its queue has the same queue offset. "phy-offset": it
    ///         states another offset. "prop-crc": its property `__CRC32#` is wrong. "cut-off": a broker truncated it and left it
    ///         on the disk. "valid": as "salvage", without the messages that are "cut-off" and without that column.
    ///     body: "decoded", or "stored": as the log holds it, possibly compressed.
    ///     threads: Number of threads that check and decode; None: as many as there are processors, at most 4. With more than
    ///         one, batches may end before `batch_size`; the order is still that of the log. "salvage" always uses one thread,
    ///         "valid" from the first damage on.
    ///     check_crc: False: do not check the checksums of bodies, as a broker when it dispatches.
    ///     selection: Which messages are returned. The others are still checked.
    ///     queue_end: With "valid": messages before this offset are returned even if they seem truncated.
    ///
    /// Returns:
    ///     A reader of record batches, which is also an Arrow stream.
    ///
    /// Raises:
    ///     OSError: An I/O error; the reader raises it, too.
    ///     ValueError: An unknown column or value.
    ///
    /// Source: `CommitLog#checkMessageAndReturnSize`.
    #[pyo3(signature = (*, begin_phy_offset=None, end_phy_offset=None, columns=None, batch_size=None, stop="broker", body="decoded", threads=1, check_crc=true, selection=None, queue_end=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn scan(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: Option<i64>,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: Option<i64>,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: Option<i64>,
        stop: &str,
        body: &str,
        #[pyo3(from_py_with = integer::threads)] threads: Option<i64>,
        check_crc: bool,
        selection: Option<&Bound<'_, PyMessageFilter>>,
        #[pyo3(from_py_with = integer::queue_end)] queue_end: Option<i64>,
    ) -> PyResult<PyMessageReader> {
        let at_damage = match stop {
            "broker" => AtDamage::Stop,
            "salvage" => AtDamage::Salvage,
            "valid" => AtDamage::Skip { queue_end: log_offset(queue_end, 0) },
            _ => {
                let text = format!("stop={stop:?}: expected \"broker\", \"salvage\" or \"valid\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let scan = ScanOptions {
            begin_phy_offset: log_offset(begin_phy_offset, 0),
            end_phy_offset: log_offset(end_phy_offset, u64::MAX),
            columns: self::columns(columns)?,
            batch_size: convert::batch_of_rows(batch_size)?,
            bodies: bodies(body)?,
            at_damage,
            threads: convert::threads(threads)?,
            check_crc,
            filter: PyMessageFilter::of(selection),
        };
        self.log.call(py, |log| log.scan(&scan)).map(PyMessageReader::new)
    }

    /// True if `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.log.is_closed()
    }

    /// Close the files that are kept open for look-ups. Running calls continue. Readers of scans are not affected.
    fn close(&self) {
        self.log.close();
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().inner()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        self.log.text("CommitLog")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("logdex._core")?.getattr("_open_commit_log")?;
        Ok((open, (offset_files::directories(&self.directory())?, self.settings.clone())))
    }
}

/// The state of a scan.
#[derive(Clone)]
pub(super) struct Notes {
    end_offset: Option<u64>,
    checked: Report,
    missing: Vec<i64>,
    unsearched: Vec<Finding>,
}

impl Batches for MessageReader<FileSource> {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Notes {
        Notes {
            end_offset: self.stop().map(|stop| stop.phy_offset),
            checked: self.checked().clone(),
            missing: self.missing().to_vec(),
            unsearched: self.unsearched(),
        }
    }
}

/// Messages as record batches: an iterator, and an Arrow stream for a consumer.
///
/// As an iterator it releases the interpreter lock and raises I/O errors as they are.
#[pyclass(name = "MessageReader", module = "logdex._core", frozen)]
pub(super) struct PyMessageReader(BatchStream<MessageReader<FileSource>>);

impl PyMessageReader {
    pub(super) fn new(reader: MessageReader<FileSource>) -> Self {
        Self(BatchStream::new(reader))
    }
}

batch_reader! {
    PyMessageReader {
        /// Offset in the log where the scan ended; None while it goes on, and where it was handed over or closed before.
        #[getter]
        fn end_offset(&self, py: Python<'_>) -> PyResult<Option<u64>> {
            Ok(self.0.notes(py)?.end_offset)
        }

        /// The offsets read so far without a valid message, if `message_batches` was called with a selection.
        #[getter]
        fn missing(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
            Ok(self.0.notes(py)?.missing)
        }

        /// The bodies so far that could not be searched for the pattern of a selection, as a list of `logdex.report.Finding`.
        #[getter]
        fn unsearched(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
            Ok(self.0.notes(py)?.unsearched)
        }

        /// The findings so far, as a `logdex.report.Report`. After a hand-over, those of the new stream are not in it.
        #[getter]
        fn report(&self, py: Python<'_>) -> PyResult<Report> {
            Ok(self.0.notes(py)?.checked)
        }
    }
}
