"""Facts of a log directory, a partition and segments that are cheap to read."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from arro3.core import DataType

from logdex._core import broker_lock_holder
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.source import Usage, days

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from logdex._core import LogSegment
    from logdex.kafka.log import Log

TIMES = ("begin_timestamp", "end_timestamp", "log_bytes")
"""The facts of `times_and_size`."""


def times_and_size(segments: Sequence[LogSegment]) -> dict[str, Any]:
    """Return the time of the first record that has one, the largest of all, and the bytes. Reads few batches."""
    begin = end = None
    with contextlib.suppress(CorruptFileError):
        for segment in segments:
            largest, _ = segment.max_timestamp()
            end = largest if largest >= 0 and (end is None or largest > end) else end
            first = segment.offset_for_timestamp(0, control=True) if begin is None and largest >= 0 else None
            begin = first[0] if first is not None else begin
    return dict(zip(TIMES, (begin, end, sum(segment.size for segment in segments)), strict=True))


def broker_state(log_dir: Path) -> str:
    """Return in words whether a broker runs on a log directory, or how it ended."""
    with contextlib.suppress(OSError):
        holder = broker_lock_holder(log_dir / ".lock")
        if holder is not None:
            return f"running, process {holder}"
    if (log_dir / checkpoint.CLEAN_SHUTDOWN).exists():
        return "stopped cleanly"
    return "stopped without warning, or running elsewhere (.kafka_cleanshutdown is missing)"


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
    for batch in log.records(begin_offset=offset, columns=["timestamp"], batch_size=1, threads=1):
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
