"""Totals of the consume queues of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from arro3.core import Array

    from logdex._core import Queues
    from logdex.report import Finding

UNIT_BYTES = {"plain": 20, "batch": 46}
"""Bytes of a unit, by the kind of its queue."""


class TopicTotals(NamedTuple):
    """Totals of a topic: the number of queues and messages, and the bytes of the messages in the log (None: not measured)."""

    topic: str
    queues: int
    messages: int
    log_bytes: int | None


class QueueTotals(NamedTuple):
    """Totals of queues.

    Attributes:
        topics: Totals by topic, sorted.
        ends: Log offsets of the first and the last message of each queue.
        gaps: Missing ranges of bytes between the files of a queue, as `CommitLog.gaps` returns them.
    """

    topics: list[TopicTotals]
    ends: Array
    gaps: list[tuple[int, int, Finding]]


def totals(queues: Queues, topics: Collection[str] | None = None, *, measure: bool = False) -> QueueTotals:
    """Return the totals of the queues of these topics or of all, read in one pass; `measure` reads all units."""
    rows, ends, gaps = queues.totals(topics, measure=measure)
    return QueueTotals(list(map(TopicTotals._make, rows)), ends, gaps)
