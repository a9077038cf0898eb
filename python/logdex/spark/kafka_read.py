"""A read of Kafka logs: its options, and the records that a worker reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from logdex._types import MAX_INT64, MIN_INT64
from logdex.errors import CorruptFileError
from logdex.kafka import LogDir
from logdex.kafka.files import MAX_OFFSET
from logdex.spark.conditions import Conditions
from logdex.spark.log_source import Task, TaskSize, pack
from logdex.spark.schema import RECORD_COLUMNS, spark_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from logdex._types import Access, Isolation, OnError
    from logdex.kafka import Log, LogSegment, TopicPartition
    from logdex.spark.kafka_offsets import Bound, Topics

logger = logging.getLogger("logdex.spark")

_BATCH_ROWS = 16_384


class RecordFilter(Conditions):
    """Conditions on records."""

    TEXTS = ("topic",)
    NUMBERS = ("partition", "offset")
    TIME = "timestamp"

    def takes(self, partition: TopicPartition) -> bool:
        """Return whether a record of a partition can pass."""
        first, last = self.extent("partition")
        return (
            not self.is_empty
            and partition.topic in self.values.get("topic", (partition.topic,))
            and partition.partition in self.values.get("partition", (partition.partition,))
            and first <= partition.partition <= last
        )

    @property
    def times(self) -> tuple[int | None, int | None]:
        """The first and the last timestamp in ms; None: no bound."""
        begin, end = self.extent(self.TIME)
        return None if begin == MIN_INT64 else begin, None if end == MAX_INT64 else end


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
class ReadOptions:
    """The options of a read.

    Attributes:
        directory: The log directory.
        columns: Names of columns.
        wanted: The records to read, by the options and the filters of a query.
        topics: The partitions to read.
        first: The offsets at which the read begins.
        last: The offsets at which a batch ends.
        size: How the read is cut into tasks.
        isolation: Whether records of aborted transactions are left out.
        on_error: What to do at a damaged batch.
        access: How files are read.
        compat: The Kafka release whose answers are wanted.
    """

    directory: str
    columns: tuple[str, ...]
    wanted: RecordFilter
    topics: Topics
    first: Bound
    last: Bound
    size: TaskSize
    isolation: Isolation
    on_error: OnError
    access: Access
    compat: Any

    @property
    def committed(self) -> bool:
        """Whether only committed records are read."""
        return self.isolation == "read_committed"

    def open(self) -> LogDir:
        """Open the directory."""
        return LogDir.open(self.directory, access=self.access, compat=self.compat)

    def tasks(self) -> list[Task]:
        """Cut the wanted offsets of a batch into tasks of about as many bytes each."""
        with self.open() as logs:
            chosen = self.topics.choose(logs)
            for bound in (self.first, self.last):
                bound.check_names(chosen)
            wanted = [logs.log(each.topic, each.partition) for each in chosen if self.wanted.takes(each)]
            return cut_tasks([self._offsets(log) for log in wanted], self.size)

    def _offsets(self, log: Log) -> tuple[Log, int, int]:
        least, greatest = self.wanted.extent("offset")
        begin = max(self.first.resolve(log, committed=self.committed), least, log.log_start_offset)
        end = min(self.last.resolve(log, committed=self.committed), greatest + 1, log.log_end_offset)
        since, _ = self.wanted.times
        if since is not None and begin < end:
            # The time indexes tell where the first record of that time is.
            parts = next(iter(log.parts(begin, end, since)), None)
            begin = end if parts is None or parts[1] is None else parts[1]
        return log, begin, end

    def rows(self, pieces: Sequence[OffsetRange]) -> Iterator[Any]:
        """Read the records of some ranges as Arrow batches for Spark, in a worker."""
        where = f"{self.directory}: {', '.join(map(str, pieces))}"
        findings: list[Any] = []
        yield from spark_batches(self._batches(pieces, findings), RECORD_COLUMNS, self.columns, where)
        for finding in findings:
            logger.warning("%s at byte %d: %s, found %s", finding.path, finding.offset, finding.kind, finding.found)

    def _batches(self, pieces: Sequence[OffsetRange], findings: list[Any]) -> Iterator[Any]:
        with self.open() as logs:
            for each in pieces:
                stream = logs.log(each.topic, each.partition).records(
                    each.begin,
                    each.end,
                    *self.wanted.times,
                    self.columns,
                    batch_size=_BATCH_ROWS,
                    isolation=self.isolation,
                    on_error=self.on_error,
                )
                # Not as an Arrow stream, so that errors keep their class and findings can be asked for.
                yield from stream
                findings += stream.findings


def cut_tasks(bounds: Iterable[tuple[Log, int, int]], size: TaskSize) -> list[Task]:
    """Cut the wanted offsets of several logs, each with its first offset and the offset after its last one, into tasks."""
    asked = [(log, begin, end) for log, begin, end in bounds if begin < end]
    total = sum(each.size for part in asked for each in _split(*part, MAX_OFFSET)) if size.min_tasks else 0
    most = size.task_bytes(total)
    return [Task(ranges) for ranges in pack((each for part in asked for each in _split(*part, most)), most)]


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
