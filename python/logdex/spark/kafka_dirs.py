"""Several Kafka log directories as one: the disks of a broker (`log.dirs`), or brokers with replicas of the same partitions."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from logdex.kafka.checkpoint import LOG_START

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from logdex.kafka import Log, LogDir, TopicPartition
    from logdex.spark.damage import SparkDamage

_SETTLED_SECONDS = 2
"""After this time, a change of a file gives it another time stamp on every file system that keeps seconds or better."""


class LogDirs(ExitStack):
    """Open log directories, which it closes at the end; of the replicas of a partition one is taken."""

    def __init__(self, members: Sequence[LogDir]) -> None:
        super().__init__()
        self.path = ", ".join(str(self.enter_context(each).path) for each in members)
        self._logs: dict[TopicPartition, Log] = {}
        self._replicas: dict[TopicPartition, list[LogDir]] = {}
        for each in members:
            for partition in each.partitions():
                self._replicas.setdefault(partition, []).append(each)

    def partitions(self, topics: Collection[str] | None = None) -> list[TopicPartition]:
        """Return the partitions of some topics, sorted; None: all."""
        return sorted(each for each in self._replicas if topics is None or each.topic in topics)

    def __contains__(self, partition: object) -> bool:
        """Return whether a directory holds a partition."""
        return partition in self._replicas

    def has_replicas(self, partition: TopicPartition) -> bool:
        """Return whether several directories hold a partition."""
        return len(self._replicas[partition]) > 1

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition as it was at the first call.

        Of replicas it is the one that ends last, and of these the one that begins first.
        """
        if partition not in self._logs:
            # Each partition is listed once, however much is asked of it.
            logs = [each.log(partition.topic, partition.partition).pinned() for each in self._replicas[partition]]
            ends = [(0, 0)] if len(logs) == 1 else [(log.log_end_offset, -log.log_start_offset) for log in logs]
            self._logs[partition] = logs[ends.index(max(ends))]
        return self._logs[partition]


class Bounds(NamedTuple):
    """The first offset of a log, its end, and the end for this reader: read-committed, it is the last stable offset."""

    first: int
    end: int
    latest: int


def latest(log: Log, *, committed: bool) -> int:
    """Return the end of a log; for a read-committed consumer its last stable offset."""
    return log.last_stable_offset if committed else log.log_end_offset


def within(log: Log, begin: int, end: int, damage: SparkDamage) -> tuple[int, int]:
    """Return the offsets of [begin, end) that a log has, and lose the others: an error unless failOnDataLoss is false."""
    start, stop = log.log_start_offset, log.log_end_offset
    if begin > end or begin < start or end > stop:
        there = f"the offsets {start} to {stop}" if begin <= end else "a start after the end"
        damage.lose(log.path, f"the offsets {begin} to {end} (not included)", there)
    return max(begin, start), min(end, stop)


class KnownBounds:
    """Bounds of partitions, which are read again only if their files changed."""

    def __init__(self, *, committed: bool) -> None:
        self._committed = committed
        self._known: dict[TopicPartition, tuple[list[Path], object, Bounds]] = {}

    def of(self, logs: LogDirs, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return the bounds of those partitions that are there."""
        return {each: self._of(logs, each) for each in partitions if each in logs}

    def _of(self, logs: LogDirs, partition: TopicPartition) -> Bounds:
        files, stamp, bounds = self._known.get(partition, ([], None, None))
        if bounds is not None and stamp is not None and stamp == _stamp(files):
            return bounds
        log = logs.log(partition)
        files = [log.path.parent / LOG_START, log.path, *(segment.path for segment in log.segments[-1:])]
        # A change after the listing is too recent for a stamp.
        stamp = _stamp(files)
        bounds = Bounds(log.log_start_offset, log.log_end_offset, latest(log, committed=self._committed))
        # Of several replicas, the one to read may be another next time.
        self._known[partition] = files, None if logs.has_replicas(partition) else stamp, bounds
        return bounds


def _stamp(files: Iterable[Path]) -> object:
    """Return a stamp of files and directories; None if one may change again without another time."""
    stats = [path.stat() if path.exists() else None for path in files]
    newest = max((stat.st_mtime for stat in stats if stat), default=0)
    if time.time() - newest <= _SETTLED_SECONDS:
        return None
    return [stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]
