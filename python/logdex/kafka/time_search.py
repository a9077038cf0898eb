"""Offsets by time in a whole log: the right answer, and a broker's.

Source: UnifiedLog#fetchOffsetByTimestamp, #searchOffsetInLocalLog; ListOffsetsRequest.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from logdex import _core
from logdex.kafka.files import LOG

if TYPE_CHECKING:
    from logdex._types import Time
    from logdex.kafka.segments import Segments

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

_NONE = -1
_NS_PER_MS = 1_000_000
_Answer: TypeAlias = tuple[int, int] | None


def offset_for_timestamp(segments: Segments, start: int, t: Time, *, special: bool | None, broker: bool) -> _Answer:
    """Search a log that begins at `start`; see `Log.offset_for_timestamp`. `broker`: answer as a broker does."""
    time_ms = _core.time_ms(t, name="t")
    if special or (special is None and not isinstance(t, datetime)):
        if time_ms == MAX_TIMESTAMP:
            return _newest(segments, start, broker=broker)
        if time_ms == LATEST:
            return _NONE, segments.log_end()
        if time_ms in (EARLIEST, EARLIEST_LOCAL):
            return _NONE, start
        if time_ms == LATEST_TIERED:
            return _NONE, _NONE
    if broker:
        # The first segment that may reach the time is asked, and no other; a marker counts as a record.
        reaching = (each for number, each in enumerate(segments.segments) if _largest(segments, number) >= time_ms)
        segment = next(reaching, None)
        return None if segment is None else segment.offset_for_timestamp(time_ms, start)
    # A segment's own index shows quickly that it ends before that time.
    answers = (each.offset_for_timestamp(time_ms, start) for each in segments.segments[segments.index_of(start) :])
    return next((answer for answer in answers if answer is not None), None)


def _largest(segments: Segments, number: int) -> int:
    # COMPAT(kafka LogSegment#largestTimestamp): without any timestamp the file's modification time is taken.
    timestamp, _ = segments.segments[number].max_timestamp()
    path = segments.file(number, LOG)
    return timestamp if timestamp >= 0 or path is None else path.stat().st_mtime_ns // _NS_PER_MS


def _newest(segments: Segments, start: int, *, broker: bool) -> _Answer:
    """Find the first record with the largest timestamp, by the headers of all batches.

    A broker takes what its time indexes know instead, of markers as well.
    """
    if broker:
        known = [(segment.max_timestamp()[0], segment) for segment in segments.segments]
    else:
        reached = segments.segments[segments.index_of(start) :]
        known = [(segment.largest_data_timestamp(start), segment) for segment in reached]
    # The first of equals.
    time, segment = max(known, key=lambda each: each[0], default=(_NONE, None))
    if time == _NONE or segment is None:
        return None
    return segment.offset_for_timestamp(time, None if broker else start)
