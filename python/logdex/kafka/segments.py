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

    from logdex.kafka.files import TopicPartition

    Aborted: TypeAlias = tuple[int, int, int]
    Part: TypeAlias = tuple[LogSegment, int | None, int | None, Sequence[Aborted] | None]
    """A segment, its first offset, the offset after its last one, and the transactions to leave out."""
    _Stamp: TypeAlias = tuple[Path, int, int, int]


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a log at one moment, by ascending base offset.

    Attributes:
        segments: The open segments.
        listing: All files of the directory.
    """

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

        Args:
            first: First offset.
            last: The offset after the last one.
            begin: A time in ms. Segments without records at or after it are left out, the others are read from the first such
                record on.
            aborted: Transactions to leave out, by the number of each segment.
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
        # The reader decides what damage means. Here it only means that nothing is saved.
        return low
    return None if found is None else found[1]


class SegmentMap:
    """Opens the segments of a directory, and keeps those open whose files did not change."""

    def __init__(self, directory: Path, partition: TopicPartition, options: dict[str, Any]) -> None:
        """Prepare; nothing is read before `refresh`.

        Args:
            directory: The partition's directory.
            partition: Topic and partition of the records.
            options: What `LogSegment.open` takes.
        """
        self._directory = directory
        self._options = {"topic": partition.topic, "partition": partition.partition, **options}
        self._open: dict[int, tuple[_Stamp, LogSegment]] = {}
        self._lock = threading.Lock()

    def refresh(self) -> Segments:
        """List the directory, and open each segment that is new or changed since the last call.

        Raises:
            OSError: The directory or a file cannot be read.
        """
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
