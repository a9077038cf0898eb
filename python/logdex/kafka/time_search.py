"""Offsets by time in a whole log: the right answer, and a broker's.

Source: UnifiedLog#fetchOffsetByTimestamp, #searchOffsetInLocalLog; ListOffsetsRequest.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """A search by time in one log.

    Attributes:
        segments: The log.
        start: Its start offset.
        broker: Answer as a broker does, not as the records say.
    """

    segments: Segments
    start: int
    broker: bool

    def find(self, t: Time, *, special: bool | None) -> _Answer:
        """Find the first record at or after a time, or what a special timestamp means; see `Log.offset_for_timestamp`."""
        time_ms = _core.time_ms(t, name="t")
        if special is None:
            special = not isinstance(t, datetime)
        if special and time_ms == MAX_TIMESTAMP:
            return self._newest()
        if special and time_ms == LATEST:
            return _NONE, self.segments.log_end()
        if special and time_ms in (EARLIEST, EARLIEST_LOCAL):
            return _NONE, self.start
        if special and time_ms == LATEST_TIERED:
            return _NONE, _NONE
        return self._first_as_broker(time_ms) if self.broker else self._first(time_ms)

    def _first(self, time_ms: int) -> _Answer:
        for segment in self.segments.segments[self.segments.index_of(self.start) :]:
            # The segment's own index shows quickly that it ends before that time.
            found = segment.offset_for_timestamp(time_ms, self.start)
            if found is not None:
                return found
        return None

    def _first_as_broker(self, time_ms: int) -> _Answer:
        """Ask the first segment that may reach the time, and no other; a marker counts as a record."""
        for number, segment in enumerate(self.segments.segments):
            if self._largest_timestamp(number) >= time_ms:
                return segment.offset_for_timestamp(time_ms, self.start)
        return None

    def _largest_timestamp(self, number: int) -> int:
        # COMPAT(kafka LogSegment#largestTimestamp): without any timestamp the file's modification time is taken.
        timestamp, _ = self.segments.segments[number].max_timestamp()
        path = self.segments.file(number, LOG)
        if timestamp >= 0 or path is None:
            return timestamp
        return path.stat().st_mtime_ns // _NS_PER_MS

    def _newest(self) -> _Answer:
        """Find the first record with the largest timestamp.

        The headers of all batches tell the largest timestamp of the data records. A broker takes what its time indexes know
        instead, of markers as well.
        """
        if self.broker:
            known = [(segment.max_timestamp()[0], segment) for segment in self.segments.segments]
        else:
            segments = self.segments.segments[self.segments.index_of(self.start) :]
            known = [(segment.largest_data_timestamp(self.start), segment) for segment in segments]
        time = max((time for time, _ in known), default=_NONE)
        if time == _NONE:
            return None
        segment = next(segment for known_time, segment in known if known_time == time)
        return segment.offset_for_timestamp(time, None if self.broker else self.start)
