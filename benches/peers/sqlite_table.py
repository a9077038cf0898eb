"""SQLite: a table that is its own index (WITHOUT ROWID), filled in key order in one transaction, read by a map."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar

from .peer import Peer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IN_ONE = 30_000
"""Keys of one statement: a statement takes 32,766 values."""


class SQLite(Peer):
    """Statements stay prepared; a batch is `IN` with as many keys as a statement takes."""

    name: ClassVar[str] = "SQLite"

    @property
    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def rows(self, keys: Any, offsets: Any) -> list[tuple[str, int]]:
        return sorted(zip(keys.to_pylist(), offsets.to_pylist(), strict=True))

    def build(self, rows: list[tuple[str, int]]) -> None:
        connection = sqlite3.connect(self.folder / "1")
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "page_size = 8192"):
            connection.execute(f"PRAGMA {pragma}")
        with connection:
            connection.execute("CREATE TABLE k (key TEXT PRIMARY KEY, phy_offset INTEGER) WITHOUT ROWID")
            connection.executemany("INSERT INTO k VALUES (?, ?)", rows)
        connection.close()

    def open(self) -> None:
        self._connection = sqlite3.connect(f"file:{self.folder / '1'}?mode=ro", uri=True)
        for pragma in (f"mmap_size = {1 << 31}", "cache_size = -262144"):
            self._connection.execute(f"PRAGMA {pragma}")

    def close(self) -> None:
        self._connection.close()

    def get(self, keys: list[str]) -> int:
        execute = self._connection.execute
        one = "SELECT phy_offset FROM k WHERE key = ?"
        return sum(execute(one, (key,)).fetchone()[0] for key in keys)

    def batch(self, keys: Any) -> list[str]:
        found: list[str] = keys.to_pylist()
        return found

    def get_batch(self, keys: list[str]) -> list[tuple[int]]:
        found = []
        for first in range(0, len(keys), IN_ONE):
            some = keys[first : first + IN_ONE]
            marks = ",".join("?" * len(some))
            found += self._connection.execute(f"SELECT phy_offset FROM k WHERE key IN ({marks})", some).fetchall()
        return found

    def is_right(self, answer: list[tuple[int]], offsets: NDArray[np.int64]) -> bool:
        """Return whether all offsets were found; `IN` returns them in any order, and a repeated key once."""
        return {offset for (offset,) in answer} == set(offsets.tolist())
