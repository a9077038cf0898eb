"""DuckDB: a sorted table with a unique index for single gets; batches are a join with an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import duckdb
import numpy as np
import pyarrow as pa

from .peer import Peer

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DuckDB(Peer):
    """Arrow columns in and out, with its default number of threads."""

    name: ClassVar[str] = "DuckDB"
    singles_asked: ClassVar[int] = 500

    @property
    def version(self) -> str:
        return f"DuckDB {duckdb.__version__}"

    def rows(self, keys: Any, offsets: Any) -> Any:
        return pa.table({"key": keys, "phy_offset": offsets})

    def build(self, rows: Any) -> None:
        with duckdb.connect(self.folder / "1.db") as connection:
            connection.register("given", rows)
            connection.execute("CREATE TABLE k AS SELECT * FROM given ORDER BY key")
            connection.execute("CREATE UNIQUE INDEX by_key ON k (key)")
            connection.execute("CHECKPOINT")

    def open(self) -> None:
        self._connection = duckdb.connect(self.folder / "1.db", read_only=True)

    def close(self) -> None:
        self._connection.close()

    def get(self, keys: list[str]) -> int:
        total = 0
        for key in keys:
            row = self._connection.execute("SELECT phy_offset FROM k WHERE key = ?", [key]).fetchone()
            total += row[0] if row else 0
        return total

    def get_batch(self, keys: Any) -> Any:
        self._connection.register("asked", pa.table({"key": keys}))
        return self._connection.sql("SELECT key, phy_offset FROM asked JOIN k USING (key)").to_arrow_table()

    def is_right(self, answer: Any, offsets: NDArray[np.int64]) -> bool:
        """Return whether all offsets were found; a join returns them in any order."""
        return bool(np.array_equal(np.sort(answer["phy_offset"].to_numpy()), np.sort(offsets)))
