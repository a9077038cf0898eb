"""Statistics of the writers of both brokers."""

from __future__ import annotations

import shutil
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from logdex._core import PutCounter

_PUT_TIMES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
"""Classes of the time of a put, in whole ms."""


class WriterStatistics(NamedTuple):
    """Counts of the work of a writer since it was opened, and of its pending work. Source: StoreStatsService.

    A put (of Kafka: an append) counts when it ends, with its flush if it waits for one. Messages of a store that were delivered
    after a delay count as well.
    """

    put_messages: int
    """Messages, or records."""
    put_bytes: int
    """Bytes of the log that were written."""
    put_rates: tuple[float, float, float]
    """Messages a second in the last 10, 60 and 600 s."""
    longest_put_ms: float
    put_times: dict[str, int]
    """Messages by the time that their put took, by RocketMQ's names: `[0~10ms]` and so on."""
    dispatch_behind_bytes: int
    """Bytes of the log that queues and index lack; 0 for Kafka, whose indexes are written with the log."""
    disk_ratio: float
    """The used part of the disk, as RocketMQ rounds it."""

    @classmethod
    def of(cls, counter: PutCounter, directory: Path, *, behind: int = 0) -> WriterStatistics:
        """Return the statistics of a counter.

        Raises:
            OSError: The use of the disk cannot be read.
        """
        messages, put_bytes, (last_10_s, last_60_s, last_600_s), longest_ms, times = counter.statistics
        put_times = dict(zip(_PUT_TIMES, times, strict=True))
        rates = last_10_s, last_60_s, last_600_s
        return cls(messages, put_bytes, rates, longest_ms, put_times, behind, disk_ratio(directory))


def disk_ratio(folder: Path) -> float:
    """Return the used part of a disk in whole percent, rounded up.

    Source: UtilAll#getDiskPartitionSpaceUsedPercent.

    Raises:
        OSError: An I/O error.
    """
    disk = shutil.disk_usage(folder)
    return ceil(disk.used * 100 / max(1, disk.used + disk.free)) / 100
