"""Jobs that write index files: the files of one task, and the commit of all files or none.

    <index_dir>/_temporary/<job>/<partition>-<attempt>-<random>/<n>    files of the attempts of tasks
    <index_dir>/yyyyMMddHHmmssSSS                                      the files after the commit by the driver

Each attempt of a task writes into its own directory, so retried and speculative attempts never meet. The driver uses only the
files that an attempt reported. The commit first writes what it will do into the job's file `commit`. Then it links each file to
its final name, which fails if the name is taken. If one link fails, the commit removes all of them. It creates `_SUCCESS` last.
Brokers ignore names that are not numbers, so they ignore `_temporary` and `_SUCCESS`.

An object store can rename nothing:

    <index_dir>/_jobs/<job>/<partition>-<attempt>-<random>-<n>    whole files of the attempts of tasks
    <index_dir>/_committed.json                                   which objects are the index, written last by the driver

A task fills its files in a temporary directory of its machine and uploads each as a whole. The commit replaces one small object,
on the condition that it is the one that the job saw. So a reader sees all files of a job or none, of two jobs at the same time
only the first commits, and what a job leaves that was killed is an index for no reader.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import socket
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import TaskContext

from logdex._core import (
    DirectoryLock,
    IndexFiles,
    RemotePath,
    check_own_parts,
    delete_remote,
    plan_files,
    put_remote,
    replace_file,
    sync_directory,
    upload_file,
)
from logdex._files import refuse_broker_directory
from logdex._types import check_int64
from logdex.hash_index.files import (
    COMMIT_PATTERN,
    COMMITTED,
    JOBS,
    Committed,
    committed_content,
    create_next,
    file_size,
    list_directory,
    next_name,
    read_committed,
    refuse_copy,
    resolve_zone,
)
from logdex.hash_index.index_writer import IndexWriter
from logdex.rocketmq import IndexFile
from logdex.rocketmq.index_service import refuse_running_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logdex._types import Access


logger = logging.getLogger("logdex.spark")

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"
COMMIT = "commit"
FORMER = "former"

_LARGE_BYTES = 1 << 30
"""A job that reserves more than this, most of it empty, logs a warning."""


class WrittenFile(NamedTuple):
    """One index file that an attempt finished, with its path below the job's directory."""

    path: str
    entries: int
    reserved_bytes: int


@dataclass(slots=True)
class Job:
    """A job that writes index files into one directory, after its files or instead of them (`overwrite`).

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
    made_index_dir: bool = False

    def __post_init__(self) -> None:
        check_files(self.hash_slots, self.max_entries, self.zone)

    @property
    def target(self) -> Path:
        """The directory into which it writes."""
        return Path(self.index_dir)

    def start(self) -> None:
        """Create the job's directory, on the driver; an error if it belongs to a store whose broker is running."""
        target = Path(self.index_dir)
        check_own_parts(target, 2)
        refuse_broker_directory(target, own=[target] if target.name == "index" else [])
        refuse_copy(target)
        finish_commits(target)
        refuse_running_broker(target)
        self.made_index_dir = not target.exists()
        self.directory.mkdir(parents=True)

    @property
    def directory(self) -> Path:
        """The directory in which attempts write."""
        return Path(self.index_dir) / TEMPORARY / self.job_id

    def start_attempt(self) -> Path:
        """Create the directory of this attempt of a task, in a worker.

        Only the last part is created: an attempt that outlives its job must fail and leave no files.
        """
        directory = self.directory / attempt_name()
        try:
            directory.mkdir()
        except FileNotFoundError:
            what = (
                f"no such directory on {socket.gethostname()} (the job has ended, or this worker does not see "
                "the driver's files: the index directory must be on a file system that all machines share)"
            )
            raise FileNotFoundError(errno.ENOENT, what, str(self.directory)) from None
        return directory

    def keep(self, path: Path) -> str:
        """Return the place of a finished file of an attempt below the job's directory."""
        return place_of(path)

    def commit(self, files: Sequence[WrittenFile]) -> list[Path]:
        """Rename the files to their final names, in order: all of them, or none and the former files stay.

        Raises:
            LockedError: The broker of the store was started meanwhile.
            LockedError: Another writer holds the directory.
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
        former = [path.name for path in index_files(target)]
        names = list(former)
        for _ in files:
            names.append(create_next(names, target, now_ms(), self.zone, _free_name).name)
        final = names[len(former) :]
        paths = dict(zip(final, (file.path for file in files), strict=True))
        commit = Commit(self.directory, former if self.overwrite else [], paths, (target / SUCCESS).exists())
        commit.write()
        try:
            commit.finish()
        except BaseException:
            commit.undo()
            raise
        log_reserved_space(target, self.hash_slots, files)
        return [target / name for name in final]

    def abort(self) -> None:
        """Remove all files of the job, and the index directory if the job created it and it is empty."""
        _clean_up(self.directory)
        if self.made_index_dir:
            with contextlib.suppress(OSError):
                Path(self.index_dir).rmdir()


def check_files(hash_slots: int, max_entries: int, zone: str | None) -> None:
    """Raise `ValueError` if no index file can have these slots and entries, or there is no such time zone for its name."""
    check_int64(hash_slots=hash_slots, max_entries=max_entries)
    if hash_slots < 1 or max_entries < 2:  # noqa: PLR2004 - one entry of a file is never used
        raise ValueError(f"an index file has at least 1 hash slot and 2 entries, not {hash_slots} and {max_entries}")
    resolve_zone(zone)


def attempt_name() -> str:
    """Return a name for this attempt of a task, which no other attempt has."""
    context = TaskContext.get()
    task = f"{context.partitionId()}-{context.taskAttemptId()}" if context else "0-0"
    return f"{task}-{uuid.uuid4().hex[:8]}"


def place_of(path: Path) -> str:
    """Return the place of a file of an attempt below the job's directory."""
    return f"{path.parent.name}/{path.name}"


