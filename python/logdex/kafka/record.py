"""A record of a partition, as an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex.kafka.time_search import timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arro3.core import RecordBatch


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: Its offset in the partition.
        timestamp: In ms since the epoch; -1 for none.
        timestamp_type: 0 set by the producer, 1 set by the broker, -1 none.
        key: The key; None for none.
        value: The value; None for a tombstone.
        headers: Pairs of name and value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
"""The columns that a `Record` needs."""


def records_of(batch: RecordBatch) -> Iterator[Record]:
    """Give the rows of a batch with at least these columns."""
    names = ("topic", "partition", "offset", "timestampType", "key", "value", "headers")
    columns = (batch.column(name).to_pylist() for name in names)
    times = timestamps(batch.column("timestamp"))
    for time, (topic, partition, offset, kind, key, value, headers) in zip(
        times, zip(*columns, strict=True), strict=True
    ):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield Record(topic, partition, offset, time, kind, key, value, pairs)
