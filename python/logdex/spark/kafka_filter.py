"""What the filters of a query say about topic, partition, offset and timestamp, so that the indexes can answer them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as ds

from logdex._core import time_ms
from logdex.kafka.file_name import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from logdex.kafka import TopicPartition

_NEVER_NULL = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Bounds on what is read; what is None does not bound.

    Attributes:
        topics: Topics that can pass.
        partitions: Numbers of partitions that can pass.
        begin_offset: First offset.
        end_offset: First offset that cannot pass.
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
        """Say whether any record of a partition can pass."""
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> tuple[RecordFilter, list[Filter]]:
        """Give the bounds that all filters together set, and the filters that Spark has to check still."""
        bounds = cls()
        rest: list[Filter] = []
        for each in filters:
            narrowed = _narrow(bounds, each)
            bounds = narrowed or bounds
            # Offsets and names are compared exactly here; a timestamp is rounded, so Spark looks again.
            if narrowed is None or each.attribute == ("timestamp",):  # type: ignore[attr-defined]
                rest.append(each)
        return bounds, rest


def _narrow(bounds: RecordFilter, each: Filter) -> RecordFilter | None:
    """Narrow the bounds by one filter; None where it is not about one of these columns, or not in a way that helps."""
    column: tuple[str, ...] = getattr(each, "attribute", ())
    if len(column) != 1:
        return None
    name, value = column[0], getattr(each, "value", None)
    if isinstance(each, ds.IsNotNull):
        return bounds if name in _NEVER_NULL else None
    if name in ("topic", "partition"):
        return _narrow_names(bounds, each, name, value)
    if name == "offset":
        return _narrow_offset(bounds, each, value)
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return _narrow_time(bounds, each, value)
    return None


def _narrow_names(bounds: RecordFilter, each: Filter, name: str, value: Any) -> RecordFilter | None:
    if isinstance(each, ds.EqualTo):
        wanted = frozenset([value])
    elif isinstance(each, ds.In):
        wanted = frozenset(value)
    else:
        return None
    if name == "topic":
        return replace(bounds, topics=wanted if bounds.topics is None else bounds.topics & wanted)
    return replace(bounds, partitions=wanted if bounds.partitions is None else bounds.partitions & wanted)


def _narrow_offset(bounds: RecordFilter, each: Filter, value: Any) -> RecordFilter | None:
    begin, end = bounds.begin_offset, bounds.end_offset
    if isinstance(each, ds.EqualTo):
        begin, end = max(begin, value), min(end, value + 1)
    elif isinstance(each, ds.GreaterThan):
        begin = max(begin, value + 1)
    elif isinstance(each, ds.GreaterThanOrEqual):
        begin = max(begin, value)
    elif isinstance(each, ds.LessThan):
        end = min(end, value)
    elif isinstance(each, ds.LessThanOrEqual):
        end = min(end, value + 1)
    else:
        return None
    return replace(bounds, begin_offset=begin, end_offset=end)


def _narrow_time(bounds: RecordFilter, each: Filter, value: datetime) -> RecordFilter | None:
    first = time_ms(value)
    last = time_ms(value, end=True)
    begin = first if isinstance(each, ds.EqualTo | ds.GreaterThan | ds.GreaterThanOrEqual) else None
    end = last if isinstance(each, ds.EqualTo | ds.LessThan | ds.LessThanOrEqual) else None
    if begin is None and end is None:
        return None
    begins = [time for time in (bounds.begin_ms, begin) if time is not None]
    ends = [time for time in (bounds.end_ms, end) if time is not None]
    return replace(bounds, begin_ms=max(begins, default=None), end_ms=min(ends, default=None))
