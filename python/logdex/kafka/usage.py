"""The offsets and bytes of the partitions of a log directory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from arro3.core import DataType

from logdex.source import Usage, days

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logdex.kafka.log import Log


def usage(log: Log, *, by_day: bool) -> Iterator[Usage]:
    """Return the offsets of a partition, and the bytes of its segments from one offset to another; nothing is decompressed.

    A compacted partition has fewer records than offsets.
    """
    first, end = log.log_start_offset, log.log_end_offset
    if not by_day:
        yield Usage(log.topic, log.partition, None, end - first, log.size)
        return
    for day, begin, until in days(first, end, partial(_time_at, log), partial(_offset_at, log)):
        log_bytes = _bytes_before(log, until) - (_bytes_before(log, begin) if begin > first else 0)
        yield Usage(log.topic, log.partition, day, until - begin, log_bytes)


def _time_at(log: Log, offset: int) -> int | None:
    """Return the timestamp in ms of the first record at an offset or later; None without any, or without a timestamp."""
    for batch in log.records(begin_offset=offset, columns=["timestamp"], batch_size=1):
        if batch.num_rows:
            time: int = batch.column(0).cast(DataType.timestamp("ms")).cast(DataType.int64())[0].as_py()
            return time if time >= 0 else None
    return None


def _offset_at(log: Log, time: int) -> int | None:
    found = log.offset_for_timestamp(time)
    return None if found is None else found[1]


def _bytes_before(log: Log, offset: int) -> int:
    """Return the bytes of the batches before the one with an offset."""
    size = 0
    for segment in log.segments:
        found = segment.translate_offset(offset) if segment.base_offset < offset else (offset, 0, 0)
        size += segment.size if found is None else found[1]
        if found is not None:
            break
    return size
