"""logdex: one full index file with the default ratio of slots to entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import logdex
from benches.report.plan import geometry
from logdex.rocketmq import IndexFile

from .peer import Peer

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Logdex(Peer):
    """Arrow columns in and out. Answers are candidates: the offsets of all entries with the hash of the key."""

    name: ClassVar[str] = "logdex"

    @property
    def version(self) -> str:
        return f"logdex {logdex.__version__}"

    def rows(self, keys: Any, offsets: Any) -> tuple[Any, Any, Any]:
        return keys, offsets, pa.array(np.full(len(keys), 1_700_000_000_000))

    def build(self, rows: tuple[Any, Any, Any]) -> None:
        self._geometry = geometry(len(rows[0]))
        with IndexFile.create(self.folder / "20260321000000000", **self._geometry) as file:
            file.put_batch(*rows)

    def open(self) -> None:
        # Without the geometry it is inferred from the content, which takes some milliseconds.
        self._file = IndexFile.open(self.folder / "20260321000000000", **self._geometry)

    def close(self) -> None:
        self._file.close()

    def get(self, keys: list[str]) -> int:
        select = self._file.select_phy_offset
        return sum(select(key)[0] for key in keys)

    def get_batch(self, keys: Any) -> Any:
        return self._file.select_batch(keys)

    def is_right(self, answer: Any, offsets: NDArray[np.int64]) -> bool:
        """Return whether the offset of each key is among its candidates."""
        lists = pa.array(answer)
        rows = pc.list_parent_indices(lists).to_numpy()
        return bool((lists.flatten().to_numpy() == offsets[rows]).sum() == len(offsets))
