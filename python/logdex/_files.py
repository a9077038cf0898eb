"""Handles that close with their `with` block, and files that a power loss leaves whole or absent."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self


class Closing(ABC):
    """A context manager that returns itself and closes itself, whatever the block raises."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    def _check_open(self) -> None:  # noqa: B027 -- a class that is used in one `with` block only has nothing to check
        """Raise if this object is closed.

        Raises:
            ValueError: It is closed.
        """

    def __enter__(self) -> Self:
        """Return the object itself; a closed one is refused here, not at the first call in the block."""
        self._check_open()
        return self

    def __exit__(self, *args: object) -> None:
        """Close it; an error of the block propagates."""
        self.close()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that a kill leaves the old or the new content."""
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


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
