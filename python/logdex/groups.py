"""Offsets of consumer groups."""

from __future__ import annotations

from typing import NamedTuple


class GroupOffset(NamedTuple):
    """The position of a consumer group in a queue or partition.

    `offset` is the next offset that it reads, `end_offset` the one after the last message, or None if the queue is not here.
    `commit_timestamp` is the time of the commit in ms since the epoch (Kafka), or None if it is not stored.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    end_offset: int | None
    commit_timestamp: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has not read yet; None if the queue is not here."""
        return None if self.end_offset is None else max(0, self.end_offset - self.offset)
