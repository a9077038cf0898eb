"""What a read of Kafka logs takes: options, filters of the query, tasks of about as many bytes each, and a worker's batches."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import InputPartition

from logdex import _core
from logdex.errors import CorruptFileError
from logdex.kafka import LogDir
from logdex.kafka.files import MAX_OFFSET
from logdex.spark.schema import RECORD_COLUMNS, arrow_schema, lay_out, warn_of_lost_instants
from logdex.spark.workers import pack, task_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.datasource import Filter

    from logdex.kafka import Log, LogSegment, TopicPartition

logger = logging.getLogger("logdex.spark")

_BATCH_ROWS = 16_384
_NEVER_NULL = ("topic", "partition", "offset")


@dataclass(frozen=True)
class ReadOptions:
    """What a task needs to know.

    Attributes:
        directory: The log directory.
        columns: Names of columns.
        begin: First timestamp in ms; None: no bound.
        end: Last timestamp in ms, included.
        isolation: Whether aborted transactions are left out.
        on_error: What to do at a damaged batch.
        access: How files are read.
        compat: A Kafka release whose answers are wanted.
    """

    directory: str
    columns: tuple[str, ...]
    begin: int | None = None
    end: int | None = None
    isolation: Any = "read_uncommitted"
    on_error: Any = "raise"
    access: Any = "auto"
    compat: str | None = None

    @property
    def committed(self) -> bool:
        """Whether only committed records are read."""
        return bool(self.isolation == "read_committed")

    def open(self) -> LogDir:
        """Open the directory."""
        return LogDir.open(self.directory, access=self.access, compat=self.compat)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Bounds that the filters of a query set; None is no bound.

    Attributes:
        topics: Wanted topics.
        partitions: Numbers of wanted partitions.
        begin_offset: First offset.
        end_offset: The offset after the last one.
        begin_ms: First timestamp.
        end_ms: Last timestamp, included.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    begin_offset: int = 0
    end_offset: int = MAX_OFFSET
    begin_ms: int | None = None
    end_ms: int | None = None

    def takes(self, partition: TopicPartition) -> bool:
        """Return whether a record of a partition can pass."""
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> tuple[RecordFilter, list[Filter]]:
        """Return the bounds that all filters set together, and the filters that Spark still has to check."""
        bounds = cls()
        rest: list[Filter] = []
        for each in filters:
            narrowed = bounds._narrowed(each)
            bounds = narrowed or bounds
            # Offsets and names are compared exactly here. A timestamp is rounded, so Spark checks again.
            if narrowed is None or each.attribute == ("timestamp",):  # type: ignore[attr-defined]
                rest.append(each)
        return bounds, rest

    def _narrowed(self, each: Filter) -> RecordFilter | None:
        """Return the bounds with one more filter; None if it does not bound one of these columns."""
        column: tuple[str, ...] = getattr(each, "attribute", ())
        if len(column) != 1:
            return None
        name: str = column[0]
        value: Any = getattr(each, "value", None)
        if isinstance(each, ds.IsNotNull):
            return self if name in _NEVER_NULL else None
        if name in ("topic", "partition") and isinstance(each, ds.EqualTo | ds.In):
            changes: dict[str, Any] = {f"{name}s": frozenset(value if isinstance(each, ds.In) else [value])}
            known: frozenset[Any] | None = getattr(self, f"{name}s")
            if known is not None:
                changes[f"{name}s"] &= known
            return replace(self, **changes)
        is_begin = isinstance(each, ds.EqualTo | ds.GreaterThan | ds.GreaterThanOrEqual)
        is_end = isinstance(each, ds.EqualTo | ds.LessThan | ds.LessThanOrEqual)
        if name == "offset" and (is_begin or is_end):
            first = value + isinstance(each, ds.GreaterThan)
            end = value + (not isinstance(each, ds.LessThan))
            return replace(
                self,
                begin_offset=max(self.begin_offset, first) if is_begin else self.begin_offset,
                end_offset=min(self.end_offset, end) if is_end else self.end_offset,
            )
        if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None and (is_begin or is_end):
            begins = [self.begin_ms, _core.time_ms(value) if is_begin else None]
            ends = [self.end_ms, _core.time_ms(value, end=True) if is_end else None]
            return replace(self, begin_ms=latest_of(begins), end_ms=earliest_of(ends))
        return None


def latest_of(times: Iterable[int | None]) -> int | None:
    """Return the latest time; None is no bound."""
    return max((time for time in times if time is not None), default=None)


def earliest_of(times: Iterable[int | None]) -> int | None:
    """Return the earliest time; None is no bound."""
    return min((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition: from `begin` on, before `end`, in about `size` bytes of log."""

    topic: str
    partition: int
    begin: int
    end: int
    size: int

    def __str__(self) -> str:
        """Return the text for a log message."""
        return f"{self.topic}-{self.partition} offsets {self.begin}..{self.end}"