def now_ms() -> int:
    """Return the time for the names of new files."""
    return time.time_ns() // 1_000_000


def log_reserved_space(target: Path, hash_slots: int, files: Sequence[WrittenFile]) -> None:
    """Log the space that files reserve: as a warning if it is large and mostly empty."""
    reserved = sum(file.reserved_bytes for file in files)
    used = sum(file_size((hash_slots, file.entries)) for file in files)
    wasteful = reserved > _LARGE_BYTES and used * 2 < reserved
    logger.log(
        logging.WARNING if wasteful else logging.INFO,
        "%s: %d index files with %d entries reserve %d bytes of disk%s",
        target,
        len(files),
        sum(file.entries for file in files),
        reserved,
        "; fewer partitions or a smaller maxEntries reserve less" if wasteful else "",
    )


def index_files(directory: Path) -> list[Path]:
    """Return the index files of a directory in a broker's load order; none if there is no directory."""
    try:
        entries = list_directory(directory)
    except FileNotFoundError:
        return []
    return [entry.path for entry in entries if entry.is_numeric and entry.is_file]


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a job: its `files`, final names with their paths below the job's directory, take the place of `former` names.

    It is written before the first rename. If the driver is killed, the next read or write of the directory finishes it.
    `succeeded` is whether the directory had `_SUCCESS` before.
    """

    directory: Path
    former: list[str]
    files: dict[str, str]
    succeeded: bool

    def write(self) -> None:
        """Store what is to be done."""
        (self.directory / FORMER).mkdir()
        replace_file(self.directory / COMMIT, json.dumps([self.former, self.files, self.succeeded]).encode())
        sync_directory(self.directory)

    def _moves(self) -> list[tuple[Path, Path]]:
        target = self.directory.parent.parent
        return [(target / name, self.directory / FORMER / name) for name in self.former]

    def _links(self) -> list[tuple[Path, Path]]:
        target = self.directory.parent.parent
        return [(self.directory / source, target / name) for name, source in self.files.items()]

    def finish(self) -> None:
        """Do what is not done yet, and remove the job's directory."""
        target = self.directory.parent.parent
        (target / SUCCESS).unlink(missing_ok=True)
        for path, aside in self._moves():
            if path.exists():
                path.rename(aside)
        for source, final in self._links():
            if not _is_linked(source, final):
                _link(source, final)
        sync_directory(target)
        (self.directory / COMMIT).unlink()
        _clean_up(self.directory)
        (target / SUCCESS).touch()
        sync_directory(target)

    def undo(self) -> None:
        """Bring back the former files, where `finish` failed."""
        for source, final in self._links():
            if final.exists() and _is_linked(source, final):
                final.unlink()
        for path, aside in self._moves():
            if aside.exists():
                aside.rename(path)
        if self.succeeded:
            (self.directory.parent.parent / SUCCESS).touch()
        (self.directory / COMMIT).unlink(missing_ok=True)


