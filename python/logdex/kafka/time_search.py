"""Offsets by time in a whole log: the right answer, and a broker's.

Source: UnifiedLog#fetchOffsetByTimestamp, #searchOffsetInLocalLog; ListOffsetsRequest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from arro3.core import DataType

from logdex import _core
from logdex.kafka.file_name import LOG

if TYPE_CHECKING:
    from arro3.core import Array

    from logdex._types import Time
    from logdex.kafka.segments import Segments

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

_NONE = -1
_NS_PER_MS = 1_000_000
_HEADER = ("maxTimestamp", "baseOffset", "lastOffset", "count", "isControl")
_Answer: TypeAlias = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """A search by time in one log.

    Attributes:
        segments: The log.
        start: Its start offset.
        broker: Answer as a broker does, not right.
    """

    segments: Segments
    start: int
    broker: bool

    def find(self, t: Time, *, special: bool | None) -> _Answer:
        """Find the first record at or after a time, or what a special timestamp means; see `Log.offset_for_timestamp`."""
        time_ms = _core.time_ms(t, name="t")
        if special is None:
            special = not isinstance(t, datetime)
        if not special:
            return self._first(time_ms)
        if time_ms == MAX_TIMESTAMP:
            return self._newest_as_broker() if self.broker else self._newest()
        if time_ms == LATEST:
            return _NONE, self.segments.log_end()
        if time_ms in (EARLIEST, EARLIEST_LOCAL):
            return _NONE, self.start
        if time_ms == LATEST_TIERED:
            return _NONE, _NONE
        return self._first(time_ms)

    def _first(self, time_ms: int) -> _Answer:
        if self.broker:
            return self._first_as_broker(time_ms)
        for segment in self.segments.segments[self.segments.floor(self.start) :]:
            # Each segment's own index makes it cheap to see that it ends before that time.
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
        # COMPAT(kafka LogSegment#largestTimestamp): without any timestamp the file's modification time stands in.
        timestamp, _ = self.segments.segments[number].max_timestamp()
        path = self.segments.file(number, LOG)
        if timestamp >= 0 or path is None:
            return timestamp
        return path.stat().st_mtime_ns // _NS_PER_MS

    def _newest(self) -> _Answer:
        """Find the first of the data records with the largest timestamp, by the headers of all batches."""
        best = (_NONE, 0)
        for number in range(self.segments.floor(self.start), len(self.segments.segments)):
            best = max(best, (self._largest_of_data(number), -number))
        time, number = best
        return None if time == _NONE else self.segments.segments[-number].offset_for_timestamp(time, self.start)

    def _largest_of_data(self, number: int) -> int:
        largest = before = _NONE
        segment = self.segments.segments[number]
        for batch in segment.batches(columns=_HEADER, check_crc=False, on_error="stop"):
            times = timestamps(batch.column("maxTimestamp"))
            facts = zip(*(batch.column(name).to_pylist() for name in _HEADER[1:]), strict=True)
            for time, (base, last, count, control) in zip(times, facts, strict=True):
                # The first batch that is not all below the log's start may begin below it. Where a message set of old begins its
                # head does not say.
                cut, before = before < self.start <= last and (base is None or base < self.start), last
                # Compaction leaves batches without records, which keep their timestamps. Messages of old have no count.
                if time is None or time <= largest or count == 0 or control or last < self.start:
                    continue
                largest = max(largest, self._largest_within(number, last) if cut else time)
        return largest

    def _largest_within(self, number: int, last: int) -> int:
        """Give the largest timestamp of the records from the log's start up to an offset."""
        segment = self.segments.segments[number]
        stream = segment.records(begin_offset=self.start, end_offset=last + 1, columns=["timestamp"])
        return max((time for batch in stream for time in timestamps(batch.column("timestamp"))), default=_NONE)

    def _newest_as_broker(self) -> _Answer:
        """Find the first record, be it a marker, with the largest timestamp that the time indexes know."""
        known = [(segment.max_timestamp()[0], -number) for number, segment in enumerate(self.segments.segments)]
        time, number = max(known, default=(_NONE, 0))
        return None if time == _NONE else self.segments.segments[-number].offset_for_timestamp(time)


def timestamps(column: Array) -> list[Any]:
    """Give a column of Arrow timestamps as milliseconds, whatever year they are in."""
    return list(column.cast(DataType.int64()).to_pylist())
