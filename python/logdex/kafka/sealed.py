"""A sealed index of record keys: one lookup in sorted rows instead of a scan. docs/formats/sealed.md describes its files.

It stands for the segments that are as they were when the log directory was sealed. Segments that changed or came later are read
as before. A sealed index that is missing or damaged changes no answer.
"""

from __future__ import annotations

import errno
import logging
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from logdex import _core
from logdex._core import RemotePath, SealedLogs, Sealing, SealSource, ThreadLock, locate_beside
from logdex._files import Closing, refuse_broker_directory
from logdex.errors import CorruptFileError
from logdex.hash_index.sealed import open_sealed
from logdex.kafka.files import MAX_OFFSET, META_PROPERTIES
from logdex.report import Report, merge

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from logdex._core import LogSegment
    from logdex._types import Progress, Sealed
    from logdex.hash_index.query import TimeRange
    from logdex.kafka.log import Log

    Ranges: TypeAlias = Sequence[tuple[int, int]]

_log = logging.getLogger("logdex")

EVERYTHING = ((0, MAX_OFFSET),)
"""All offsets, as one range."""


class Candidates(NamedTuple):
    """Candidates of a key in a partition by an index, and the ranges of offsets that the index does not cover."""

    offsets: Sequence[int]
    holes: Ranges


class SealedKeys(Closing):
    """The sealed index of a log directory, if it has one, open for searches."""

    def __init__(self, sealed: Sealed, log_dir: Path) -> None:
        """Open the sealed index that a log directory uses.

        Raises:
            FileNotFoundError: There is no sealed index at the path that was given.
            CorruptFileError: Its catalog is damaged.
        """
        # Remote storage cannot be written to, so its own directory has none.
        is_without = sealed == "never" or (sealed == "auto" and _core.is_tiered(log_dir))
        self._sealed = None if is_without else open_sealed(sealed, log_dir, SealedLogs.open)
        self._lock = ThreadLock()

    def _opened(self) -> SealedLogs | None:
        with self._lock.hold():
            return self._sealed

    def candidates(self, logs: Sequence[Log], key: str, header: str | None, times: TimeRange) -> list[Candidates]:
        """Return the candidates of a key, or of a header's value, in each of some partitions of one topic."""
        sealed = self._opened()
        if sealed is not None and header in (None, sealed.header):
            text = key if header is None else f"{header}={key}"
            asked = [((log.topic, log.partition), log.segments) for log in logs]
            try:
                found = sealed.select(f"{logs[0].topic}#{text}", asked, begin=times.begin, end=times.end)
            except (CorruptFileError, OSError) as error:
                self._give_up(error)
            else:
                return [Candidates(offsets, _holes(covered)) for covered, offsets in found]
        return [Candidates([], EVERYTHING)] * len(logs)

    def _give_up(self, error: Exception) -> None:
        _log.warning("the sealed index is not used any more: %s", error)
        with self._lock.hold():
            self._sealed = None

    def words(self, logs: Iterable[Log]) -> str | None:
        """Return what is sealed, for people; None without a sealed index."""
        sealed = self._opened()
        if sealed is None:
            return None
        counts = [(len(log.segments), *sealed.entries((log.topic, log.partition), log.segments)) for log in logs]
        segments, standing, entries = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0, 0)
        others = f", {segments - standing} other segments" if segments > standing else ""
        return f"{standing} segments with {entries:,} entries in {sealed.directory}{others}"

    def verify(self, logs: Iterable[Log]) -> Report:
        """Compare the sealed rows with the records of the segments that they stand for."""
        sealed = self._opened()
        if sealed is None:
            return Report()
        return sealed.verify([((log.topic, log.partition), log.segments) for log in logs])

    def __repr__(self) -> str:
        sealed = self._sealed
        return f"SealedKeys({None if sealed is None else str(sealed.directory)!r})"

    def close(self) -> None:
        """Use it no more."""
        with self._lock.hold():
            self._sealed = None


def _holes(covered: Ranges) -> Ranges:
    """Return the ranges between and around sealed offsets.

    Each goes on to the first record of the sealed segment after it: who reads a segment and not the next one takes its end for
    the end of the log, where a broker may have been writing.
    """
    edges = [(0, 0), *covered, (MAX_OFFSET, MAX_OFFSET)]
    return [(end, min(begin + 1, MAX_OFFSET)) for (_, end), (begin, _) in pairwise(edges) if end < begin]


def both(first: Ranges, second: Ranges) -> Ranges:
    """Return the offsets that are in both of two lists of ranges."""
    pairs = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return [(low, high) for low, high in pairs if low < high]


def seal(
    log_dir: Path,
    logs: Sequence[Log],
    out: str | os.PathLike[str] | None,
    header: str | None,
    progress: Progress | None,
) -> Report:
    """Seal a log directory; see `LogDir.seal`."""
    partitions = [(log.topic, log.partition) for log in logs]
    sealing = Sealing.of_logs(log_dir, sealing_target(log_dir, out), partitions, header)
    planned = planned_segments(logs)
    total, done = sum(segment.size for *_, segment, _ in planned), 0
    for partition, part, segment, following in planned:
        sealing.add(SealSource.segment(partition, part, segment, following, header))
        done += segment.size
        if progress is not None:
            progress(done, total)
    return merge([sealing.finish(), missing_segments(logs)])


def planned_segments(logs: Sequence[Log]) -> list[tuple[tuple[str, int], int, LogSegment, LogSegment | None]]:
    """Return each segment with its partition, the number of that in a sealed index, and the segment that follows."""
    planned: list[tuple[tuple[str, int], int, LogSegment, LogSegment | None]] = []
    for number, log in enumerate(sorted(logs, key=lambda log: (log.topic.encode(), log.partition))):
        segments = log.segments
        pairs = zip(segments, [*segments[1:], None], strict=False)
        planned += [((log.topic, log.partition), number, *pair) for pair in pairs]
    return planned


def missing_segments(logs: Sequence[Log]) -> Report:
    """Report the segments that are missing between others."""
    return Report([finding for log in logs for finding in log.missing_segments()])


def sealing_target(log_dir: Path, out: str | os.PathLike[str] | None) -> Path:
    """Return the directory of a new sealed index.

    No local directory of a broker: the name of a directory in it must be that of a partition, else the broker does not start.
    Source: LogManager#loadLogs, UnifiedLog#parseTopicPartitionName.
    """
    if out is None and _core.is_tiered(log_dir):
        raise ValueError(f"{log_dir}: segments in remote storage; expected out=, a directory for the sealed index")
    directory = _core.sealed_directory(log_dir if out is None else locate_beside(log_dir, out))
    if not isinstance(directory, RemotePath) and (directory.parent / META_PROPERTIES).exists():
        message = (
            "a log directory of a broker, which does not start if it holds a directory that is not a partition; "
            "seal into another directory (out=, --out DIR)"
        )
        raise FileExistsError(errno.EEXIST, message, str(directory.parent))
    refuse_broker_directory(directory, own=[log_dir] if directory.parent == log_dir else [])
    return directory
