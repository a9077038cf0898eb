"""LMDB: a B+ tree in a map. Filled in key order by appending, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import lmdb
import numpy as np

from .peer import Peer, ascii_keys, eight_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Lmdb(Peer):
    """Keys and values are bytes; a batch is `Cursor.getmulti`."""

    name: ClassVar[str] = "LMDB"

    @property
    def version(self) -> str:
        return f"py-lmdb {lmdb.__version__}"

    def rows(self, keys: Any, offsets: Any) -> list[tuple[bytes, bytes]]:
        return sorted(zip(ascii_keys(keys), eight_bytes(offsets), strict=True))

    def build(self, rows: list[tuple[bytes, bytes]]) -> None:
        map_size = 4096 * (len(rows) // 16 + 1_000)
        with lmdb.open(str(self.folder), map_size=map_size, sync=False, writemap=True) as environment:
            with environment.begin(write=True) as transaction:
                transaction.cursor().putmulti(rows, append=True)
            environment.sync(True)  # noqa: FBT003 - its only form

    def open(self) -> None:
        self._environment = lmdb.open(str(self.folder), readonly=True, lock=False)

    def close(self) -> None:
        self._environment.close()

    def singles(self, keys: Any) -> list[bytes]:
        return ascii_keys(keys)

    def get(self, keys: list[bytes]) -> int:
        total = 0
        with self._environment.begin() as transaction:
            get = transaction.get
            for key in keys:
                total += int.from_bytes(get(key), "little")
        return total

    def batch(self, keys: Any) -> list[bytes]:
        return ascii_keys(keys)

    def get_batch(self, keys: list[bytes]) -> NDArray[np.int64]:
        with self._environment.begin() as transaction:
            found = transaction.cursor().getmulti(keys)
            return np.frombuffer(b"".join([value for _, value in found]), "<i8")
