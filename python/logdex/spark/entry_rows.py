"""Rows of index entries as a task holds them: twenty bytes each, with the hash in place of topic and key.

A batch has the columns key_hash (int32), phy_offset (int64) and store_timestamp (int64, milliseconds since the epoch), none of
them null. That is all an index file is made of, so a task can hold the rows of a whole file, sort them and put them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from logdex._core import key_hashes, offset_order
from logdex._files import Closing
from logdex.spark.schema import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COLUMNS = ("topic", "key", "phy_offset", "store_timestamp")
"""What rows are made from."""

ROW_SCHEMA = pa.schema([("key_hash", pa.int32()), ("phy_offset", pa.int64()), ("store_timestamp", pa.int64())])
_BATCH_ROWS = 65_536


def entry_rows(batch: Any) -> Any:
    """Make rows of a batch that has the four columns of an index entry.

    Raises:
        ValueError: One of them is null.
    """
    columns = [batch.column(name) for name in COLUMNS]
    for name, column in zip(COLUMNS, columns, strict=True):
        if column.null_count:
            raise ValueError(f"cannot index a row whose {name} is null")
    topics, keys, offsets, times = columns
    hashes = pa.array(key_hashes(keys, topics=topics))
    rows = pa.RecordBatch.from_arrays([hashes, offsets.cast(pa.int64()), milliseconds(times)], schema=ROW_SCHEMA)
    # Copied, or the numbers would keep the texts that they came with.
    return rows.copy_to(pa.default_cpu_memory_manager())


def follows(earlier: Any | None, batch: Any) -> bool:
    """Say whether the offsets of a batch do not fall, and do not begin below the last one of an earlier batch."""
    offsets = batch.column("phy_offset")
    if earlier is not None and offsets[0].as_py() < earlier.column("phy_offset")[-1].as_py():
        return False
    falls = pc.any(pc.less(offsets.slice(1), offsets.slice(0, len(offsets) - 1)), min_count=0)
    return not falls.as_py()


def sorted_rows(batches: Sequence[Any]) -> Iterator[Any]:
    """Give the rows in the order of their offsets; rows of one offset stay as they came."""
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    order = pa.array(offset_order(rows.column("phy_offset")))
    for start in range(0, len(order), _BATCH_ROWS):
        yield rows.take(order.slice(start, _BATCH_ROWS))


class RowsWriter(Closing):
    """Leaves rows in a file for another task; Arrow's stream format."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, ROW_SCHEMA)

    def write(self, rows: Any) -> None:
        """Append rows."""
        self._stream.write_batch(rows)

    def close(self) -> None:
        """End the stream and close the file."""
        self._stream.close()
        self._file.close()


def read_rows(path: Path, start: int, stop: int) -> Iterator[Any]:
    """Give the rows `start` up to `stop` (exclusive) of a file, in batches that are not empty."""
    passed = 0
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            own = batch.slice(max(start - passed, 0), max(min(stop, passed + batch.num_rows) - max(start, passed), 0))
            if own.num_rows:
                yield own
            passed += batch.num_rows
            if passed >= stop:
                return
