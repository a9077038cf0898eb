"""The segments of a partition directory, opened when they are needed and listed again when the directory changed."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logdex.kafka.file_name import LOG
from logdex.kafka.listing import Listing, list_partition
from logdex.kafka.segment import LogSegment

if TYPE_CHECKING:
    from pathlib import Path

    from logdex.kafka.file_name import TopicPartition

    _Stamp = tuple[Path, int, int, int]


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a log at one moment, in the order of their base offsets.

    Attributes:
        segments: The open segments.
        listing: All files of the directory.
    """

    segments: tuple[LogSegment, ...]
    listing: Listing

    def floor(self, offset: int) -> int:
        """Give the number of the segment that an offset lies in: the last with a base at or below it, else 0."""
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, offset) - 1)

    def end_of(self, number: int) -> int | None:
        """Give the base offset of the segment after one; None after the last."""
        following = number + 1
        return self.segments[following].base_offset if following < len(self.segments) else None

    def log_end(self) -> int:
        """Give the offset after the last whole batch."""
        return self.segments[-1].next_offset() if self.segments else 0

    def file(self, number: int, suffix: str) -> Path | None:
        """Give one of a segment's files; None where it is not there."""
        return self.listing.segments[self.segments[number].base_offset].get(suffix)


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
        """List the directory, and open what is new or was changed since the last call.

        Raises:
            OSError: The directory or a file cannot be read.
        """
        with self._lock:
            listing = list_partition(self._directory, self._next_offset)
            kept: dict[int, tuple[_Stamp, LogSegment]] = {}
            for base_offset, files in list(listing.segments.items()):
                try:
                    stamp = _stamp(files[LOG])
                    known = self._open.get(base_offset)
                    fresh = known is None or known[0] != stamp
                    kept[base_offset] = (stamp, LogSegment.open(files[LOG], **self._options)) if fresh else known  # type: ignore[assignment]
                except FileNotFoundError:
                    # A running broker deleted it since it was listed.
                    del listing.segments[base_offset]
            self._open = kept
            return Segments(tuple(segment for _, segment in kept.values()), listing)

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
