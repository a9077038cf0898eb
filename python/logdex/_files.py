"""Open handles, directories and small files: closing, existence, atomic replacement."""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from logdex._core import local_path

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self


class Closing(ABC):
    """A context manager that returns itself and closes itself at the end of the block."""

    __slots__ = ()

    def __new__(cls, *arguments: object, **_: object) -> Self:
        """Refuse `MessageStore(path)`, which many try first, and say what to call."""
        if len(arguments) == 1 and isinstance(arguments[0], str | os.PathLike) and hasattr(cls, "open"):
            raise TypeError(f"{cls.__name__}({os.fspath(arguments[0])!r}): call {cls.__name__}.open")
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


def existing_directory(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path of a directory; raise `OSError` with what is missing if there is none."""
    place = local_path(path)
    if not place.is_dir():
        raise OSError(errno.ENOTDIR if place.exists() else errno.ENOENT, f"no {what}", str(place))
    return place


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it, so that a crash leaves the old content or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
