"""What an index directory holds, and the lock that keeps it to one writer."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logdex._core import broker_lock_holder
from logdex.errors import LockedError
from logdex.hash_index.file_name import is_index_file_name, sort_key

if TYPE_CHECKING:
    from pathlib import Path


_SETTLED_SECONDS = 2
"""After this long a change of a directory gives it another time, on every file system that keeps seconds or better."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in an index directory; a file that is replaced or changes its size makes another entry.

    Attributes:
        name: The name.
        inode: The file's number, which tells a new file of an old name.
        size: Its size in bytes.
        is_file: A regular file, through links; False for a directory and the like.
    """

    name: str
    inode: int
    size: int
    is_file: bool

    @property
    def is_numeric(self) -> bool:
        """Whether a broker takes the name for an index file's."""
        return is_index_file_name(self.name)


def list_directory(directory: Path) -> list[Entry]:
    """List a directory in the broker's load order (IndexService#load); what vanishes meanwhile is left out.

    Names that begin with `_` or `.` are marks of batch jobs (Hadoop's convention, such as Spark's `_SUCCESS`): left out too.

    Raises:
        OSError: The directory cannot be read.
    """
    entries = []
    # Not pathlib: this runs at every question, and building paths takes longer than asking the system.
    with os.scandir(directory) as names:
        for name in names:
            if name.name.startswith(("_", ".")):
                continue
            try:
                status = _status(name)
            except FileNotFoundError:
                continue
            entries.append(Entry(name.name, status.st_ino, status.st_size, stat.S_ISREG(status.st_mode)))
    return sorted(entries, key=lambda entry: sort_key(entry.name))


def _status(name: os.DirEntry[str]) -> os.stat_result:
    try:
        return name.stat()
    except FileNotFoundError:
        # Deleted meanwhile; or a link that leads nowhere, which is no file.
        if not name.is_symlink():
            raise
        return name.stat(follow_symlinks=False)


def directory_stamp(directory: Path) -> tuple[int, int] | None:
    """Give what changes with every name that comes or goes, so that an equal stamp means an equal list of names.

    None where that cannot be told: there is no directory, or it changed so lately that a change to come may leave the same time.
    """
    try:
        status = directory.stat()
    except OSError:
        return None
    settled = time.time() - status.st_mtime > _SETTLED_SECONDS
    return (status.st_ino, status.st_mtime_ns) if settled else None


def refuse_running_broker(directory: Path) -> None:
    """Refuse to write to an index directory while the broker of its store runs.

    Raises:
        LockedError: It holds the store's lock. Where this process holds it there is no broker.
    """
    lock = directory.absolute().parent / "lock"
    pid = broker_lock_holder(lock)
    if pid is not None and pid != os.getpid():
        raise LockedError(str(lock), pid)


class DirectoryLock:
    """Keeps a directory to one writing service at a time, without a file of its own.

    The lock sits on the directory itself. Where the system has no such lock, the lock of each index file must do.
    """

    def __init__(self, directory: Path) -> None:
        """Take the lock.

        Raises:
            BlockingIOError: Another service writes to the directory.
        """
        self._descriptor: int | None = None
        if sys.platform == "win32":
            return
        import fcntl  # noqa: PLC0415 -- not on every system

        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise BlockingIOError(error.errno, "another writer holds this index directory", str(directory)) from None
        except OSError as error:
            # Some network file systems lock only what is open for writing, which a directory cannot be.
            os.close(descriptor)
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            return
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the next writer in; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
