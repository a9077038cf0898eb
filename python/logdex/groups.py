"""How far consumer groups have read."""

from __future__ import annotations

from typing import NamedTuple


class GroupOffset(NamedTuple):
    """The place of a consumer group in a queue or partition.

    `offset` is the next offset that it reads, `end_offset` the one after the last message, or None if the queue is not here.
    `commit_timestamp` is when it said so, in ms since the epoch (Kafka), or None if that is not kept.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    end_offset: int | None
    commit_timestamp: int | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets it has yet to read; None if the queue is not here."""
        return None if self.end_offset is None else max(0, self.end_offset - self.offset)
