"""Format `rocketmq_index`, writing: any DataFrame of (topic, key, phy_offset, store_timestamp) into index files.

Each task sorts its rows by offset and fills files of its own. A broker searches files from the newest to the oldest and
stops at the first that begins before the range asked for, so files must lie one after another in offset and in time: the
commit refuses tasks that overlap, and files that would not come after those already there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logdex.rocketmq import IndexFile
from logdex.spark.commit import Job, WrittenFile, index_files, report_space
from logdex.spark.rolling import RollingFiles
from logdex.spark.schema import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex.spark.options import Access

COLUMNS = ("topic", "key", "phy_offset", "store_timestamp")
_OFFSET, _TIME = COLUMNS.index("phy_offset"), COLUMNS.index("store_timestamp")
_BATCH_ROWS = 65_536
_ENTRY_BYTES = 20


@dataclass(frozen=True, slots=True)
class Span:
    """What some index files cover, both ends included.

    Attributes:
        first_offset: Smallest commit-log offset.
        last_offset: Largest commit-log offset.
        first_ms: Earliest store time, milliseconds since the epoch.
        last_ms: Latest store time, milliseconds since the epoch.
        what: Who covers it, in words.
    """

    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int
    what: str


@dataclass(frozen=True)
class TaskFiles(WriterCommitMessage):
    """What one attempt of a task wrote: the commit message.

    Attributes:
        files: Its files in their order; none for a task without rows.
        span: What they cover; None for a task without rows.
    """

    files: tuple[WrittenFile, ...]
    span: Span | None


class IndexWriter(DataSourceArrowWriter):
    """Writes index files; the driver commits what the tasks report."""

    def __init__(self, job: Job, *, hash_slots: int, max_entries: int, overwrite: bool, access: Access) -> None:
        self.job = job
        self.hash_slots = hash_slots
        self.max_entries = max_entries
        self.overwrite = overwrite
        self.access = access

    def write(self, iterator: Iterator[Any]) -> TaskFiles:
        """Sort the rows of a task and fill its files, in a worker, which holds them in memory meanwhile.

        Raises:
            ValueError: A topic, key, offset or time is null.
        """
        batches = [_checked(batch) for batch in iterator if batch.num_rows]
        if not batches:
            return TaskFiles((), None)
        directory = self.job.start_attempt()
        try:
            files = RollingFiles(directory, self.hash_slots, self.max_entries, access=self.access)
            for batch in in_order(batches):
                files.put(*batch.columns)
            written = files.close()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return TaskFiles(tuple(written), _covered(batches, f"task {directory.name.partition('-')[0]}"))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check that the tasks follow one another and give their files the final names, on the driver.

        Raises:
            ValueError: Two tasks, or a task and the files already there, overlap.
        """
        tasks = [m for m in messages if isinstance(m, TaskFiles) and m.span is not None]
        tasks.sort(key=lambda task: (_span(task).first_offset, _span(task).last_offset))
        spans = [_span(task) for task in tasks]
        target = Path(self.job.index_dir)
        present = [] if self.overwrite else _present(target, self.hash_slots, self.max_entries)
        check_order(present, spans)
        files = [file for task in tasks for file in task.files]
        self.job.commit(files, overwrite=self.overwrite)
        entries = sum(file.entries for file in files)
        report_space(files, self.job.index_dir, _ENTRY_BYTES * entries + 4 * self.hash_slots * len(files))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the attempts left; what failed tasks reported (None) is not needed for that."""
        del messages
        self.job.abort()


def check_order(present: Sequence[Span], tasks: Sequence[Span]) -> None:
    """Make sure that the spans of tasks, sorted by offset, follow one another and what is there.

    Two spans may share an end: one message's keys lie at one offset, and two messages in one millisecond.

    Raises:
        ValueError: Two of them overlap; the message says which, and names `arrange`.
    """
    furthest = max(present, key=lambda span: span.last_offset, default=None)
    latest = max(present, key=lambda span: span.last_ms, default=None)
    for span in tasks:
        if furthest is not None and span.first_offset < furthest.last_offset:
            raise _overlap("offset", span, furthest, appended=furthest in present)
        if latest is not None and span.first_ms < latest.last_ms:
            raise _overlap("time", span, latest, appended=latest in present)
        furthest = latest = span


def _overlap(kind: str, span: Span, earlier: Span, *, appended: bool) -> ValueError:
    own, other = (
        (f"{s.first_offset}..{s.last_offset}" if kind == "offset" else f"{s.first_ms}..{s.last_ms}")
        for s in (span, earlier)
    )
    if appended:
        advice = "only rows after those of the directory can be appended (mode overwrite replaces them)"
    else:
        advice = "write logdex.spark.arrange(df) instead of df"
        if kind == "time":
            advice += "; where it is arranged already, the clock was set back: write it as one partition"
    return ValueError(
        "index files must follow one another in offset and time, or a broker does not find all entries: "
        f"the {kind} range {own} of {span.what} overlaps {other} of {earlier.what}; {advice}"
    )


def _span(task: TaskFiles) -> Span:
    if task.span is None:
        raise ValueError("a task without rows covers nothing")
    return task.span


def _present(directory: Path, hash_slots: int, max_entries: int) -> list[Span]:
    """Tell what each file of the directory covers; only headers are read."""
    spans = []
    for path in index_files(directory):
        with IndexFile.open(path, hash_slots=hash_slots, max_entries=max_entries, access="pread") as file:
            if not len(file):
                continue
            header = file.header
        times = sorted((header.begin_timestamp, header.end_timestamp))
        offsets = sorted((header.begin_phy_offset, header.end_phy_offset))
        spans.append(Span(offsets[0], offsets[1], times[0], times[1], f"file {path.name}"))
    return spans


def in_order(batches: Sequence[Any]) -> Iterator[Any]:
    """Give the rows in the order of their offsets; rows of one offset stay as they came.

    Args:
        batches: Batches of topic, key, phy_offset (int64), store_timestamp, none of them empty.
    """
    if _are_in_order([batch.column(_OFFSET) for batch in batches]):
        yield from batches
        return
    columns = [_joined([batch.column(number) for batch in batches]) for number in range(len(COLUMNS))]
    # Arrow's sort is stable.
    order = pc.sort_indices(columns[_OFFSET])
    for start in range(0, len(order), _BATCH_ROWS):
        rows = order.slice(start, _BATCH_ROWS)
        yield pa.RecordBatch.from_arrays([column.take(rows) for column in columns], names=COLUMNS)


def _are_in_order(offsets: Sequence[Any]) -> bool:
    edges = pa.array([end.as_py() for column in offsets for end in (column[0], column[-1])], pa.int64())
    return all(
        pc.all(pc.less_equal(column.slice(0, len(column) - 1), column.slice(1)), min_count=0).as_py()
        for column in [edges, *offsets]
    )


def _joined(chunks: list[Any]) -> Any:
    """Put the chunks of a column together; texts with 64-bit offsets, as a task's keys may pass 2 GiB."""
    wide = {pa.utf8(): pa.large_utf8(), pa.binary(): pa.large_binary()}.get(chunks[0].type, chunks[0].type)
    return pa.concat_arrays([chunk.cast(wide) for chunk in chunks])


def _checked(batch: Any) -> Any:
    """Give the columns of a batch that an index needs, offsets and times as int64.

    Raises:
        ValueError: One of them is null.
    """
    columns = [batch.column(name) for name in COLUMNS]
    for name, column in zip(COLUMNS, columns, strict=True):
        if column.null_count:
            raise ValueError(f"cannot index a row whose {name} is null")
    topics, keys, offsets, times = columns
    return pa.RecordBatch.from_arrays([topics, keys, offsets.cast(pa.int64()), milliseconds(times)], names=COLUMNS)


def _covered(batches: Sequence[Any], what: str) -> Span:
    offsets, times = (
        pc.min_max(pa.chunked_array([batch.column(number) for batch in batches])).as_py() for number in (_OFFSET, _TIME)
    )
    return Span(offsets["min"], offsets["max"], times["min"], times["max"], what)
