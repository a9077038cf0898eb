"""Files that a worker process keeps open between tasks.

Spark unpickles a function for every task and keeps its workers alive between them, so handles live here, in the
installed module: one open a worker and directory. A handle is taken again only while the directory still lists the same
files (name, device, inode, size) and has not changed itself. Nothing is inherited through fork: a child opens its own.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from logdex._core import commit_log_directories
from logdex.rocketmq import CommitLog, IndexService, MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from logdex._types import Access, Compat


_Handle = TypeVar("_Handle")

# More directories than this at once in one worker: the one not used for longest is dropped.
_MOST_OPEN = 16

_opened: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()
_lock = threading.RLock()


def index_service(
    directory: str,
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
    access: Access = "auto",
    compat: Compat | None = None,
) -> IndexService:
    """Give the open index service of a directory."""

    def open_service() -> IndexService:
        return IndexService.open(
            directory, hash_slots=hash_slots, max_entries=max_entries, access=access, compat=compat
        )

    return _kept((directory, hash_slots, max_entries, access, compat), [directory], open_service)


def commit_log(directory: str, *, access: Access = "auto", compat: Compat | None = None) -> CommitLog:
    """Give the open commit log of a directory, or of several with commas between them."""

    def open_log() -> CommitLog:
        return CommitLog.open(directory, access=access, compat=compat)

    parts = [str(part) for part in commit_log_directories(directory)]
    return _kept(("log", directory, access, compat), parts, open_log)


def message_store(
    root: str,
    *,
    hash_slots: int | None = None,
    max_entries: int | None = None,
    access: Access = "auto",
    compat: Compat | None = None,
) -> MessageStore:
    """Give the open store at a root directory."""

    def open_store() -> MessageStore:
        return MessageStore.open(root, hash_slots=hash_slots, max_entries=max_entries, access=access, compat=compat)

    parts = [root, f"{root}/commitlog", f"{root}/index"]
    return _kept(("store", root, hash_slots, max_entries, access, compat), parts, open_store)


def commit_log_directory(store: Path) -> Path:
    """Give the directory of the commit log: that of a store, or the directory itself where the log files lie.

    Raises:
        FileNotFoundError: There is neither on this machine; the message names the machine.
    """
    inner = store / "commitlog"
    if inner.is_dir():
        return inner
    require_directory(store)
    return store


def require_directory(directory: Path) -> None:
    """Raise FileNotFoundError, with the name of this machine, unless the directory is there."""
    if not directory.is_dir():
        where = f"{directory} on {socket.gethostname()} (driver and workers must see the same files)"
        raise FileNotFoundError(errno.ENOENT, "no such directory", where)


def log_ranges(log: CommitLog) -> list[tuple[int, int | None]]:
    """Give each log file's first offset and that of the next file, None for the last."""
    begins = [int(path.name) for path in log.files]
    return list(zip(begins, [*begins[1:], None], strict=True)) if begins else []


def settled_geometry(index_dir: Path, hash_slots: int | None, max_entries: int | None) -> tuple[int | None, int | None]:
    """Find slots and entries once, on the driver, so that no worker must; as given where they are given.

    Raises:
        FileNotFoundError: There is no such directory.
        GeometryError: They cannot be told from the files.
        ValueError: The files have others than those given.
    """
    require_directory(index_dir)
    with IndexService.open(index_dir, hash_slots=hash_slots, max_entries=max_entries) as service:
        held = service.files
        if hash_slots is None and held:
            return held[-1].hash_slots, held[-1].max_entries
    return hash_slots, max_entries


def _kept(key: Hashable, directories: list[str], open_handle: Callable[[], _Handle]) -> _Handle:
    identity = tuple(_identity(directory) for directory in directories)
    with _lock:
        known = _opened.get(key)
        if known is not None and known[0] == identity:
            _opened.move_to_end(key)
            handle: _Handle = known[1]
            return handle
        require_directory(Path(directories[0]))
        # The older handle is dropped, not closed: a stream of it may still be read.
        handle = open_handle()
        _opened[key] = (identity, handle)
        _opened.move_to_end(key)
        while len(_opened) > _MOST_OPEN:
            _opened.popitem(last=False)
        return handle


def _identity(directory: str) -> Hashable:
    """Tell what a directory is and holds; None when it is not there."""
    real = os.path.realpath(directory)
    try:
        own = Path(real).stat()
        with os.scandir(real) as entries:
            listed = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
    except FileNotFoundError:
        return None
    held = sorted((name, stat.st_dev, stat.st_ino, stat.st_size) for name, stat in listed)
    return real, own.st_dev, own.st_ino, own.st_mtime_ns, tuple(held)


def _forget_after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.RLock()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
