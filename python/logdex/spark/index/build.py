"""Parallel build of a key index from a commit log, into exactly the files of a sequential build.

The build has two passes. The first pass reads each log file once and writes its index entries below the job's directory, 20
bytes each. From their counts the driver plans which entry is the first of each index file. In the second pass each task makes
whole index files from these entries. Only counts and names return to the driver.

A sequential build puts the log's entries one after another into files of N-1 entries. So file k holds the entries k(N-1) up to
(k+1)(N-1), and its header starts with the end of file k-1 (IndexService#getAndCreateLastIndexFile). Two more rules decide
whether a last file without entries exists: a broker opens the file for a message before it checks the message for keys
(IndexService#buildIndex), so one more message after a full file creates a new file, and any message creates the first one.
"""

from __future__ import annotations

import errno
import logging
import shutil
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException

from logdex._core import IndexRows, plan_log, write_index_rows
from logdex._types import check_int64
from logdex.hash_index.files import DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES
from logdex.report import Report
from logdex.rocketmq.index_service import INDEXES_TAGS
from logdex.rocketmq.layout import find_layout
from logdex.spark.damage import SparkDamage
from logdex.spark.index.job import RollingFiles, WrittenFile, index_files, make_job
from logdex.spark.workers import (
    call_beside,
    call_in_tasks,
    check_worker_python,
    commit_log,
    driver_path,
    known_geometry,
    require_directory,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from pyspark.sql import SparkSession

    from logdex._core import PlannedLog
    from logdex._types import Access, Compat
    from logdex.report import Finding
    from logdex.rocketmq import CommitLog
    from logdex.spark.index.job import Job, ObjectJob

logger = logging.getLogger("logdex.spark")

_TASKS_PER_CORE = 4
_UNKNOWN_CORES = 8


def build_index(
    spark: SparkSession,
    store: str | PathLike[str],
    index_dir: str | PathLike[str],
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
    zone: str | None = None,
    mode: str = "errorifexists",
    max_tasks: int | None = None,
    access: Access = "auto",
    compat: Compat | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Build the key index of a store's commit log: byte for byte the files of a sequential `IndexService.build_index`.

    Args:
        spark: The session whose workers build; all of them must see the same files.
        store: The store, or the directory of its commit log. It is only read.
        index_dir: The directory for the index files; created if it is missing. A path that all machines share, or a URL.
        hash_slots: Slots of an index file (the broker's maxHashSlotNum); None: those of the store's own index, else 5,000,000.
        max_entries: Entries of an index file, one of which is never used (the broker's maxIndexNum); None: likewise, 20,000,000.
        zone: Time zone of the file names; None: that of the machine that sees the store.
        mode: `errorifexists`, or `overwrite` to replace the index files of the directory, all at once.
        max_tasks: The largest number of writing tasks; None: four for each core.
        access: How files are read and written.
        compat: `5.5.0` indexes tags too, as that broker does.
        storage_options: Options of the stores of URLs; see `MessageStore.open`. They go to the tasks, and into no plan or log.

    Returns:
        A report of missing log files and of damage. Its `checked` counts log files, messages, entries, index files and reserved
        bytes.

    Raises:
        FileExistsError: The directory holds index files and the mode is not `overwrite`.
        FileNotFoundError: There is no store at the path.
        LockedError: The directory belongs to a store whose broker is running.
        LogdexError: The workers' Python cannot run logdex, or a worker does not have the log files that the driver saw.
    """
    if mode not in ("errorifexists", "overwrite"):
        raise ValueError(f"mode={mode!r}: expected errorifexists or overwrite")
    root, target = (driver_path(each, spark, storage_options) for each in (store, index_dir))
    check_int64(hash_slots=hash_slots, max_entries=max_entries, max_tasks=max_tasks)
    check_worker_python(spark)
    slots, entries = call_beside(spark, root, _geometry, root, hash_slots, max_entries)
    job = make_job(target, slots, entries, zone, overwrite=mode == "overwrite", access=access)
    job, log_files = call_beside(spark, root, _start, job, root, compat)
    try:
        counts = call_in_tasks(spark, partial(_write_rows, job, compat == INDEXES_TAGS), log_files)
        findings = list(dict.fromkeys(each for count in counts for each in count.findings))
        _warn_of_early_end(counts, log_files)
        plan = plan_build(counts, file_entries=entries - 1, max_tasks=max_tasks or _TASKS_PER_CORE * _cores(spark))
        made = call_in_tasks(spark, partial(_make_files, job, plan.rows), plan.tasks)
        written = [file for files in made for file in files]
        call_beside(spark, root, job.commit, written)
    except BaseException:
        call_beside(spark, root, job.abort)
        raise
    checked = {
        "log_files": len(counts),
        "messages": plan.messages,
        "entries": plan.entries,
        "index_files": len(written),
        "reserved_bytes": sum(file.reserved_bytes for file in written),
    }
    return Report(findings, checked)


def _start(job: Job | ObjectJob, store: Path, compat: Compat | None) -> tuple[Job | ObjectJob, list[LogFile]]:
    """Start the job, and return it and the files of the log."""
    require_directory(store)
    log_directory = find_layout(store).commit_log
    if not job.overwrite and index_files(job.target):
        raise FileExistsError(errno.EEXIST, "index files exist (mode='overwrite' replaces them)", str(job.target))
    log_files = list_log_files(commit_log(log_directory, access=job.access, compat=compat))
    job.start()
    return job, log_files


def _geometry(store: Path, hash_slots: int | None, max_entries: int | None) -> tuple[int, int]:
    """Return slots and entries as given; if neither is, those of the store's own index, and else the broker's defaults."""
    require_directory(store)
    index = find_layout(store).index
    if hash_slots is None and max_entries is None and index.is_dir():
        hash_slots, max_entries = known_geometry(index, None, None)
    slots = DEFAULT_HASH_SLOTS if hash_slots is None else hash_slots
    return slots, DEFAULT_MAX_ENTRIES if max_entries is None else max_entries


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        # A Connect session cannot read the number of cores of its server.
        return _UNKNOWN_CORES


class LogFile(NamedTuple):
    """A file of the log, the first offset of the next file, None for the last one, and both files as planned."""

    path: Path
    end: int | None
    planned: PlannedLog

    @property
    def begin(self) -> int:
        """Its first offset."""
        return int(self.path.name)


class LogFileCount(NamedTuple):
    """Result of the first pass over one commit-log file.

    `rows` is the path of its entries below the job's directory, `message_after` whether its last message has no entry, and
    `continues` whether a sequential reader continues into the next file.
    """

    rows: str
    messages: int
    entries: int
    message_after: bool
    continues: bool
    findings: Sequence[Finding] = ()


def list_log_files(log: CommitLog) -> list[LogFile]:
    """Return the files of a log with the ranges that they cover."""
    log = log.pinned()
    paths = log.files
    begins = [int(path.name) for path in paths]
    # The reader of a file continues to the first message of the next one.
    planned = [plan_log(log, begins[number : number + 2]) for number in range(len(paths))]
    return [LogFile(*each) for each in zip(paths, [*begins[1:], None], planned, strict=False)]


def _write_rows(job: Job | ObjectJob, tags: bool, log_file: LogFile) -> LogFileCount:  # noqa: FBT001 -- a pickled partial
    """Write the index entries of one log file into a file, in a worker, and return their counts."""
    log = SparkDamage().open(log_file.planned)
    path = job.start_attempt() / "rows"
    try:
        counts = write_index_rows(log, log_file.begin, log_file.end, tags, path)
        return LogFileCount(job.keep(path), *counts)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise


def _warn_of_early_end(counts: Sequence[LogFileCount], log_files: Sequence[LogFile]) -> None:
    """Log a warning if there are messages in files after the one in which a sequential reader stops."""
    walked = _walked(counts)
    unread = [count for count in counts[len(walked) :] if count.messages]
    if unread:
        last = log_files[len(walked) - 1].path
        logger.warning(
            "%s: the log ends in file %s; %d later files hold messages that no broker would read, they are not indexed",
            last.parent,
            last.name,
            len(unread),
        )


class TaskPlan(NamedTuple):
    """Work of one task of the second pass: the entries [first, last) of all, and whether it adds a last file without entries."""

    first: int
    last: int
    empty_file: bool


class Plan(NamedTuple):
    """The tasks of a build in the order of their files, what the first pass wrote (files with their entries), and the totals."""

    tasks: tuple[TaskPlan, ...]
    rows: list[tuple[str, int]]
    messages: int
    entries: int


def plan_build(counts: Sequence[LogFileCount], *, file_entries: int, max_tasks: int) -> Plan:
    """Divide the index files of a log among at most `max_tasks` tasks, each a run of whole files of `file_entries` entries.

    The counts are those of the log files, in order. Files after the first one that does not continue are not part of the log.
    """
    log = _walked(counts)
    entries = sum(count.entries for count in log)
    full, rest = divmod(entries, file_entries)
    # The last file with messages decides, whether or not these have entries.
    message_after = next((count.message_after for count in reversed(log) if count.messages), False)
    empty_file = rest == 0 and message_after
    filled = full + (rest > 0)
    tasks = min(max_tasks, filled) or (1 if empty_file else 0)
    ends = [min(filled * task // tasks * file_entries, entries) for task in range(tasks + 1)] if tasks else []
    plans = [TaskPlan(*each, empty_file=empty_file and each[1] == entries) for each in pairwise(ends)]
    rows = [(count.rows, count.entries) for count in log]
    return Plan(tuple(plans), rows, sum(count.messages for count in log), entries)


def _walked(counts: Sequence[LogFileCount]) -> Sequence[LogFileCount]:
    """Return the counts of the files that a sequential reader reads."""
    ends = (number for number, count in enumerate(counts, 1) if not count.continues)
    return counts[: next(ends, len(counts))]


def _make_files(job: Job | ObjectJob, written: Sequence[tuple[str, int]], task: TaskPlan) -> list[WrittenFile]:
    """Make the index files of one task from rows of the first pass, in a worker."""
    rows = IndexRows([(job.directory / name, count) for name, count in written], task.first, task.last)
    files = RollingFiles.start(job, rows.seed)
    try:
        for batch in rows:
            files.put(batch)
        if task.empty_file:
            files.put_nothing()
        return files.close()
    except BaseException:
        files.discard()
        raise
