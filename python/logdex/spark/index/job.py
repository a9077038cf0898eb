"""Commit of index files that parallel tasks wrote: all of them appear in the directory, or none.

    <index_dir>/_temporary/<job>/<partition>-<attempt>-<random>/<n>    files of the attempts of tasks
    <index_dir>/yyyyMMddHHmmssSSS                                      the files after the commit by the driver

Each attempt of a task writes into its own directory, so retried and speculative attempts never meet. The driver uses only the
files that an attempt reported. The commit links each file to its final name, which fails if the name is taken. If one link
fails, the commit removes all of them. It creates `_SUCCESS` last. Brokers ignore names that are not numbers, so they ignore
`_temporary` and `_SUCCESS`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import socket
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext

from logdex._files import sync_directory
from logdex._types import check_int64
from logdex.hash_index.directory import DirectoryLock, list_directory
from logdex.hash_index.geometry import file_size
from logdex.hash_index.rolling import create_next, resolve_zone
from logdex.rocketmq.index_service import refuse_running_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex._types import Access

logger = logging.getLogger("logdex.spark")

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"

_LARGE_BYTES = 1 << 30
"""A job that reserves more than this, most of it empty, logs a warning."""


class WrittenFile(NamedTuple):
    """One index file that an attempt finished, with its path below the job's directory."""

    path: str
    entries: int
    reserved_bytes: int


@dataclass(slots=True)
class Job:
    """A job that writes index files into one directory, after its files or in place of them (`overwrite`).

    `zone` is the time zone of the file names, None the driver's own; `job_id` is the name of the job below `_temporary`.

    Raises:
        ValueError: No index file can have these slots and entries, or there is no such zone.
    """

    index_dir: str
    hash_slots: int
    max_entries: int
    zone: str | None = None
    overwrite: bool = False
    access: Access = "auto"
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _made_index_dir: bool = False

    def __post_init__(self) -> None:
        check_int64(hash_slots=self.hash_slots, max_entries=self.max_entries)
        if self.hash_slots < 1 or self.max_entries < 2:  # noqa: PLR2004 - one entry of a file is never used
            raise ValueError(
                f"an index file has at least 1 hash slot and 2 entries, not {self.hash_slots} and {self.max_entries}"
            )
        resolve_zone(self.zone)

    def start(self) -> None:
        """Create the job's directory, on the driver; an error if it belongs to a store whose broker is running."""
        target = Path(self.index_dir)
        refuse_running_broker(target)
        self._made_index_dir = not target.exists()
        self.directory.mkdir(parents=True)

    @property
    def directory(self) -> Path:
        """The directory in which attempts write."""
        return Path(self.index_dir) / TEMPORARY / self.job_id

    def start_attempt(self) -> Path:
        """Create the directory of this attempt of a task, in a worker.

        Only the last part is created: an attempt that outlives its job must fail and leave nothing behind.
        """
        context = TaskContext.get()
        task = f"{context.partitionId()}-{context.taskAttemptId()}" if context else "0-0"
        directory = self.directory / f"{task}-{uuid.uuid4().hex[:8]}"
        try:
            directory.mkdir()
        except FileNotFoundError:
            where = (
                f"{self.directory} on {socket.gethostname()} (the job has ended, or this worker does not see "
                "the driver's files: the index directory must be on a file system that all machines share)"
            )
            raise FileNotFoundError(errno.ENOENT, "no such directory", where) from None
        return directory

    def commit(self, files: Sequence[WrittenFile]) -> list[Path]:
        """Rename the files to their final names, in order: all of them, or none and the former files stay.

        Raises:
            LockedError: The broker of the store was started meanwhile.
            BlockingIOError: Another writer holds the directory.
            OSError: A file could not be linked to its name.
        """
        target = Path(self.index_dir)
        refuse_running_broker(target)
        lock = DirectoryLock(target)
        try:
            return self._publish(target, files)
        finally:
            lock.release()

    def _publish(self, target: Path, files: Sequence[WrittenFile]) -> list[Path]:
        former = index_files(target)
        success = target / SUCCESS
        published: list[Path] = []
        with contextlib.ExitStack() as undo:
            if success.exists():
                success.unlink()
                undo.callback(success.touch)
            if self.overwrite:
                aside = self.directory / "former"
                aside.mkdir()
                for path in former:
                    undo.callback(path.rename(aside / path.name).rename, path)
            names = [path.name for path in former]
            for file in files:
                path = _link_to_next_name(self.directory / file.path, target, names, self.zone)
                undo.callback(path.unlink)
                names.append(path.name)
                published.append(path)
            sync_directory(target)
            undo.pop_all()
        self._clean_up()
        success.touch()
        sync_directory(target)
        self._log_reserved_space(files)
        return published

    def _clean_up(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        # Other jobs may be writing below the same directory.
        with contextlib.suppress(OSError):
            self.directory.parent.rmdir()

    def _log_reserved_space(self, files: Sequence[WrittenFile]) -> None:
        """Log the disk space that the files reserve: as a warning if it is large and mostly empty."""
        reserved = sum(file.reserved_bytes for file in files)
        used = sum(file_size((self.hash_slots, file.entries)) for file in files)
        wasteful = reserved > _LARGE_BYTES and used * 2 < reserved
        logger.log(
            logging.WARNING if wasteful else logging.INFO,
            "%s: %d index files with %d entries reserve %d bytes of disk%s",
            self.index_dir,
            len(files),
            sum(file.entries for file in files),
            reserved,
            "; fewer partitions or a smaller maxEntries reserve less" if wasteful else "",
        )

    def abort(self) -> None:
        """Remove all files of the job, and the index directory if the job created it and it is empty."""
        self._clean_up()
        if self._made_index_dir:
            with contextlib.suppress(OSError):
                Path(self.index_dir).rmdir()


def index_files(directory: Path) -> list[Path]:
    """Return the index files of a directory in a broker's load order; none if there is no directory."""
    try:
        entries = list_directory(directory)
    except FileNotFoundError:
        return []
    return [directory / entry.name for entry in entries if entry.is_numeric and entry.is_file]


def _link_to_next_name(source: Path, target: Path, names: list[str], zone: str | None) -> Path:
    """Link a finished file to the next free name; never replace an existing file."""

    def link(path: Path) -> Path:
        try:
            path.hardlink_to(source)
        except FileExistsError:
            raise
        except OSError:
            # The file system has no hard links, so check first and rename.
            if path.exists():
                raise FileExistsError(errno.EEXIST, "file exists", str(path)) from None
            source.rename(path)
        return path

    return create_next(names, target, time.time_ns() // 1_000_000, zone, link)
