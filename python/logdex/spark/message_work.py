"""How a read of a log is cut into tasks: ranges of the log, single messages, and parts of queues, of about as many bytes each."""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from logdex._core import ConsumeQueue
    from logdex.rocketmq import CommitLog
    from logdex.rocketmq.queues import QueueSet
    from logdex.rocketmq.read import Range

_QUEUES_ASKED = 4
_OFFSETS_A_PIECE = 4_096


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of the log: messages that begin at offsets [begin, end)."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of log."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class OffsetsPiece:
    """Messages at known offsets, rising.

    Attributes:
        offsets: Where they begin.
        size: About how many bytes they have.
    """

    offsets: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """The messages of one queue in the log range [begin, end), to which the units [first, last) of the queue lead.

    Attributes:
        topic: The topic.
        queue_id: The queue.
        path: Directory of the queue.
        first: First unit.
        last: First unit that is not wanted.
        begin: First offset in the log.
        end: First offset that is not wanted.
        size: About how many bytes the messages have.
    """

    topic: str
    queue_id: int
    path: str
    first: int
    last: int
    begin: int
    end: int
    size: int


Piece: TypeAlias = LogPiece | OffsetsPiece | QueuePiece


@dataclass(frozen=True)
class Work(InputPartition):
    """What one task reads."""

    pieces: tuple[Piece, ...]


def cut_offsets(offsets: Iterable[int], mean_size: int) -> Iterator[OffsetsPiece]:
    """Cut single messages into pieces."""
    rising = sorted(set(offsets))
    for first in range(0, len(rising), _OFFSETS_A_PIECE):
        chosen = tuple(rising[first : first + _OFFSETS_A_PIECE])
        yield OffsetsPiece(chosen, len(chosen) * mean_size)


def cut_log(log: CommitLog, queues: QueueSet, ranges: Iterable[Range], piece_bytes: int) -> Iterator[LogPiece]:
    """Cut ranges of the log at its files, and larger files where messages of its longest queues begin.

    A queue is only asked where to cut: every cut is right, whatever it says. Without queues files stay whole, because only
    a walk tells where a message begins.
    """
    starts = [int(path.name) for path in log.files]
    longest: list[ConsumeQueue] | None = None
    for begin, end in ranges:
        edges = [begin, *(start for start in starts if begin < start < end), end]
        for low, high in pairwise(edges):
            pieces = -(-(high - low) // piece_bytes)
            at = low
            if pieces > 1:
                longest = _longest(queues) if longest is None else longest
                for number in range(1, pieces):
                    mark = _message_after(longest, low + (high - low) * number // pieces)
                    if mark is not None and at < mark < high:
                        yield LogPiece(at, mark)
                        at = mark
            yield LogPiece(at, high)


def is_true(log: CommitLog, piece: QueuePiece, phy_offset: int, queue_offset: int) -> bool:
    """Tell whether a unit of a piece's queue leads to its message."""
    return log.is_message_of(phy_offset, piece.topic, piece.queue_id, queue_offset)


def cut_queue(log: CommitLog, queue: ConsumeQueue, whole: QueuePiece, piece_bytes: int) -> Iterator[QueuePiece]:
    """Cut the units of a queue into pieces that follow one another in the log; whole where the queue is not true there."""
    pieces = -(-whole.size // piece_bytes)
    edges = [(whole.first, whole.begin)]
    for number in range(1, pieces):
        unit = whole.first + (whole.last - whole.first) * number // pieces
        offsets: Any = queue.units(unit, unit + 1).column("phy_offset").to_pylist()
        rises = offsets and unit > edges[-1][0] and edges[-1][1] < offsets[0] < whole.end
        # No piece would read what lies between a cut and the message to which its unit should lead.
        if rises and is_true(log, whole, offsets[0], unit):
            edges.append((unit, offsets[0]))
    edges.append((whole.last, whole.end))
    for (first, begin), (last, end) in pairwise(edges):
        size = whole.size * (last - first) // (whole.last - whole.first)
        yield replace(whole, first=first, last=last, begin=begin, end=end, size=size)


def _longest(queues: QueueSet) -> list[ConsumeQueue]:
    """Give a few queues that have the most files."""
    paths = [path for held in queues.directories().values() for path in held]
    paths.sort(key=lambda path: (-len(os.listdir(path)), path))  # noqa: PTH208 -- names are counted
    return [queues.open(path) for path in paths[:_QUEUES_ASKED]]


def _message_after(queues: Iterable[ConsumeQueue], offset: int) -> int | None:
    """Give the nearest offset, not below this one, to which one of the queues leads."""
    found = [mark for queue in queues if (mark := _unit_after(queue, offset)) is not None]
    return min(found, default=None)


def _unit_after(queue: ConsumeQueue, offset: int) -> int | None:
    units = _PhyOffsets(queue)
    place = bisect_left(units, offset)
    return units[place] if place < len(units) and units[place] >= offset else None


class _PhyOffsets:
    """The offsets in the log that a queue leads to, as a sequence to search; a unit that cannot be read counts as 0."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self._first = queue.min_offset

    def __len__(self) -> int:
        return max(self._queue.max_offset - self._first, 0)

    def __getitem__(self, place: int) -> int:
        units = self._queue.units(self._first + place, self._first + place + 1)
        offsets: Any = units.column("phy_offset").to_pylist()
        return int(offsets[0]) if offsets else 0
