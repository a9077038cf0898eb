"""The segments of a partition directory: opened when needed, listed again when the directory changed, planned for a read.

Source of the search by time: UnifiedLog#fetchOffsetByTimestamp, #searchOffsetInLocalLog; ListOffsetsRequest.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex._core import LogSegment, ThreadLock, list_partition, missing_segments
from logdex.errors import CorruptFileError
from logdex.kafka import checkpoint
from logdex.kafka.files import LOG, MAX_OFFSET, Listing, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from logdex.report import Finding

    Aborted: TypeAlias = tuple[int, int, int]
    Part: TypeAlias = tuple[LogSegment, int | None, int | None, Sequence[Aborted] | None]
    """A segment, its first offset, the offset after its last one, and the transactions to leave out."""
    _Stamp: TypeAlias = tuple[Any, ...]

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_NONE = -1
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Segments:
    """The open segments of a log at one moment, by ascending base offset, and all files of the directory."""

    directory: Path
    segments: tuple[LogSegment, ...]
    listing: Listing

    def first_offset(self) -> int:
        """Return the base offset of the first segment, or of one before it whose file is not read; 0 without any."""
        return min((*self.listing.unread, *(segment.base_offset for segment in self.segments[:1])), default=0)

    def missing(self, begin: int = 0, end: int = MAX_OFFSET) -> tuple[list[tuple[int, tuple[int, int], Finding]], int]:
        """Return the segments that are missing in [begin, end), each with the number of the next segment and its offsets.

        The second value is the number of gaps that compaction left.
        """
        files = self.directory, self.segments, list(self.listing.unread.items())
        found, gaps = missing_segments(*files, begin, end, compacted=True)
        place = self.directory.absolute()
        if gaps and checkpoint.recorded(place.parent, checkpoint.CLEANER, partition_of(place)) is None:
            return missing_segments(*files, begin, end, compacted=False)
        return found, gaps

    def index_of(self, offset: int) -> int:
        """Return the number of the segment for an offset: the last with a base at or below it, else 0."""
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, offset) - 1)

    def is_last(self, number: int) -> bool:
        """Return whether no segment follows."""
        return number + 1 == len(self.segments)

    def log_end(self) -> int:
        """Return the offset after the last whole batch."""
        return self.segments[-1].next_offset() if self.segments else 0

    def readable_end(self) -> int:
        """Return `log_end`, or an offset before it if damage at the end of the log hides the rest."""
        return self.segments[-1].readable_end() if self.segments else 0

    def file(self, number: int, suffix: str) -> Path | None:
        """Return the path of one of a segment's files; None if it is missing."""
        return self.listing.segments[self.segments[number].base_offset].get(suffix)

    def offset_for_timestamp(self, start: int, time_ms: int, *, special: bool, broker: bool) -> tuple[int, int] | None:
        """Search the log, which begins at `start`; see `Log.offset_for_timestamp`. `broker`: answer as a broker does."""
        if special and time_ms in (_LATEST, _EARLIEST, _EARLIEST_LOCAL, _LATEST_TIERED):
            return _NONE, {_LATEST: self.log_end(), _LATEST_TIERED: _NONE}.get(time_ms, start)
        if special and time_ms == _MAX_TIMESTAMP:
            return self._newest(start, broker=broker)
        if broker:
            # Only the first segment that may reach the time is searched; a marker counts as a record.
            reaching = (each for number, each in enumerate(self.segments) if self._largest(number) >= time_ms)
            segment = next(reaching, None)
            return None if segment is None else segment.offset_for_timestamp(time_ms, start)
        # A segment's own index shows quickly that it ends before that time.
        answers = (each.offset_for_timestamp(time_ms, start) for each in self.segments[self.index_of(start) :])
        return next((answer for answer in answers if answer is not None), None)

    def _largest(self, number: int) -> int:
        # COMPAT(kafka LogSegment#largestTimestamp): without any timestamp the file's modification time is taken.
        timestamp, _ = self.segments[number].max_timestamp()
        path = self.file(number, LOG)
        return timestamp if timestamp >= 0 or path is None else path.stat().st_mtime_ns // _NS_PER_MS

    def _newest(self, start: int, *, broker: bool) -> tuple[int, int] | None:
        """Find the first record with the largest timestamp, by the headers of all batches.

        A broker uses its time indexes instead, which have markers as well.
        """
        if broker:
            known = [(segment.max_timestamp()[0], segment) for segment in self.segments]
        else:
            reached = self.segments[self.index_of(start) :]
            known = [(segment.largest_data_timestamp(start), segment) for segment in reached]
        # The first of equals.
        time, segment = max(known, key=lambda each: each[0], default=(_NONE, None))
        if time == _NONE or segment is None:
            return None
        return segment.offset_for_timestamp(time, None if broker else start)

    def parts(
        self, first: int, last: int, begin: int | None = None, aborted: Mapping[int, Sequence[Aborted]] | None = None
    ) -> Iterator[Part | Finding]:
        """Plan a read of the offsets in [first, last), as parts for `read_records`, with a finding for each missing segment.

        With `begin`, a time in ms, each segment is read from its first record at or after it on, or left out if it has none.
        `aborted` has the transactions to leave out, by the number of each segment.
        """
        if first >= last:
            return
        missing, _ = self.missing(first, last)
        for number in range(self.index_of(first), len(self.segments)):
            while missing and missing[0][0] <= number:
                yield missing.pop(0)[-1]
            segment = self.segments[number]
            if segment.base_offset >= last:
                break
            # A record belongs to the segment with the largest base at or below the record's offset.
            high = min(last, MAX_OFFSET if self.is_last(number) else self.segments[number + 1].base_offset)
            low = _first_at(segment, begin, max(first, segment.base_offset))
            if low is not None and low < high:
                omitted = [each for each in (aborted or {}).get(number, ()) if each[2] >= low and each[1] < high]
                yield segment, low, None if high == MAX_OFFSET else high, omitted
        yield from (finding for *_, finding in missing)