@dataclass(frozen=True)
class LogTask(InputPartition):
    """What one task reads."""

    ranges: tuple[OffsetRange, ...]


def plan(
    bounds: Iterable[tuple[Log, int, int]], piece_bytes: int, min_tasks: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Cut the wanted offsets of several logs into tasks.

    Args:
        bounds: Each log with its first offset, and the offset after its last one.
        piece_bytes: The most bytes of a task, about.
        min_tasks: The least number of tasks; None: as few as the bytes allow.
    """
    asked = [(log, begin, end) for log, begin, end in bounds if begin < end]
    if min_tasks is not None and min_tasks > 0:
        total = sum(each.size for log, begin, end in asked for each in _split(log, begin, end, MAX_OFFSET))
        piece_bytes = task_bytes(total, piece_bytes, min_tasks)
    return pack((each for log, begin, end in asked for each in _split(log, begin, end, piece_bytes)), piece_bytes)


def _split(log: Log, begin: int, end: int, piece_bytes: int) -> Iterator[OffsetRange]:
    """Cut the offsets [begin, end) of a log at its segments, and large segments where their indexes tell."""
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    for segment, following in zip(segments, [*bases[1:], MAX_OFFSET], strict=True):
        low, high = max(begin, segment.base_offset), min(end, following)
        if low >= high:
            continue
        first = 0 if low <= segment.base_offset else _position(segment, low)
        last = segment.size if high == following else _position(segment, high)
        inside = [(at, pos) for at, pos in segment.cut_points(piece_bytes) if low < at < high and first < pos < last]
        for (start, at), (stop, then) in pairwise([(low, first), *inside, (high, max(first, last))]):
            yield OffsetRange(log.topic, log.partition, start, stop, then - at)


def _position(segment: LogSegment, offset: int) -> int:
    try:
        found = segment.translate_offset(offset)
    except CorruptFileError:
        return segment.size
    return segment.size if found is None else found[1]


def read_ranges(options: ReadOptions, ranges: tuple[OffsetRange, ...]) -> Iterator[Any]:
    """Read the records of some ranges as Arrow batches for Spark."""
    schema = arrow_schema(RECORD_COLUMNS, options.columns)
    lost = 0
    findings: list[Any] = []
    with options.open() as logs:
        for each in ranges:
            log = logs.log(each.topic, each.partition)
            stream = log.records(
                each.begin,
                each.end,
                options.begin,
                options.end,
                # Without any column an Arrow batch has no number of rows.
                options.columns or ("offset",),
                batch_size=_BATCH_ROWS,
                isolation=options.isolation,
                on_error=options.on_error,
            )
            # Not as an Arrow stream, so that errors keep their class and findings can be asked for.
            for batch in map(pa.record_batch, stream):
                rows, out_of_range = lay_out(batch, schema)
                lost += out_of_range
                if rows.num_rows:
                    yield rows
            findings += stream.findings
    warn_of_lost_instants(lost, f"{options.directory}: {', '.join(map(str, ranges))}")
    for finding in findings:
        logger.warning("%s at byte %d: %s, found %s", finding.path, finding.offset, finding.kind, finding.found)
