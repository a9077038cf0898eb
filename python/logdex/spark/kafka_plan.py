"""How a read of Kafka logs is cut into tasks: ranges of offsets of about as many bytes each, whole segments or parts of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from logdex.errors import CorruptFileError
from logdex.kafka import OffsetIndex
from logdex.kafka.file_name import MAX_OFFSET, OFFSET_INDEX
from logdex.spark.workers import pack, task_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from logdex.kafka import Log, LogSegment


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A part of one partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        begin: First offset.
        end: First offset that is not wanted.
        size: About how many bytes of log that is.
    """

    topic: str
    partition: int
    begin: int
    end: int
    size: int

    def __str__(self) -> str:
        """Name it for a log."""
        return f"{self.topic}-{self.partition} offsets {self.begin}..{self.end}"


def split(log: Log, begin: int, end: int, piece_bytes: int) -> Iterator[OffsetRange]:
    """Cut the offsets [begin, end) of a log at its segments, and these where their indexes say that enough bytes went by.

    An index is only asked where to cut: every cut is right, whatever it says.
    """
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    for segment, following in zip(segments, [*bases[1:], MAX_OFFSET], strict=True):
        low, high = max(begin, segment.base_offset), min(end, following)
        if low >= high:
            continue
        inside = [(offset, position) for offset, position in _marks(segment, piece_bytes) if low < offset < high]
        first = 0 if low <= segment.base_offset else _position(segment, low)
        last = segment.size if high == following else _position(segment, high)
        marks = [(low, first), *((offset, at) for offset, at in inside if first < at < last), (high, max(first, last))]
        for (start, at), (stop, then) in pairwise(marks):
            yield OffsetRange(log.topic, log.partition, start, stop, then - at)


def _position(segment: LogSegment, offset: int) -> int:
    try:
        found = segment.translate_offset(offset)
    except CorruptFileError:
        return segment.size
    return segment.size if found is None else found[1]


def _marks(segment: LogSegment, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Give (offset, position) of places to cut a segment, each about `piece_bytes` after the one before."""
    if segment.size <= piece_bytes:
        return
    try:
        index = OffsetIndex.open(segment.path.with_suffix(OFFSET_INDEX))
    except (CorruptFileError, OSError):
        return
    # Evenly, so that no small rest is left.
    pieces = -(-segment.size // piece_bytes)
    wanted = segment.size // pieces
    with index:
        for batch in index.entries():
            for offset, position in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if position >= wanted:
                    # The batch at that position ends with this offset, or goes on: the cut lies behind it.
                    yield offset + 1, position
                    wanted = position + segment.size // pieces


def plan(
    bounds: Iterable[tuple[Log, int, int]], piece_bytes: int, min_tasks: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Cut the wanted offsets of several logs into tasks.

    Args:
        bounds: Each log with its first offset, and the first that is not wanted.
        piece_bytes: The most bytes of a task, about.
        min_tasks: The least number of tasks; None: as few as the bytes allow.
    """
    asked = [(log, begin, end) for log, begin, end in bounds if begin < end]
    if min_tasks is not None and min_tasks > 0:
        total = sum(each.size for log, begin, end in asked for each in split(log, begin, end, MAX_OFFSET))
        piece_bytes = task_bytes(total, piece_bytes, min_tasks)
    return pack((each for log, begin, end in asked for each in split(log, begin, end, piece_bytes)), piece_bytes)
