"""How a read of a store is split into tasks: single messages by id and index, parts of queues, and ranges of the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from logdex._core import RemotePath, cut_log, cut_queue, plan_log
from logdex.errors import LogdexError
from logdex.hash_index.query import CLOCK_SLACK_MS
from logdex.report import unknown_topic
from logdex.rocketmq import MessageStore
from logdex.rocketmq.layout import configured_topics
from logdex.rocketmq.message import is_msg_id, offset_in_msg_id
from logdex.rocketmq.queues import QueueSet
from logdex.rocketmq.read import MessageRead, Range, subtract
from logdex.spark.log_source import Task, pack
from logdex.spark.messages.filter import extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from logdex._core import ConsumeQueue, PlannedLog
    from logdex.report import Damage
    from logdex.rocketmq import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.spark.log_source import TaskSize
    from logdex.spark.messages.filter import MessageFilter

logger = logging.getLogger("logdex.spark")

# Messages far apart cost more than as many bytes in a row.
_WORTH_SINGLE_READS = 8
_MOST_QUEUES = 1_024
_UNITS_SAMPLED = 64
_QUEUES_ASKED = 4
_MOST_REMOTE_CUTS = 1_000
_OFFSETS_A_PIECE = 4_096
_SOME_MESSAGE_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of one file of the log: messages that begin at offsets [begin, end)."""

    begin: int
    end: int
    planned: PlannedLog

    @property
    def size(self) -> int:
        """Bytes of log."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class OffsetsPiece:
    """Messages at known offsets, rising, of about `size` bytes."""

    offsets: tuple[int, ...]
    size: int
    planned: PlannedLog


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """The messages of one queue in the log range [begin, end), to which the units [first, last) of the queue lead.

    `path` is the directory of the queue, `size` the approximate bytes of the messages. No log file holds the ranges `missing`.
    """

    topic: str
    queue_id: int
    path: Path
    first: int
    last: int
    begin: int
    end: int
    size: int
    missing: tuple[Range, ...]


Piece: TypeAlias = LogPiece | OffsetsPiece | QueuePiece
_Selected: TypeAlias = tuple[list[OffsetsPiece] | list[QueuePiece], list[Range]]


class MessagePlan:
    """Plans one read of a store, on the driver."""

    def __init__(self, layout: StoreLayout, log: CommitLog, wanted: MessageFilter) -> None:
        self._layout = layout
        # The files are listed once for the whole plan.
        self._log = log.pinned()
        self._wanted = wanted
        options: dict[str, Any] = {"access": "auto", "compat": None, "clock_slack_ms": CLOCK_SLACK_MS}
        self._queues = QueueSet(layout, self._log, options)

    def unknown_topics(self) -> dict[str, str]:
        """Return the requested topics that the store does not have, each with a message; empty if only the log has topics."""
        queues = self._queues.topics() if self._wanted.topics else []
        if not queues:
            return {}
        known = {*queues, *configured_topics(self._layout.config)}
        return {each: unknown_topic(each, known) for each in sorted({*(self._wanted.topics or ())} - known)}

    def tasks(self, size: TaskSize, damage: Damage, *, pushdown: bool) -> list[Task]:
        """Split what is to be read into tasks of about as many bytes each.

        Args:
            size: The size of the tasks, if messages or queues allow such cuts.
            damage: Takes the log files that are missing.
            pushdown: Use ids, the index and the queues; otherwise whole ranges of the log are read.
        """
        ranges = self._ranges()
        for begin, end, finding in self._log.gaps():
            if any(begin < last and first < end for first, last in ranges):
                damage.add(finding)
        selected = self._selected(ranges) if pushdown else None
        found, scanned = ([], ranges) if selected is None else selected
        piece_bytes = size.task_bytes(sum(each.size for each in found) + sum(end - begin for begin, end in scanned))
        queues = self._longest_queues(scanned, piece_bytes) if self._log.file_size > piece_bytes else []
        pieces: list[Piece] = [part for each in found for part in self._cut(each, piece_bytes)]
        pieces += [LogPiece(*each) for each in cut_log(self._log, scanned, piece_bytes, queues)]
        return [Task(parts) for parts in pack(pieces, piece_bytes)]

    def _ranges(self) -> list[Range]:
        """Return the ranges of the log that can hold wanted messages, by offsets and by the times of the files."""
        if self._wanted.is_empty:
            return []
        least, greatest = extent(self._wanted.phy_offsets)
        ranges = self._log.ranges_in_time(*self._wanted.times, CLOCK_SLACK_MS)
        clipped = [(max(begin, least), min(end, greatest + 1)) for begin, end in ranges]
        return [(begin, end) for begin, end in clipped if begin < end]

    def _longest_queues(self, scanned: list[Range], piece_bytes: int) -> list[ConsumeQueue]:
        """Return a few queues with the most files; none where asking them takes longer than it helps."""
        most = _QUEUES_ASKED
        if isinstance(self._log.path, RemotePath):
            # Each cut is a few requests, and a log of so many files has as many tasks without them.
            most = 1 if sum(end - begin for begin, end in scanned) <= _MOST_REMOTE_CUTS * piece_bytes else 0
        if not most:
            return []
        paths = [path for held in self._queues.directories().values() for path in held]
        files = {path: len(list(path.iterdir())) for path in paths}
        paths.sort(key=lambda path: (-files[path], path))
        return [self._queues.open(path) for path in paths[:most]]

    def _cut(self, whole: OffsetsPiece | QueuePiece, piece_bytes: int) -> Iterator[OffsetsPiece | QueuePiece]:
        """Split the units of a queue into pieces that follow each other in the log."""
        if isinstance(whole, OffsetsPiece):
            yield whole
            return
        queue, place = self._queues.open(whole.path), (whole.topic, whole.queue_id)
        units, offsets = (whole.first, whole.last), (whole.begin, whole.end)
        for first, last, begin, end in cut_queue(
            self._log, queue, place, units, offsets, -(-whole.size // piece_bytes)
        ):
            size = whole.size * (last - first) // (whole.last - whole.first)
            yield replace(whole, first=first, last=last, begin=begin, end=end, size=size)

    def _selected(self, ranges: list[Range]) -> _Selected | None:
        """Return what ids, index or queues lead to, and the ranges that they do not cover; None if they do not help."""
        offsets = self._by_id()
        if offsets is not None:
            return self._at(offsets, ranges, [])
        found = self._by_index()
        if found is not None:
            offsets, covered = found
            rest = [part for each in ranges for part in subtract(each, covered)]
            return self._at(offsets, ranges, rest)
        return self._by_queues(ranges)

    def _by_id(self) -> set[int] | None:
        """Return the offsets that the query names, by offset id or by number; None if it names none."""
        named: list[set[int]] = []
        if "phy_offset" in self._wanted.compared:
            named.append(set(self._wanted.compared["phy_offset"]))
        if self._wanted.msg_ids is not None:
            named.append({offset_in_msg_id(each) for each in self._wanted.msg_ids if is_msg_id(each)})
        return set.intersection(*named) if named else None

    def _by_index(self) -> tuple[set[int], list[Range]] | None:
        """Return the offsets of candidates, and the ranges of the log that the index covers; None if it cannot help."""
        words = self._wanted.carried
        if words is None or not self._layout.index.is_dir():
            return None
        topics = self._topics()
        if not topics:
            return None
        begin, end = self._wanted.times
        try:
            with MessageStore.open(self._layout.root, commit_log=self._layout.commit_log) as store:
                parts = store.indexed_offsets(topics, words, begin=begin, end=end)
        except (LogdexError, OSError) as error:
            logger.warning("the index does not help, the log is read: %s", error)
            return None
        if parts is None:
            return None
        self._log.expect_end_after(max((high for (_, high), _ in parts), default=-1), self._layout.root)
        # Only a scan determines which messages after the end of a broker's walk are valid.
        end_of_log = self._log.max_offset
        offsets = {offset for _, offsets in parts for offset in pa.array(offsets).to_pylist()}
        return offsets, [(low, min(high, end_of_log)) for (low, high), _ in parts]

    def _topics(self) -> list[str]:
        """Return the topics to ask the index for; none if they are unknown."""
        if self._wanted.topics is not None:
            return sorted(set(self._wanted.topics))
        known = self._queues.topics()
        return sorted({*known, *configured_topics(self._layout.config)}) if known else []

    def _at(self, offsets: set[int], ranges: list[Range], scanned: list[Range]) -> _Selected:
        """Return the messages at these offsets and the scanned ranges without duplicates, in the order of the log."""
        end_of_log = self._log.max_offset
        inside = {each for each in offsets if _holds(ranges, each)}
        if any(each >= end_of_log for each in inside) and not _holds(scanned, max(inside)):
            scanned = [*scanned, *((max(begin, end_of_log), end) for begin, end in ranges if end > end_of_log)]
        rising = sorted(each for each in inside if not _holds(scanned, each))
        parts = [tuple(rising[at : at + _OFFSETS_A_PIECE]) for at in range(0, len(rising), _OFFSETS_A_PIECE)]
        return [
            OffsetsPiece(part, len(part) * _SOME_MESSAGE_BYTES, plan_log(self._log, part)) for part in parts
        ], scanned

    def _by_queues(self, ranges: list[Range]) -> _Selected | None:
        """Return parts of the queues of the wanted topics, and the log behind them; None if that is not cheaper."""
        if self._wanted.topics is None or not ranges:
            return None
        topics, ids = set(self._wanted.topics), self._wanted.queue_ids
        # First: a queue that is begun from here on lies behind it.
        limit = MessageRead(self._layout, self._log, self._queues, salvage=True).dispatched_up_to()
        held = {place: paths for place, paths in self._queues.directories().items() if place[0] in topics}
        # A topic without queues may have been deleted, with its messages still in the log.
        if {topic for topic, _ in held} != topics or any(len(paths) > 1 for paths in held.values()):
            return None
        held = {(topic, number): paths for (topic, number), paths in held.items() if ids is None or number in ids}
        opened = {place: self._queues.open(paths[0]) for place, paths in list(held.items())[:_MOST_QUEUES]}
        if len(opened) < len(held) or any(queue.kind != "plain" for queue in opened.values()):
            return None
        whole = (ranges[0][0], min(ranges[-1][1], limit))
        pieces = [piece for place, queue in opened.items() if (piece := self._units(queue, *place, whole)) is not None]
        if sum(each.size for each in pieces) * _WORTH_SINGLE_READS > sum(end - begin for begin, end in ranges):
            return None
        return pieces, [(max(begin, limit), end) for begin, end in ranges if end > limit]

    def _units(self, queue: ConsumeQueue, topic: str, queue_id: int, whole: Range) -> QueuePiece | None:
        """Return the units of a queue that can be wanted, and the approximate bytes of their messages."""
        least, greatest = extent(self._wanted.queue_offsets)
        first, last = max(queue.min_offset, least), min(queue.max_offset, greatest + 1)
        if first >= last or whole[0] >= whole[1]:
            return None
        sizes = queue.units(first, min(last, first + _UNITS_SAMPLED)).column("size")
        mean = int(pc.mean(pa.array(sizes)).as_py() or 0)
        missing = tuple(self._log.missing(*whole))
        return QueuePiece(topic, queue_id, queue.path, first, last, *whole, mean * (last - first), missing)


def _holds(ranges: Iterable[Range], offset: int) -> bool:
    return any(begin <= offset < end for begin, end in ranges)