def _first_at(segment: LogSegment, begin: int | None, low: int) -> int | None:
    """Return the first offset of a segment from `low` on with a timestamp at or after `begin`; None if it has none."""
    if begin is None:
        return low
    try:
        # Control records count: a read may return them, and to skip one costs little.
        found = segment.offset_for_timestamp(begin, low, control=True)
    except CorruptFileError:
        return low  # the reader decides what damage means
    return None if found is None else found[1]


class SegmentMap:
    """Opens the segments of a directory, and keeps those open whose files did not change."""

    def __init__(self, directory: Path, options: dict[str, Any], pinned: Segments | None = None) -> None:
        """Keep the directory and the options of `LogSegment.open`; nothing is read before `refresh`.

        If segments are `pinned`, `refresh` returns these.
        """
        self._directory = directory
        self._options = options
        self._pinned = pinned
        self._open: dict[int, tuple[_Stamp, LogSegment]] = {}
        self._lock = ThreadLock()

    def refresh(self) -> Segments:
        """List the directory, and open each segment that is new or changed since the last call."""
        if self._pinned is not None:
            return self._pinned
        with self._lock.hold():
            listing = Listing(*list_partition(self._directory))
            opened: dict[int, tuple[_Stamp, LogSegment]] = {}
            for base_offset, files in list(listing.segments.items()):
                try:
                    options = self._options_of(base_offset, listing)
                    stamp = (*_stamp(files[LOG]), options["check"])
                    known = self._open.get(base_offset)
                    if known is None or known[0] != stamp:
                        known = stamp, LogSegment.open(files[LOG], **options)
                    opened[base_offset] = known
                except FileNotFoundError:
                    # A running broker deleted it after it was listed.
                    del listing.segments[base_offset]
            self._open = opened
            return Segments(self._directory, tuple(segment for _, segment in opened.values()), listing)

    def _options_of(self, base_offset: int, listing: Listing) -> dict[str, Any]:
        """Return the options of a segment.

        A running broker keeps the end of the indexes of its last segment in memory, and a crashed one rebuilds them: both files
        are full of zeros. Only after a clean stop they end with an entry, and are taken as they are.
        """
        is_last = base_offset == next(reversed(listing.segments))
        if self._options["compat"] is None or self._options["check"] is not None or not is_last:
            return self._options
        stopped = (self._directory.absolute().parent / checkpoint.CLEAN_SHUTDOWN).exists()
        return self._options if stopped else {**self._options, "check": "verify"}

    def close(self) -> None:
        """Close all segments."""
        with self._lock.hold():
            for _, segment in self._open.values():
                segment.close()
            self._open = {}


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return path, stat.st_ino, stat.st_size, stat.st_mtime_ns
