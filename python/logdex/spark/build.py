"""Building a key index from a commit log, in parallel, into the very files of a sequential build.

Two passes. The first reads every log file, once, and leaves its index entries below the job's directory, twenty bytes each. With
their counts the driver knows which entry is the first of every index file (build_plan). In the second every task makes whole
index files of such entries. Only counts and names come back to the driver.
"""

from __future__ import annotations

import errno
import json
import logging
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from logdex._core import index_entries
from logdex._types import check_int64
from logdex.arrow import INDEXED_COLUMNS
from logdex.hash_index.file_name import resolve_zone
from logdex.hash_index.geometry import DEFAULT_HASH_SLOTS, DEFAULT_MAX_ENTRIES
from logdex.hash_index.index_service import INDEXES_TAGS
from logdex.report import Report
from logdex.spark import files
from logdex.spark.build_plan import LogFileCount, TaskPlan, plan_build
from logdex.spark.calls import call_in_tasks
from logdex.spark.checks import check_worker_python
from logdex.spark.commit import Job, WrittenFile, index_files, report_space
from logdex.spark.entry_rows import RowsWriter, entry_rows, read_rows
from logdex.spark.rolling import RollingFiles, Seed
from logdex.spark.schema import record_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from pyspark.sql import SparkSession

    from logdex._types import Access, Compat


logger = logging.getLogger("logdex.spark")

_SCAN_ROWS = 65_536
_TASKS_PER_CORE = 4
_UNKNOWN_CORES = 8


