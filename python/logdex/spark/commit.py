"""How a parallel job puts index files into a directory: all of them, or none.

    <index_dir>/_temporary/<job>/<partition>-<attempt>-<random>/<n>    what the attempts of tasks write
    <index_dir>/yyyyMMddHHmmssSSS                                      the files, once the driver commits

Every attempt of a task writes into a directory of its own, so retried and speculative attempts never meet; what an attempt
wrote counts only when the driver hears of it. The commit links each file to its final name (which fails where the name is
taken), takes back everything when one fails, and leaves `_SUCCESS` last. Brokers pass over names that are no number, so
neither `_temporary` nor `_SUCCESS` disturbs one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from logdex._files import sync_directory
from logdex.hash_index.directory import DirectoryLock, list_directory, refuse_running_broker
from logdex.hash_index.file_name import create_next
from logdex.hash_index.geometry import file_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger = logging.getLogger("logdex.spark")

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"

# Above this a job that reserved mostly empty space says so.
_MUCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One index file that an attempt finished.

    Attributes:
        path: Where it lies, below the job's directory.
        entries: Entries held.
        reserved_bytes: Disk space that it takes.
    """

    path: str
    entries: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job that writes index files into one directory.

    Attributes:
        index_dir: The directory.
        job_id: Its name below `_temporary`.
        zone: Time zone of the file names; None is the driver's own.
        made_index_dir: Whether the directory was not there before the job.
    """

    index_dir: str
    job_id: str
    zone: str | None
    made_index_dir: bool

    @classmethod
    def start(cls, index_dir: Path, zone: str | None) -> Job:
        """Make the job's directory, on the driver.

        Raises:
            LockedError: The directory belongs to a store whose broker is running.
        """
        refuse_running_broker(index_dir)
        job = cls(str(index_dir), uuid.uuid4().hex, zone, not index_dir.exists())
        job.directory.mkdir(parents=True)
        return job

    @property
    def directory(self) -> Path:
        """Where the attempts write."""
        return Path(self.index_dir) / TEMPORARY / self.job_id

    def start_attempt(self) -> Path:
        """Make the directory of this attempt of a task, in a worker.

        Only the last part is made: an attempt that outlives its job must fail, not leave something behind.

        Raises:
            FileNotFoundError: The job's directory is not there, on this machine.
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

    def commit(self, files: Sequence[WrittenFile], *, overwrite: bool) -> list[Path]:
        """Give the files their final names, in their order, after (or instead of) what the directory holds.

        Either all files are there afterwards or none; with `overwrite` the former files are there if these are not.

        Raises:
            LockedError: The broker of the store was started meanwhile.
            BlockingIOError: Another writer holds the directory.
            OSError: A file could not be named.
        """
        target = Path(self.index_dir)
        refuse_running_broker(target)
        lock = DirectoryLock(target)
        try:
            return self._publish(target, files, overwrite=overwrite)
        finally:
            lock.release()

    def _publish(self, target: Path, files: Sequence[WrittenFile], *, overwrite: bool) -> list[Path]:
        former = index_files(target)
        undo: list[Callable[[], object]] = []
        placed: list[Path] = []
        try:
            if (target / SUCCESS).exists():
                (target / SUCCESS).unlink()
                undo.append((target / SUCCESS).touch)
            if overwrite:
                aside = self.directory / "former"
                aside.mkdir()
                for path in former:
                    moved = aside / path.name
                    path.rename(moved)
                    undo.append(_renaming(moved, path))
            held = [path.name for path in former]
            for file in files:
                placed.append(_place(self.directory / file.path, target, held, self.zone))
                held.append(placed[-1].name)
                undo.append(placed[-1].unlink)
            sync_directory(target)
        except BaseException:
            for step in reversed(undo):
                step()
            raise
        self.clean_up()
        (target / SUCCESS).touch()
        sync_directory(target)
        return placed

    def clean_up(self) -> None:
        """Remove everything that the job's attempts left."""
        shutil.rmtree(self.directory, ignore_errors=True)
        # Other jobs may be at work in the same directory.
        with contextlib.suppress(OSError):
            self.directory.parent.rmdir()

    def abort(self) -> None:
        """Remove everything that the job made; the index directory too if it is the job's and nothing else is in it."""
        self.clean_up()
        if self.made_index_dir:
            with contextlib.suppress(OSError):
                Path(self.index_dir).rmdir()


def index_files(directory: Path) -> list[Path]:
    """List the index files of a directory in a broker's load order; none where there is no directory."""
    try:
        entries = list_directory(directory)
    except FileNotFoundError:
        return []
    return [directory / entry.name for entry in entries if entry.is_numeric and entry.is_file]


def report_space(files: Sequence[WrittenFile], index_dir: str, hash_slots: int) -> None:
    """Log the disk space that files of so many slots reserve; aloud when most of much is empty."""
    reserved = sum(file.reserved_bytes for file in files)
    used = sum(file_size((hash_slots, file.entries)) for file in files)
    wasteful = reserved > _MUCH_BYTES and used * 2 < reserved
    advice = "; fewer partitions or a smaller maxEntries reserve less" if wasteful else ""
    logger.log(
        logging.WARNING if wasteful else logging.INFO,
        "%s: %d index files with %d entries reserve %d bytes of disk%s",
        index_dir,
        len(files),
        sum(file.entries for file in files),
        reserved,
        advice,
    )


def _place(source: Path, target: Path, held: list[str], zone: str | None) -> Path:
    """Move a finished file to the next free name; never over a file that is there."""

    def link(path: Path) -> Path:
        try:
            path.hardlink_to(source)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: the next best is to look first.
            if path.exists():
                raise FileExistsError(errno.EEXIST, "file exists", str(path)) from None
            source.rename(path)
        return path

    return create_next(held, target, time.time_ns() // 1_000_000, zone, link)


def _renaming(source: Path, target: Path) -> Callable[[], object]:
    return lambda: source.rename(target)
