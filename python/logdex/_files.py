"""Open handles, directories and small files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING

from logdex import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Self


_STORE_PARTS = frozenset({"commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index"})
_OF_LOG_DIR = ("meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
_OF_LOG = re.compile(r"[0-9]{20}(\.log)?")
"""Pattern of the names of log, queue and segment files."""


class Closing(ABC):
    """A context manager that returns itself and closes itself at the end of the block."""

    __slots__ = ()

    def __new__(cls, *arguments: object, **_: object) -> Self:
        """Raise a `TypeError` for `MessageStore(path)` that names the call to use."""
        if len(arguments) == 1 and isinstance(arguments[0], str | os.PathLike) and hasattr(cls, "open"):
            raise TypeError(f"{cls.__name__}({_core.without_secrets(str(arguments[0]))!r}): call {cls.__name__}.open")
        return super().__new__(cls)

    @abstractmethod
    def close(self) -> None:
        """Release what is open. A second call does nothing."""

    def _check_open(self) -> None:  # noqa: B027 -- an object that lives in one `with` block has nothing to check
        """Raise `ValueError` after `close`."""

    def __enter__(self) -> Self:
        # A closed one is refused here, not at the first call in the block.
        self._check_open()
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def existing_directory(
    path: str | os.PathLike[str], what: str, storage_options: Mapping[str, str] | None = None
) -> Path:
    """Return the path of a directory; raise `OSError` with what is missing if there is none."""
    place = _core.locate(path, storage_options)
    if not place.is_dir():
        raise OSError(errno.ENOTDIR if place.exists() else errno.ENOENT, f"no {what}", str(place))
    return place


def refuse_broker_directory(output: Path, *, own: Iterable[Path] = (), others: Iterable[Path] = ()) -> None:
    """Raise `ValueError` if an output would be in a directory in which a broker reads every entry, also through links.

    A broker does not start if its log, its queues or its log directory contain a foreign file.

    Args:
        output: The file or directory that will be written. It may be missing.
        own: Directories that may contain this output.
        others: More directories of a broker.
    """
    places = [output.absolute(), output.resolve()]
    above = dict.fromkeys(chain.from_iterable((place, *place.parents) for place in places))
    # The output, and the directory that gets a new entry.
    entered = {*places, *(next((above for above in place.parents if above.is_dir()), place) for place in places)}
    allowed = {each.resolve() for each in own}
    known = {each.resolve() for each in others}
    for directory in above:
        if directory.resolve() in allowed:
            continue
        if directory.resolve() in known:
            raise ValueError(f"{output}: expected a directory outside of the store, found one in {directory}")
        what = _describe_directory(directory)
        if what is None and directory in entered and _holds_log(directory):
            what = "which holds a log"
        if what is not None:
            raise ValueError(
                f"{output}: expected a path outside of a broker's directories, found one in {directory}, {what}"
            )


def _describe_directory(directory: Path) -> str | None:
    """Return a description of a broker's directory; None if a broker does not read all of its entries."""
    if directory.name in _STORE_PARTS and (directory.parent / "commitlog").is_dir():
        return "a part of a RocketMQ store"
    if isinstance(directory, _core.RemotePath):
        return None
    if any((directory / name).is_file() for name in _OF_LOG_DIR):
        return "a log directory of Kafka"
    return None


def _holds_log(directory: Path) -> bool:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return any(_OF_LOG.fullmatch(entry.name) for entry in entries)
    return False


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that gets its name when the block ends. After an error or a kill of the process there is no file.

    Raises:
        FileExistsError: The path exists or was created meanwhile.
    """
    if path.is_symlink() or path.exists():
        raise FileExistsError(errno.EEXIST, "the file exists already", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    descriptor = _unnamed_file(path.parent)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with contextlib.ExitStack() as stack:
        file: BinaryIO
        if descriptor is None:
            # Not every file system supports files without a name.
            file = stack.enter_context(temporary.open("xb"))
            stack.callback(temporary.unlink, missing_ok=True)
        else:
            file = stack.enter_context(os.fdopen(descriptor, "wb"))
        yield file
        file.flush()
        try:
            if descriptor is None:
                _name(temporary, path)
            else:
                # With `src_dir_fd`, which an absolute path ignores, Python calls linkat, which follows the link.
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "the file exists already", str(path)) from None


def _name(temporary: Path, path: Path) -> None:
    """Set the name of a finished file."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system supports hard links.
        temporary.rename(path)


def _unnamed_file(directory: Path) -> int | None:
    """Open a file without a name in a directory; None if the system does not support such files."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not os.path.isdir("/proc/self/fd"):  # noqa: PTH112 -- as text
        return None
    with contextlib.suppress(OSError):
        return os.open(directory, flag | os.O_RDWR, 0o666)
    return None