def build_index(
    spark: SparkSession,
    store: str | PathLike[str],
    index_dir: str | PathLike[str],
    *,
    hash_slots: int = DEFAULT_HASH_SLOTS,
    max_entries: int = DEFAULT_MAX_ENTRIES,
    zone: str | None = None,
    mode: str = "errorifexists",
    max_tasks: int | None = None,
    access: Access = "auto",
    compat: Compat | None = None,
) -> Report:
    """Build the key index of a store's commit log: byte for byte the files of a sequential `IndexService.build_index`.

    Args:
        spark: The session whose workers do it; they must see the same files as the driver.
        store: The store, or the directory of its commit log. Nothing in it is changed.
        index_dir: Where the index files go; made when it is not there.
        hash_slots: Slots of an index file (the broker's maxHashSlotNum).
        max_entries: Entries of an index file, one of which is never used (the broker's maxIndexNum).
        zone: Time zone of the file names; None is the driver's own.
        mode: `errorifexists`, or `overwrite` to replace the index files there, all at once.
        max_tasks: At most this many tasks write; None is four a core.
        access: How files are read and written.
        compat: With `5.5.0` tags are indexed too, as that broker does.

    Returns:
        A report whose `checked` tells the log files, messages, entries, index files and reserved bytes.

    Raises:
        FileExistsError: The directory holds index files and the mode is not `overwrite`.
        LockedError: The directory belongs to a store whose broker is running.
        LogdexError: The workers' Python cannot run logdex.
    """
    if mode not in ("errorifexists", "overwrite"):
        raise ValueError(f"mode must be errorifexists or overwrite, not {mode!r}")
    if hash_slots < 1 or max_entries < 2:  # noqa: PLR2004 - one entry of a file is never used
        raise ValueError(
            f"hash_slots must be at least 1 and max_entries at least 2, not {hash_slots} and {max_entries}"
        )
    check_int64(hash_slots=hash_slots, max_entries=max_entries, max_tasks=max_tasks)
    resolve_zone(zone)
    check_worker_python(spark)
    log_directory = str(files.commit_log_directory(Path(store).absolute()))
    target = Path(index_dir).absolute()
    if mode == "errorifexists" and index_files(target):
        raise FileExistsError(errno.EEXIST, "index files exist (mode='overwrite' replaces them)", str(target))

    log = files.commit_log(log_directory, access=access, compat=compat)
    log_files = [_LogFile(begin, end) for begin, end in files.log_ranges(log)]
    job = Job.start(target, zone)
    try:
        work = _Work(job, log_directory, access, compat)
        counts = [
            LogFileCount(**json.loads(text)) for text in call_in_tasks(spark, partial(_leave_rows, work), log_files)
        ]
        _warn_of_early_end(counts, log_files, log_directory)
        plan = plan_build(counts, file_entries=max_entries - 1, max_tasks=max_tasks or _TASKS_PER_CORE * _cores(spark))
        make = partial(_make_files, work, hash_slots, max_entries)
        written = [WrittenFile(**file) for text in call_in_tasks(spark, make, plan.tasks) for file in json.loads(text)]
        job.commit(written, overwrite=mode == "overwrite")
    except BaseException:
        job.abort()
        raise
    report_space(written, str(target), hash_slots)
    return Report(
        [],
        {
            "log_files": len(counts),
            "messages": plan.messages,
            "entries": plan.entries,
            "index_files": len(written),
            "reserved_bytes": sum(file.reserved_bytes for file in written),
        },
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What all tasks of a build have in common; plain values, as it is pickled into every task."""

    job: Job
    log_directory: str
    access: Access
    compat: Compat | None

    def messages(self, begin: int) -> Iterator[Any]:
        """Scan the log from a message on, in batches that are never empty."""
        log = files.commit_log(self.log_directory, access=self.access, compat=self.compat)
        stream = log.scan(begin_phy_offset=begin, columns=INDEXED_COLUMNS, batch_size=_SCAN_ROWS)
        return (batch for batch in record_batches(stream) if batch.num_rows)

    def entries(self, messages: Any) -> Any:
        """Make the index entries of a batch of messages, as rows."""
        entries = index_entries(messages, end_phy_offset=0, tags=self.compat == INDEXES_TAGS)
        return entry_rows(pa.record_batch(entries))


@dataclass(frozen=True, slots=True)
class _LogFile:
    """A file of the log: its first offset and the next file's, None for the last one."""

    begin: int
    end: int | None


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        # A Connect session does not tell.
        return _UNKNOWN_CORES


def _leave_rows(work: _Work, log_file: _LogFile) -> str:
    """Read one log file and leave its index entries in a file, in a worker; tell how many."""
    messages = entries = 0
    last_entry, last_message = -1, log_file.begin
    continues = False
    directory = work.job.start_attempt()
    with RowsWriter(directory / "rows") as rows:
        # Reading goes on to the next file's first message: only that tells that a sequential reader would come to it.
        for batch in work.messages(log_file.begin):
            offsets = batch.column("phy_offset")
            continues = log_file.end is not None and offsets[-1].as_py() >= log_file.end
            own = batch.filter(pc.less(offsets, log_file.end)) if continues else batch
            if own.num_rows:
                messages += own.num_rows
                last_message = own.column("phy_offset")[-1].as_py()
                made = work.entries(own)
                if made.num_rows:
                    entries += made.num_rows
                    last_entry = made.column("phy_offset")[-1].as_py()
                    rows.write(made)
            if continues:
                break
    after = messages > 0 and last_message > last_entry
    return json.dumps(asdict(LogFileCount(f"{directory.name}/rows", messages, entries, after, continues)))


def _make_files(work: _Work, hash_slots: int, max_entries: int, plan: TaskPlan) -> str:
    """Make the index files of one task from rows that the first pass left, in a worker."""
    made = RollingFiles(work.job.start_attempt(), hash_slots, max_entries, access=work.access)
    seeded = not plan.seeded
    for part in plan.parts:
        for rows in read_rows(work.job.directory / part.rows, part.start, part.stop):
            own = rows
            if not seeded:
                made.seed = Seed(rows.column("phy_offset")[0].as_py(), rows.column("store_timestamp")[0].as_py())
                own, seeded = rows.slice(1), True
            made.put(own)
    if plan.empty_file:
        made.put_nothing()
    return json.dumps([asdict(file) for file in made.close()])


def _warn_of_early_end(counts: Sequence[LogFileCount], log_files: Sequence[_LogFile], directory: str) -> None:
    """Say so when files with messages lie behind the place where a sequential reader stops."""
    stopped = next((i for i, count in enumerate(counts) if not count.continues), len(counts))
    behind = [count for count in counts[stopped + 1 :] if count.messages]
    if behind:
        logger.warning(
            "%s: the log ends in file %020d; %d later files hold frames that no broker would read, they are not indexed",
            directory,
            log_files[stopped].begin,
            len(behind),
        )
