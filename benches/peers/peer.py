"""The interface of all peers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class Peer(ABC):
    """A map from key to an offset of 8 bytes, in files below a folder of its own.

    `rows`, `singles` and `batch` turn Arrow columns into the form in which somebody who uses the peer has them; they are not
    timed. Everything else is.
    """

    name: ClassVar[str]
    singles_asked: ClassVar[int] = 50_000
    """Keys that are looked up one by one: fewer for a slow peer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def rows(self, keys: Any, offsets: Any) -> Any:
        """Convert columns of keys and of offsets to the argument of `build`."""

    @abstractmethod
    def build(self, rows: Any) -> None:
        """Write all rows to files that another process can open."""

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def singles(self, keys: Any) -> Any:
        return keys.to_pylist()

    @abstractmethod
    def get(self, keys: Any) -> int:
        """Get key by key, and return the sum of the offsets."""

    def batch(self, keys: Any) -> Any:
        return keys

    @abstractmethod
    def get_batch(self, keys: Any) -> Any:
        """Get all keys at once, and return their offsets in any form that holds integers."""

    def is_right(self, answer: Any, offsets: NDArray[np.int64]) -> bool:
        """Return whether the answer to a batch is these offsets, in their order."""
        return bool(np.array_equal(answer, offsets))

    def size(self) -> int:
        """Return the bytes that the files take on disk."""
        return sum(512 * file.stat().st_blocks for file in self.folder.rglob("*") if file.is_file())


def ascii_keys(keys: Any) -> list[bytes]:
    """Return keys as bytes."""
    return [key.encode("ascii") for key in keys.to_pylist()]


def eight_bytes(offsets: Any) -> list[bytes]:
    """Return each offset of a column as its 8 bytes."""
    return [offset.to_bytes(8, "little") for offset in offsets.to_pylist()]
