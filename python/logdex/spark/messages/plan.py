"""The tasks of a read of a store: single messages by id and index, parts of queues, and ranges of the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from logdex._core import Queues, Store
from logdex.errors import LogdexError
from logdex.report import unknown_topic
from logdex.rocketmq.layout import configured_topics
from logdex.rocketmq.message import is_msg_id, offset_in_msg_id
from logdex.rocketmq.sealed import open_store
from logdex.source import matching_topics
from logdex.spark.log_source import Task, pack

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._core import PlannedLog
    from logdex.report import Damage
    from logdex.rocketmq import CommitLog
    from logdex.rocketmq.layout import StoreLayout
    from logdex.rocketmq.read import Range
    from logdex.spark.log_source import TaskSize
    from logdex.spark.messages.filter import MessageFilter

logger = logging.getLogger("logdex.spark")


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


class MessagePlan:
    """Plans one read of a store, on the driver."""

    def __init__(self, layout: StoreLayout, log: CommitLog, wanted: MessageFilter, *, pushdown: bool) -> None:
        """Take the store; `pushdown`: ids, the index and the queues may be used, otherwise whole ranges of the log are read."""
        self._layout = layout
        self._log = log
        self._wanted = wanted
        self._pushdown = pushdown
        self._queues = Queues(layout.root, log)

    def _known_topics(self) -> list[str] | None:
        """Return the topics that a message may have; None if only the log has topics."""
        queued = self._queues.topics()
        return sorted({*queued, *configured_topics(self._layout.config)}) if queued else None

    def topics(self) -> list[str]:
        """Return the topics that a message may have; a log without queues is read for them."""
        known = self._known_topics()
        return self._log.topics(salvage=True)[0] if known is None else known

    def unknown_topics(self) -> dict[str, str]:
        """Return the requested topics that the store does not have, each with a message; empty if only the log has topics."""
        known = self._known_topics() if self._wanted.topics else None
        if known is None:
            return {}
        wanted = matching_topics(self._wanted.topics or (), lambda: known)
        return {each: unknown_topic(each, {*known}) for each in sorted({*wanted} - {*known})}

    def _open(self) -> Store:
        """Open the store with its index if keys are wanted; if the index cannot be used, without it."""
        if self._pushdown and self._wanted.keys is not None:
            try:
                sealed = open_store("auto", self._layout.root)
                return Store.open(self._queues, self._layout.index, sealed=sealed)
            except (LogdexError, OSError) as error:
                logger.warning("the index does not help, the log is read: %s", error)
        return Store.open(self._queues, None)

    def tasks(self, size: TaskSize, damage: Damage) -> list[Task]:
        """Split what is to be read into tasks of about as many bytes each.

        Args:
            size: The size of the tasks, if messages or queues allow such cuts.
            damage: Takes the log files that are missing.
        """
        if self._wanted.is_empty:
            return []
        offsets = _offsets(self._wanted) if self._pushdown else None
        selection, known = self._wanted.selection(), self._known_topics
        plan = self._open().plan(selection, phy_offsets=offsets, pushdown=self._pushdown, known_topics=known)
        for note in plan.notes:
            logger.warning("%s", note)
        for finding in plan.gaps():
            damage.add(finding)
        piece_bytes = size.task_bytes(plan.size)
        queued, at_offsets, scanned = plan.cut(self._log, piece_bytes)
        pieces: list[Piece] = [QueuePiece(*each) for each in queued]
        pieces += [OffsetsPiece(*each) for each in at_offsets]
        pieces += [LogPiece(*each) for each in scanned]
        return [Task(parts) for parts in pack(pieces, piece_bytes)]


def _offsets(wanted: MessageFilter) -> list[int] | None:
    """Return the offsets that the query names, by offset id or by number; None if it names none."""
    named: list[set[int]] = []
    if "phy_offset" in wanted.compared:
        named.append(set(wanted.compared["phy_offset"]))
    if wanted.msg_ids is not None:
        named.append({offset_in_msg_id(each) for each in wanted.msg_ids if is_msg_id(each)})
    return [*set.intersection(*named)] if named else None
