"""Retention: which files of a store are expired, and whether its disk takes more.

Source: DefaultMessageStore.CleanCommitLogService. Retention is per file of the log, by the time of its last write. It checks no
topic, and not at what consumers have read.
"""

from __future__ import annotations

import errno
import shutil
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from logdex.hash_index.files import resolve_zone
from logdex.statistics import disk_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import tzinfo
    from pathlib import Path

_HOUR_S = 3600
_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """When files of a store expire, and how full its disk may be. The defaults are a broker's.

    A log file is expired if nothing was written to it for `file_reserved_hours`. A writer with its thread deletes expired files
    during the hours `delete_when`, and at any hour if the disk is fuller than `disk_max_used`.

    Attributes:
        file_reserved_hours: Age in hours (fileReservedTime).
        delete_when: Hours of the day in the zone of the store, separated by `;` (deleteWhen).
        disk_max_used: Used part of the disk, 0 to 1 (diskMaxUsedSpaceRatio is the same in percent).
        clean_forcibly: If the disk is fuller than `disk_force`, delete the oldest files whatever their age
            (cleanFileForciblyEnable).
        disk_force: See `clean_forcibly` (diskSpaceCleanForciblyRatio).
        disk_full: Refuse puts if the disk is fuller than this (diskSpaceWarningLevelRatio).
    """

    file_reserved_hours: float = 72
    delete_when: str = "04"
    disk_max_used: float = 0.75
    clean_forcibly: bool = True
    disk_force: float = 0.85
    disk_full: float = 0.90

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: A value that has no meaning.
        """
        if not self.file_reserved_hours >= 0:
            raise ValueError(f"file_reserved_hours={self.file_reserved_hours}: expected 0 or more")
        for name in ("disk_max_used", "disk_force", "disk_full"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected 0 to 1")
        _ = self.hours

    @property
    def hours(self) -> frozenset[int]:
        """The hours of `delete_when`."""
        hours = self.delete_when.split(";")
        if not all(hour.isdecimal() and hour.isascii() and int(hour) < _HOURS for hour in hours):
            raise ValueError(f'delete_when={self.delete_when!r}: expected hours from 00 to 23, such as "04;16"')
        return frozenset(map(int, hours))


class Deleted(NamedTuple):
    """The files that a call deleted, and the offset at which the log begins now."""

    log_files: Sequence[Path]
    queue_files: Sequence[Path]
    index_files: Sequence[Path]
    min_offset: int


class DiskWatch:
    """The disk of a store: how full it is, and which log files are expired."""

    def __init__(self, folders: Sequence[Path], retention: Retention | None, zone: str | tzinfo | None) -> None:
        self._folders = folders
        self._retention = retention
        self._zone = resolve_zone(zone)
        self._used = 0.0

    def measure(self) -> None:
        """Measure how full the disk is, if that matters.

        Raises:
            OSError: An I/O error.
        """
        if self._retention is not None:
            self._used = max(map(disk_ratio, self._folders))

    def check(self) -> None:
        """Raise OSError if the disk was too full for puts when it was measured last."""
        if self._retention is not None and self._used > self._retention.disk_full:
            limit = self._retention.disk_full
            text = f"the disk is {self._used:.0%} full, more than {limit:.0%}; puts are refused until there is space"
            raise OSError(errno.ENOSPC, text, str(self._folders[0]))

    def is_time(self) -> bool:
        """Return whether a broker would delete expired files now: it is the hour, or the disk is rather full."""
        retention = self._retention
        if retention is None:
            return False
        return datetime.now(self._zone).hour in retention.hours or self._used > retention.disk_max_used

    def expired(self, files: Iterable[Path], reserved_hours: float | None, *, by_age: bool) -> list[Path]:
        """Return the files to delete: the first ones of these.

        Args:
            files: Log files, the oldest first, which may go.
            reserved_hours: Return those of this age. None: as the options require, which includes the use of the disk.
            by_age: False: only those that go because of the use of the disk.

        Raises:
            ValueError: Neither an age nor options were given.
            OSError: An I/O error.
        """
        needed = 0.0
        if reserved_hours is None:
            if self._retention is None:
                raise ValueError("reserved_hours: expected an age, because the store was opened without retention")
            reserved_hours = self._retention.file_reserved_hours
            needed = self._to_free(self._retention)
        if not reserved_hours >= 0:
            raise ValueError(f"reserved_hours={reserved_hours}: expected 0 or more")
        newest = time.time() - _HOUR_S * reserved_hours
        found = []
        for path in files:
            status = path.stat()
            if not (by_age and status.st_mtime <= newest) and needed <= 0:
                break
            found.append(path)
            needed -= status.st_size
        return found

    def _to_free(self, retention: Retention) -> float:
        """Return the bytes of files to delete whatever their age: at least one file if the disk is too full."""
        if not retention.clean_forcibly or self._used <= retention.disk_force:
            return 0.0
        # The space of a file that is open elsewhere is free only later: measuring after each file would delete too many.
        disk = shutil.disk_usage(self._folders[0])
        return max(1.0, disk.used - retention.disk_force * (disk.used + disk.free))
