"""Building a key index from a commit log, in parallel, into the very files of a sequential build.

Two passes. The first counts the index entries of every log file; with the counts the driver knows which entry is the first of
every index file and what its header starts with (build_plan). In the second every task makes whole index files and reads the
log from where its first entry lies. Only counts and names come back to the driver.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from logdex._core import index_entries
from logdex.hash_index.file_name import resolve_zone
from logdex.report import Report
from logdex.spark import files
from logdex.spark.build_plan import LogFileCount, Mark, Plan, TaskPlan, plan_build
from logdex.spark.checks import check_worker_python
from logdex.spark.commit import Job, WrittenFile, index_files, report_space
from logdex.spark.rolling import RollingFiles, Seed
from logdex.spark.schema import record_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from pyspark.sql import SparkSession

    from logdex.spark.options import Access, Compat

logger = logging.getLogger("logdex.spark")

# What the broker's rules for entries look at.
_COLUMNS = ("topic", "phy_offset", "store_timestamp", "uniq_key", "keys", "tags", "sys_flag")
_SCAN_ROWS = 8_192
_MARK_EVERY = 65_536
_TASKS_PER_CORE = 4
_UNKNOWN_CORES = 8
_ENTRY_BYTES = 20
_INDEXES_TAGS = "5.5.0"
_ANSWER = StructType([StructField("answer", StringType())])


def build_index(
    spark: SparkSession,
    store: str | PathLike[str],
    index_dir: str | PathLike[str],
    *,
    hash_slots: int = 5_000_000,
    max_entries: int = 20_000_000,
    zone: str | None = None,
    mode: str = "errorifexists",
    max_tasks: int | None = None,
    access: Access = "auto",
    compat: Compat = None,
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
    resolve_zone(zone)
    check_worker_python(spark)
    log_directory = str(files.commit_log_directory(Path(store).absolute()))
    target = Path(index_dir).absolute()
    if mode == "errorifexists" and index_files(target):
        raise FileExistsError(17, "index files exist (mode='overwrite' replaces them)", str(target))

    log = files.commit_log(log_directory, access=access, compat=compat)
    log_files = [_LogFile(begin, end) for begin, end in files.log_ranges(log)]
    work = _Work(log_directory, access, compat, min(_SCAN_ROWS, max_entries - 1))
    counts = [_count_from_json(text) for text in _run(spark, partial(_count, work), log_files)]
    _warn_of_early_end(counts, log_directory)
    plan = plan_build(
        counts,
        file_entries=max_entries - 1,
        max_tasks=max_tasks or _TASKS_PER_CORE * _cores(spark),
    )
    job = Job.start(target, zone)
    try:
        make = partial(_make_files, work, job, hash_slots, max_entries)
        written = [WrittenFile(**file) for text in _run(spark, make, plan.tasks) for file in json.loads(text)]
        _check_result(plan, written)
        job.commit(written, overwrite=mode == "overwrite")
    except BaseException:
        job.abort()
        raise
    report_space(written, str(target), _ENTRY_BYTES * plan.entries + 4 * hash_slots * len(written))
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

    log_directory: str
    access: Access
    compat: Compat
    scan_rows: int

    def messages(self, begin: int) -> Iterator[Any]:
        """Scan the log from a message on, in batches that are never empty."""
        log = files.commit_log(self.log_directory, access=self.access, compat=self.compat)
        stream = log.scan(begin_phy_offset=begin, columns=_COLUMNS, batch_size=self.scan_rows)
        return (batch for batch in record_batches(stream) if batch.num_rows)

    def entries(self, messages: Any) -> Any:
        """Make the index entries of a batch of messages."""
        return pa.record_batch(index_entries(messages, end_phy_offset=0, tags=self.compat == _INDEXES_TAGS))


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


def _run(spark: SparkSession, function: Callable[[Any], str], arguments: Sequence[Any]) -> list[str]:
    """Call a function for each argument, each call in a task of its own, and give the answers in their order."""
    if not arguments:
        return []

    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            texts = [json.dumps([number, function(arguments[number])]) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"answer": pa.array(texts, pa.utf8())})

    rows = spark.range(0, len(arguments), 1, len(arguments)).mapInArrow(answers, _ANSWER).collect()
    answered = dict(json.loads(row.answer) for row in rows)
    return [answered[number] for number in range(len(arguments))]


def _count(work: _Work, log_file: _LogFile) -> str:
    """Count what one log file gives, in a worker."""
    messages = entries = 0
    last: Seed | None = None
    last_message = log_file.begin
    continues = False
    marks = [Mark(log_file.begin, 0, None)]
    # Reading goes on to the next file's first message: only that tells that a sequential reader would come to it.
    for batch in work.messages(log_file.begin):
        offsets = batch.column("phy_offset")
        continues = log_file.end is not None and offsets[-1].as_py() >= log_file.end
        own = batch.filter(pc.less(offsets, log_file.end)) if continues else batch
        if own.num_rows:
            if entries >= marks[-1].entries + min(_MARK_EVERY, work.scan_rows):
                marks.append(Mark(offsets[0].as_py(), entries, last))
            messages += own.num_rows
            last_message = own.column("phy_offset")[-1].as_py()
            made = work.entries(own)
            entries += made.num_rows
            last = _seed(made, made.num_rows - 1) if made.num_rows else last
        if continues:
            break
    count = LogFileCount(
        begin=log_file.begin,
        messages=messages,
        entries=entries,
        last=last,
        message_after=messages > 0 and (last is None or last_message > last.phy_offset),
        continues=continues,
        marks=tuple(marks),
    )
    return json.dumps(asdict(count))


def _make_files(work: _Work, job: Job, hash_slots: int, max_entries: int, plan: TaskPlan) -> str:
    """Make the index files of one task, in a worker."""
    made = RollingFiles(job.start_attempt(), hash_slots, max_entries, seed=plan.seed, access=work.access)
    skip, left = plan.skip, plan.entries
    for messages in work.messages(plan.scan_from) if left else ():
        entries = work.entries(messages)
        passed = min(skip, entries.num_rows)
        if passed:
            made.seed = _seed(entries, passed - 1)
            skip -= passed
        own = entries.slice(passed, left)
        if own.num_rows:
            made.put(*(own.column(name) for name in ("topic", "key", "phy_offset", "store_timestamp")))
            left -= own.num_rows
        if not left:
            break
    if plan.empty_file:
        made.put_nothing()
    return json.dumps([asdict(file) for file in made.close()])


def _check_result(plan: Plan, written: Sequence[WrittenFile]) -> None:
    entries = sum(file.entries for file in written)
    if (len(written), entries) != (plan.files, plan.entries):
        raise RuntimeError(
            f"the log changed while it was read: counted {plan.entries} entries for {plan.files} files, "
            f"wrote {entries} into {len(written)}"
        )


def _warn_of_early_end(counts: Sequence[LogFileCount], directory: str) -> None:
    """Say so when files with messages lie behind the place where a sequential reader stops."""
    stopped = next((i for i, count in enumerate(counts) if not count.continues), len(counts))
    behind = [count for count in counts[stopped + 1 :] if count.messages]
    if behind:
        logger.warning(
            "%s: the log ends in file %020d; %d later files hold frames that no broker would read, they are not indexed",
            directory,
            counts[stopped].begin,
            len(behind),
        )


def _seed(entries: Any, row: int) -> Seed:
    offset = entries.column("phy_offset")[row].as_py()
    time = entries.column("store_timestamp").cast(pa.int64())[row].as_py()
    return Seed(offset, time)


def _count_from_json(text: str) -> LogFileCount:
    fields = json.loads(text)
    marks = tuple(Mark(mark["phy_offset"], mark["entries"], _seed_from(mark["last"])) for mark in fields.pop("marks"))
    return LogFileCount(**{**fields, "last": _seed_from(fields["last"])}, marks=marks)


def _seed_from(fields: dict[str, int] | None) -> Seed | None:
    return None if fields is None else Seed(**fields)
