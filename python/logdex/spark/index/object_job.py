"""Jobs that write index files into an object store, which can rename nothing.

    <index_dir>/_jobs/<job>/<partition>-<attempt>-<random>-<n>    whole files of the attempts of tasks
    <index_dir>/_committed.json                                   which objects are the index, written last by the driver

A task fills its files in a temporary directory of its machine and uploads each as a whole. The commit replaces one small object,
on the condition that it is the one that the job saw. So a reader sees all files of a job or none, of two jobs at the same time
only the first commits, and what a job leaves that was killed is an index for no reader.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from logdex._core import RemotePath, delete_remote, plan_files, put_remote, upload_file
from logdex.hash_index.committed import COMMITTED, JOBS, Committed, committed_content, read_committed
from logdex.hash_index.directory import list_directory
from logdex.hash_index.rolling import next_name
from logdex.spark.index.job import Job, attempt_name, check_files, log_reserved_space, now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logdex._types import Access
    from logdex.spark.index.job import WrittenFile


def make_job(
    target: Path, hash_slots: int, max_entries: int, zone: str | None, *, overwrite: bool, access: Access
) -> Job | ObjectJob:
    """Return a job that writes into a directory of a file system or of an object store."""
    if isinstance(target, RemotePath):
        return ObjectJob(target, hash_slots, max_entries, zone, overwrite, access)
    return Job(str(target), hash_slots, max_entries, zone, overwrite, access)


@dataclass(slots=True)
class ObjectJob:
    """A job that writes index files into an object store, after those that are committed there or in place of them.

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
        """Where the objects of the job are."""
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