def finish_commits(index_dir: Path) -> None:
    """Finish the commits in a directory whose driver was killed in the middle of them.

    Raises:
        LockedError: The broker of the store is running.
        LockedError: Another writer holds the directory: the commit may be its own.
    """
    if isinstance(index_dir, RemotePath):
        return
    for path in sorted(index_dir.glob(COMMIT_PATTERN)):
        refuse_running_broker(index_dir)
        lock = DirectoryLock(index_dir)
        try:
            # Its driver may have finished it before the lock was free.
            if path.exists():
                commit = Commit(path.parent, *json.loads(path.read_bytes()))
                text = "%s: a commit was interrupted and is finished now: %d new index files instead of %d"
                logger.warning(text, index_dir, len(commit.files), len(commit.former))
                commit.finish()
        finally:
            lock.release()


def _clean_up(directory: Path) -> None:
    remove_job(directory)
    # Other jobs may be writing below the same directory.
    with contextlib.suppress(OSError):
        directory.parent.rmdir()


def remove_job(directory: Path) -> None:
    """Remove the directory of a job, in which attempts may still be writing."""
    gone = directory.with_name(f"{directory.name}.gone")
    with contextlib.suppress(OSError):
        # Under its old name they can create nothing more.
        directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _free_name(path: Path) -> Path:
    if path.exists():
        raise FileExistsError(errno.EEXIST, "file exists", str(path))
    return path


def _is_linked(source: Path, final: Path) -> bool:
    """Return whether a finished file has its final name; it is renamed where the file system has no hard links."""
    return final.exists() and (not source.exists() or final.samefile(source))


def _link(source: Path, final: Path) -> None:
    """Link a finished file to its name; never replace an existing file."""
    try:
        final.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError:
        # The file system has no hard links, so check first and rename.
        source.rename(_free_name(final))


def make_job(
    target: Path, hash_slots: int, max_entries: int, zone: str | None, *, overwrite: bool, access: Access
) -> Job | ObjectJob:
    """Return a job that writes into a directory of a file system or of an object store."""
    if isinstance(target, RemotePath):
        return ObjectJob(target, hash_slots, max_entries, zone, overwrite, access)
    return Job(str(target), hash_slots, max_entries, zone, overwrite, access)


