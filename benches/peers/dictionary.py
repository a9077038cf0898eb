"""A Python dict, pickled between processes."""

from __future__ import annotations

import pickle
import platform
import sys
from typing import Any, ClassVar

from .peer import Peer


class Dictionary(Peer):
    """The dict is in memory; another process opens it by unpickling."""

    name: ClassVar[str] = "Python dict"

    @property
    def version(self) -> str:
        return f"CPython {platform.python_version()}"

    def rows(self, keys: Any, offsets: Any) -> tuple[list[str], list[int]]:
        return keys.to_pylist(), offsets.to_pylist()

    def build(self, rows: tuple[list[str], list[int]]) -> None:
        built = dict(zip(*rows, strict=True))
        with (self.folder / "pickle").open("wb") as file:
            pickle.dump(built, file, pickle.HIGHEST_PROTOCOL)

    def open(self) -> None:
        with (self.folder / "pickle").open("rb") as file:
            self._dict: dict[str, int] = pickle.load(file)  # noqa: S301 - our own

    def close(self) -> None:
        del self._dict

    def get(self, keys: list[str]) -> int:
        total = 0
        for key in keys:
            total += self._dict[key]
        return total

    def batch(self, keys: Any) -> list[str]:
        found: list[str] = keys.to_pylist()
        return found

    def get_batch(self, keys: list[str]) -> list[int]:
        return list(map(self._dict.__getitem__, keys))

    def size(self) -> int:
        """Return the bytes in memory: that is where a dict is of use."""
        objects = sum(sys.getsizeof(key) + sys.getsizeof(offset) for key, offset in self._dict.items())
        return sys.getsizeof(self._dict) + objects
