"""The segments of a partition directory: opened when needed, listed again when the directory changed, planned for a read."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex._core import LogSegment
from logdex.errors import CorruptFileError
from logdex.kafka.files import LOG, MAX_OFFSET, Listing, list_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    Aborted: TypeAlias = tuple[int, int, int]
    Part: TypeAlias = tuple[LogSegment, int | None, int | None, Sequence[Aborted] | None]
    """A segment, its first offset, the offset after its last one, and the transactions to leave out."""
    _Stamp: TypeAlias = tuple[Path, int, int, int]


@dataclass(frozen=True, slots=True)
class Segments:
    """The open segments of a log at one moment, by ascending base offset, and all files of the directory."""

    segments: tuple[LogSegment, ...]
    listing: Listing

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

    def file(self, number: int, suffix: str) -> Path | None:
        """Return the path of one of a segment's files; None if it is missing."""
        return self.listing.segments[self.segments[number].base_offset].get(suffix)

    def parts(
        self, first: int, last: int, begin: int | None = None, aborted: Mapping[int, Sequence[Aborted]] | None = None
    ) -> Iterator[Part]:
        """Plan a read of the offsets in [first, last), as parts for `read_records`.

        With `begin`, a time in ms, each segment is read from its first record at or after it on, or left out if it has none.
        `aborted` has the transactions to leave out, by the number of each segment.
        """
        for number in range(self.index_of(first), len(self.segments)):
            segment = self.segments[number]
            if segment.base_offset >= last or first >= last:
                return
            # A record belongs to the segment with the largest base at or below the record's offset.
            high = min(last, MAX_OFFSET if self.is_last(number) else self.segments[number + 1].base_offset)
            low = _first_at(segment, begin, max(first, segment.base_offset))
            if low is not None and low < high:
                omitted = [each for each in (aborted or {}).get(number, ()) if each[2] >= low and each[1] < high]
                yield segment, low, None if high == MAX_OFFSET else high, omitted


def _first_at(segment: LogSegment, begin: int | None, low: int) -> int | None:
    """Return the first offset of a segment from `low` on with a timestamp at or after `begin`; None if it has none."""
    if begin is None:
        return low
    try:
        # Control records count: a read may ask for them, and passing over one costs little.
        found = segment.offset_for_timestamp(begin, low, control=True)
    except CorruptFileError:
        return low  # the reader decides what damage means
    return None if found is None else found[1]


class SegmentMap:
    """Opens the segments of a directory, and keeps those open whose files did not change."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        """Keep the directory and the options of `LogSegment.open`; nothing is read before `refresh`."""
        self._directory = directory
        self._options = options
        self._open: dict[int, tuple[_Stamp, LogSegment]] = {}
        self._lock = threading.Lock()

    def refresh(self) -> Segments:
        """List the directory, and open each segment that is new or changed since the last call."""
        with self._lock:
            listing = list_partition(self._directory, self._next_offset)
            opened: dict[int, tuple[_Stamp, LogSegment]] = {}
            for base_offset, files in list(listing.segments.items()):
                try:
                    stamp = _stamp(files[LOG])
                    known = self._open.get(base_offset)
                    if known is None or known[0] != stamp:
                        known = stamp, LogSegment.open(files[LOG], **self._options)
                    opened[base_offset] = known
                except FileNotFoundError:
                    # A running broker deleted it after it was listed.
                    del listing.segments[base_offset]
            self._open = opened
            return Segments(tuple(segment for _, segment in opened.values()), listing)

    def _next_offset(self, log_file: Path) -> int:
        with LogSegment.open(log_file, **self._options) as segment:
            return segment.next_offset()

    def close(self) -> None:
        """Close all segments."""
        with self._lock:
            for _, segment in self._open.values():
                segment.close()
            self._open = {}


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return path, stat.st_ino, stat.st_size, stat.st_mtime_ns
