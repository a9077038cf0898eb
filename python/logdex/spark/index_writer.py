"""Format `rocketmq_index`, writing: any DataFrame of (topic, key, phy_offset, store_timestamp) into index files.

Each task fills files of its own, in the order of offsets. A broker searches files from the newest to the oldest and
stops at the first that begins before the range asked for, so files must lie one after another in offset and in time: the
commit refuses tasks that overlap, and files that would not come after those already there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logdex.rocketmq import IndexFile
from logdex.spark.commit import Job, WrittenFile, index_files, report_space
from logdex.spark.entry_rows import entry_rows, follows, sorted_rows
from logdex.spark.rolling import RollingFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logdex._types import Access


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
        """Fill the files of a task, in a worker, and sort its rows where they do not come in order.

        Rows are put as they arrive. Once one comes whose offset is below that of the row before, the files are thrown away
        and made again from all rows, sorted; so rows are held, twenty bytes each.

        Raises:
            ValueError: A topic, key, offset or time is null.
        """
        files = self._start()
        held: list[Any] = []
        in_order = True
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                rows = entry_rows(batch)
                in_order = in_order and follows(held[-1] if held else None, rows)
                held.append(rows)
                if in_order:
                    files.put(rows)
            if not held:
                files.discard()
                return TaskFiles((), None)
            if not in_order:
                files.discard()
                files = self._start()
                for rows in sorted_rows(held):
                    files.put(rows)
            task = files.directory.name.partition("-")[0]
            return TaskFiles(tuple(files.close()), _covered(held, f"task {task}"))
        except BaseException:
            files.discard()
            raise

    def _start(self) -> RollingFiles:
        return RollingFiles(self.job.start_attempt(), self.hash_slots, self.max_entries, access=self.access)

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
        report_space(files, self.job.index_dir, self.hash_slots)

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


def _covered(batches: Sequence[Any], what: str) -> Span:
    rows = pa.Table.from_batches(batches)
    offsets, times = (pc.min_max(rows.column(name)).as_py() for name in ("phy_offset", "store_timestamp"))
    return Span(offsets["min"], offsets["max"], times["min"], times["max"], what)
