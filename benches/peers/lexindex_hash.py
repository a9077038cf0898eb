"""lexindex: a minimal perfect hash from key to a number below the count, which then picks from a column of offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import lexindex
import numpy as np

from .peer import Peer

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LexindexPerfect(Peer):
    """Stores the keys and compares them: answers are exact."""

    name: ClassVar[str] = "lexindex, exact"
    kind: ClassVar[str] = "PerfectHashIndex"

    @property
    def version(self) -> str:
        return f"lexindex {lexindex.__version__}"

    def rows(self, keys: Any, offsets: Any) -> tuple[Any, list[str], NDArray[np.int64]]:
        return keys, keys.to_pylist(), offsets.to_numpy()

    def build(self, rows: tuple[Any, list[str], NDArray[np.int64]]) -> None:
        column, keys, offsets = rows
        index = getattr(lexindex, self.kind)(keys)
        index.save(str(self.folder / "keys"))
        placed = np.empty_like(offsets)
        placed[self._numbers(index, column)] = offsets
        np.save(self.folder / "offsets.npy", placed)

    def open(self) -> None:
        self._index = getattr(lexindex, self.kind).load_mmap(str(self.folder / "keys"))
        self._offsets = np.load(self.folder / "offsets.npy", mmap_mode="r")

    def close(self) -> None:
        del self._index, self._offsets

    def get(self, keys: list[str]) -> int:
        number, offset = self._index.id, self._offsets.item
        return sum(offset(number(key)) for key in keys)

    def get_batch(self, keys: Any) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._offsets[self._numbers(self._index, keys)]
        return found

    @staticmethod
    def _numbers(index: Any, keys: Any) -> NDArray[np.uint64]:
        return np.frombuffer(index.ids_of_arrow(keys), index.ID_DTYPE)


class LexindexCompact(LexindexPerfect):
    """Stores 8 bits of each key: 1 of 256 unknown keys gets the offset of another key."""

    name: ClassVar[str] = "lexindex, 8 bits a key"
    kind: ClassVar[str] = "CompactHashIndex"
