"""A sealed index of record keys: one lookup in sorted rows instead of a scan. docs/formats/sealed.md describes its files.

It stands for the segments that are as they were when the log directory was sealed. Segments that changed or came later are read
as before. A sealed index that is missing or damaged changes no answer.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from logdex import _core
from logdex._core import RemotePath, SealedLogs, Sealing, SealSource, locate_beside
from logdex._files import refuse_broker_directory
from logdex.hash_index.sealed import open_sealed
from logdex.kafka.files import META_PROPERTIES
from logdex.report import Report, merge

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from logdex._core import LogSegment
    from logdex._types import Progress, Sealed
    from logdex.kafka.log import Log


def open_sealed_logs(sealed: Sealed, log_dir: Path) -> SealedLogs | None:
    """Open the sealed index that a log directory uses; see `open_sealed`."""
    # Remote storage cannot be written to, so its own directory has none.
    is_without = sealed == "auto" and _core.is_tiered(log_dir)
    return None if is_without else open_sealed(sealed, log_dir, SealedLogs.open)


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