@dataclass(slots=True)
class ObjectJob:
    """A job that writes index files into an object store, after those that are committed there or instead of them.

    The fields are those of `Job`.
    """

    target: Path
    hash_slots: int
    max_entries: int
    zone: str | None = None
    overwrite: bool = False
    access: Access = "auto"
    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen: str | None = None
    """The `ETag` of the commit that was there at the start."""

    def __post_init__(self) -> None:
        check_files(self.hash_slots, self.max_entries, self.zone)

    @property
    def directory(self) -> Path:
        """The place of the objects of the job."""
        return self.target / JOBS / self.job_id

    def start(self) -> None:
        """Note what is committed here now."""
        _, self.seen = _former(self.target)

    def start_attempt(self) -> Path:
        """Create a directory for an attempt of a task, on this machine."""
        # Spark gives its workers directories with room, and removes them.
        place = next(filter(os.path.isdir, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")), None)
        return Path(tempfile.mkdtemp(prefix=f"{attempt_name()}-", suffix="-logdex", dir=place))

    def keep(self, path: Path) -> str:
        """Upload a finished file of an attempt, remove it here, and return its place below the job's directory."""
        place = f"{path.parent.name}-{path.name}"
        upload_file(path, self.directory / place)
        path.unlink()
        # After the last file.
        with contextlib.suppress(OSError):
            path.parent.rmdir()
        return place

    def commit(self, files: Sequence[WrittenFile]) -> list[Path]:
        """Name the files, in order: all of them, or none and the former files stay.

        Raises:
            FileExistsError: Another job has committed meanwhile.
        """
        former, _ = _former(self.target)
        names = list(former)
        for _ in files:
            names.append(next_name(names, now_ms(), self.zone))
        new = {
            name: Committed(f"{JOBS}/{self.job_id}/{file.path}", file.reserved_bytes)
            for name, file in zip(names[len(former) :], files, strict=True)
        }
        content = committed_content(new if self.overwrite else {**former, **new})
        try:
            put_remote(self.target / COMMITTED, content, replaces=self.seen)
        except FileExistsError as error:
            # The answer to a first try may have been lost.
            if not self._is_committed():
                text = "another job has committed index files here meanwhile"
                raise FileExistsError(errno.EEXIST, text, str(self.target)) from error
        log_reserved_space(self.target, self.hash_slots, files)
        self._clean_up(former, new)
        return [self.target / file.object for file in new.values()]

    def _is_committed(self) -> bool:
        """Return whether the commit names a file of this job."""
        with contextlib.suppress(FileNotFoundError):
            own = f"{JOBS}/{self.job_id}/"
            return any(file.object.startswith(own) for file in read_committed(self.target).values())
        return False

    def _clean_up(self, former: dict[str, Committed], new: dict[str, Committed]) -> None:
        """Delete what the commit replaced, and what the job wrote on the way. What stays is no reader's."""
        kept = {file.object for file in new.values()}
        with contextlib.suppress(OSError):
            for path in self.directory.iterdir():
                if f"{JOBS}/{self.job_id}/{path.name}" not in kept:
                    delete_remote(path)
            for file in former.values() if self.overwrite else ():
                delete_remote(self.target / file.object)

    def abort(self) -> None:
        """Delete all objects of the job, unless its commit went through."""
        if not self._is_committed():
            delete_remote(self.directory)


def _former(target: Path) -> tuple[dict[str, Committed], str | None]:
    """Return the index files of a directory, and the `ETag` of the object that names them; None without one."""
    try:
        # First, so that a commit between the two is noticed.
        ((_, _, etag),) = plan_files([target / COMMITTED])
        return read_committed(target), etag or ""
    except FileNotFoundError:
        pass
    try:
        found = list_directory(target)
    except FileNotFoundError:
        found = []
    return {each.name: Committed(each.name, each.size) for each in found if each.is_numeric and each.is_file}, None


class RollingFiles:
    """Fills index files in the directory of one attempt of a task.

    They are those of a sequential writer that continues after `seed`: phy_offset and store_timestamp of the entry before the
    first row, with which the first header starts. Source: constructor of IndexFile; docs/formats/rocketmq-index.md, section 7.
    """

    def __init__(
        self,
        directory: Path,
        hash_slots: int,
        max_entries: int,
        access: Access = "auto",
        *,
        seed: tuple[int, int] | None = None,
        keep: Callable[[Path], str] = place_of,
    ) -> None:
        """Fill a directory of this machine; `keep` takes a finished file, and returns its place below the job's directory."""
        self.directory = directory
        self._keep = keep
        if seed is not None:
            IndexFile.create(
                directory / "0",
                hash_slots=hash_slots,
                max_entries=max_entries,
                begin_phy_offset=seed[0],
                begin_timestamp=seed[1],
                access=access,
            ).close()
        self._files = IndexFiles(directory, hash_slots=hash_slots, max_entries=max_entries, access=access)
        # A task has no file after its last one, so none is prepared ahead.
        self._writer = IndexWriter(self._files, None, lambda _: None, prepare=False)

    @classmethod
    def start(cls, job: Job | ObjectJob, seed: tuple[int, int] | None = None) -> RollingFiles:
        """Start an attempt of a task of a job."""
        return cls(job.start_attempt(), job.hash_slots, job.max_entries, job.access, seed=seed, keep=job.keep)

    def put(self, rows: Any) -> None:
        """Put rows, and start a new file each time that one becomes full.

        Raises:
            IndexFullError: Not even an empty file takes a row.
        """
        self._writer.put(None, *rows.columns)

    def put_nothing(self) -> None:
        """Create a file if there is none or the last one is full, as a service does for a message without keys."""
        self._writer.current()

    def close(self) -> list[WrittenFile]:
        """Flush, close and keep the files, and return them."""
        # An empty file is not flushed: a flush would write its count of 1, which no broker does before a put.
        self._writer.flush(even_if_empty=False)
        files = [(file.path, len(file), file.path.stat().st_size) for file in self._files.refresh()]
        self._release()
        return [WrittenFile(self._keep(path), entries, size) for path, entries, size in files]

    def discard(self) -> None:
        """Remove the files and their directory."""
        self._release()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _release(self) -> None:
        self._writer.release()
        self._files.close()
